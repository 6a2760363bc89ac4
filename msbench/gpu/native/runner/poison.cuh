// What a call may write is overwritten before it; the guard around its workspace is looked at afterwards.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "call.cuh"
#include "kernels.cuh"
#include "launch.cuh"
#include "state.cuh"

namespace {

constexpr size_t kGuardBytes = 512;
constexpr int kGuardPattern = 0xA5;

int poison_outputs(const Call* call, int set) {
    void* const* outputs = outputs_of(call, set);
    for (int i = 0; i < call->outputs; ++i)
        if (int code = cudaMemsetAsync(outputs[i], kPoison, call->output_bytes[i], runner.stream)) return code;
    return 0;
}

int redraw_workspace(const Call* call, uint64_t seed) {
    if (!call->workspace_bytes) return 0;
    redraw<<<4 * runner.multiprocessors, 256, 0, runner.stream>>>(runner.workspace, call->workspace_bytes, seed);
    return cudaGetLastError();
}

size_t aside_bytes(const Call* call) {
    size_t bytes = 0;
    for (int i = 0; i < call->outputs; ++i) bytes += (call->output_bytes[i] + 255) / 256 * 256;
    return bytes;
}

// Makes room for what a call writes. May wait for the device.
int reserve_aside(const Call* call) {
    if (aside_bytes(call) <= runner.aside_capacity) return 0;
    cudaFree(runner.aside);
    runner.aside_capacity = 0;
    if (int code = cudaMalloc(reinterpret_cast<void**>(&runner.aside), aside_bytes(call))) return code;
    runner.aside_capacity = aside_bytes(call);
    return 0;
}

// Copies a set's outputs aside, or back.
int copy_outputs(const Call* call, int set, bool back) {
    void* const* outputs = outputs_of(call, set);
    unsigned char* kept = runner.aside;
    for (int i = 0; i < call->outputs; ++i) {
        void* const to = back ? outputs[i] : kept;
        const void* const from = back ? kept : outputs[i];
        if (int code = cudaMemcpyAsync(to, from, call->output_bytes[i], cudaMemcpyDeviceToDevice, runner.stream)) return code;
        kept += (call->output_bytes[i] + 255) / 256 * 256;
    }
    return 0;
}

struct Piece {
    unsigned char* data;
    size_t bytes;
};

// The memory around a call's workspace, which no call may write to: what was lent, and the rest of its own allocation.
struct Around {
    Piece pieces[3];
};

Around around(const Call* call) {
    Piece lent{runner.lent, runner.lent ? runner.lent_capacity : 0}, behind{nullptr, 0}, own{nullptr, 0};
    unsigned char* const end = runner.workspace + call->workspace_bytes;
    if (call->workspace_bytes && runner.workspace == runner.own) {
        own = {end, runner.own_capacity - call->workspace_bytes};
    } else if (call->workspace_bytes) {
        behind = {end, size_t(lent.data + lent.bytes - end)};
        lent.bytes = size_t(runner.workspace - lent.data);
    }
    return {{lent, behind, own}};
}

// What one version left there is no other's to read; nor is what a call left there the next call's.
int set_guard(const Call* call) {
    for (const Piece& piece : around(call).pieces)
        if (piece.bytes)
            if (int code = cudaMemsetAsync(piece.data, kGuardPattern, piece.bytes, runner.stream)) return code;
    return 0;
}

int fill_workspace(const Call* call, uint64_t seed) {
    if (int code = redraw_workspace(call, seed)) return code;
    return set_guard(call);
}

// Counts what was changed around the workspace since, behind what is in the stream.
int count_overrun(const Call* call) {
    for (const Piece& piece : around(call).pieces)
        if (piece.bytes)
            count_changed<<<4 * runner.multiprocessors, 256, 0, runner.stream>>>(piece.data, piece.bytes, kGuardPattern,
                                                                                 runner.counters + kOverrun);
    return cudaGetLastError();
}

int clear_counters() { return cudaMemsetAsync(runner.counters, 0, kCounters * sizeof(*runner.counters), runner.stream); }

// Whether a call wrote where it may not, once what was counted is there.
int wrote_elsewhere() {
    unsigned long long counted[kCounters];
    if (int code = cudaMemcpy(counted, runner.counters, sizeof(counted), cudaMemcpyDeviceToHost)) return code;
    if (counted[kReadOver]) return kWroteElsewhere;  // read_over reads memory that holds zeros
    if (counted[kChanged]) return kVariableChanged;
    return counted[kOverrun] ? kWorkspaceOverrun : 0;
}

}  // namespace
