// What a call may write is poisoned before it; the guard behind its workspace is looked at afterwards.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "call.cuh"
#include "kernels.cuh"
#include "launch.cuh"
#include "state.cuh"

namespace {

constexpr size_t kGuardBytes = 512;
constexpr int kGuardPattern = 0xA5;

int poison_outputs(const Call* call, int set) {
    void* const* outputs = row_of(call, set) + (call->arrays - call->outputs);
    for (int i = 0; i < call->outputs; ++i)
        if (int code = cudaMemsetAsync(outputs[i], kPoison, call->output_bytes[i], runner.stream)) return code;
    return 0;
}

int poison_workspace(const Call* call) {
    if (!call->workspace_bytes) return 0;
    return cudaMemsetAsync(runner.workspace, kPoison, call->workspace_bytes, runner.stream);
}

// What one version left in lent memory is no other's to read.
int poison_lent() { return runner.lent ? cudaMemsetAsync(runner.lent, kPoison, runner.lent_capacity, runner.stream) : cudaSuccess; }

int fill_workspace(const Call* call) {
    if (!call->workspace_bytes) return 0;
    if (int code = poison_workspace(call)) return code;
    return cudaMemsetAsync(runner.workspace + call->workspace_bytes, kGuardPattern, kGuardBytes, runner.stream);
}

int check_guard(const Call* call) {
    if (!call->workspace_bytes) return 0;
    unsigned char guard[kGuardBytes];
    if (int code = cudaMemcpy(guard, runner.workspace + call->workspace_bytes, kGuardBytes, cudaMemcpyDeviceToHost)) return code;
    for (unsigned char byte : guard)
        if (byte != kGuardPattern) return kWorkspaceOverrun;
    return 0;
}

}  // namespace
