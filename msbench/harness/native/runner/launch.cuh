// Calls of a launcher, and their end.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "call.cuh"
#include "kernels.cuh"
#include "state.cuh"

namespace {

// dims[0] empty kernels, one after another.
int launch_nothing(void* const*, const double*, const int64_t* dims, void*, size_t, void* stream) {
    for (int64_t i = 0; i < dims[0]; ++i) nothing<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>();
    return cudaPeekAtLastError();
}

void* workspace_of(const Call* call) { return call->workspace_bytes ? runner.workspace : nullptr; }

void* const* row_of(const Call* call, int set) { return call->pointers + size_t(set % call->sets) * call->arrays; }

int invoke_on(cudaStream_t stream, Launch launch, const Call* call, int set, int* stage) {
    cudaGetLastError();  // what an earlier call left behind is not this one's
    const int code = launch(row_of(call, set), call->scalars, call->dims, workspace_of(call), call->workspace_bytes, stream);
    const int last = cudaGetLastError();
    if (code || last) *stage = code ? kLauncher : kLastError;
    return code ? code : last;
}

int invoke(const Call* call, int set, int* stage) { return invoke_on(runner.stream, call->launch, call, set, stage); }

int synchronize(int* stage) {
    int code = cudaStreamSynchronize(runner.stream);
    if (!code) code = cudaDeviceSynchronize();
    if (code) *stage = kKernel;
    return code;
}

}  // namespace
