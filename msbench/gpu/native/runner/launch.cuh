// Calls of a launcher in this process, and the end of what is in the stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "call.cuh"
#include "kernels.cuh"
#include "state.cuh"

namespace {

void* workspace_of(const Call* call) { return call->workspace_bytes ? runner.workspace : nullptr; }

void* const* row_of(const Call* call, int set) { return call->pointers + size_t(set % call->sets) * call->arrays; }

void* const* outputs_of(const Call* call, int set) { return row_of(call, set) + (call->arrays - call->outputs); }

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
