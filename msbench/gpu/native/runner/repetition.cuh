// What makes a repetition unlike the one before it, and leaves nothing of that: other inputs, scrubbed memory, an empty cache.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "call.cuh"
#include "kernels.cuh"
#include "state.cuh"

namespace {

uint64_t hashed(uint64_t z) {  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

uint64_t next_of(uint64_t& state) { return state += 0x9E3779B97F4A7C15u; }

// timing/permute.py works out where `state` leads to.
int permute_inputs(const Call* call, int set, uint64_t& state) {
    if (!call->permuted) return 0;
    void* const* row = call->pointers + size_t(set % call->sets) * call->arrays;
    Swaps swaps{};
    int used = 0;
    for (int i = 0; i < call->arrays && used < kMaxPermuted; ++i) {
        const uint64_t count = call->permuted[2 * i], bytes = call->permuted[2 * i + 1];
        if (!count) continue;
        auto* data = static_cast<unsigned char*>(row[i]);
        const uint64_t drawn = next_of(state);
        swaps.first[used] = data + hashed(drawn) % count * bytes;
        swaps.second[used] = data + hashed(~drawn) % count * bytes;
        swaps.bytes[used++] = unsigned(bytes);
    }
    if (used) permute<<<used, kMaxElementBytes, 0, runner.stream>>>(swaps);
    return cudaGetLastError();
}

// What an earlier kernel has left on the multiprocessors.
cudaError_t scrub(bool local, unsigned value) {
    scrub_shared<<<runner.multiprocessors, 1024, runner.shared_bytes, runner.stream>>>(value, runner.shared_bytes / sizeof(unsigned));
    if (local)
        scrub_local<<<2 * runner.multiprocessors, 1024, 0, runner.stream>>>(value, reinterpret_cast<unsigned*>(runner.counters + kReadOver));
    return cudaGetLastError();
}

// Nothing that was in L2 is there afterwards.
cudaError_t empty_cache() {
    const int blocks = 4 * runner.multiprocessors;
    read_over<<<blocks, 512, 0, runner.stream>>>(static_cast<const uint4*>(runner.flush), runner.flush_bytes / sizeof(uint4),
                                                 reinterpret_cast<unsigned*>(runner.counters + kReadOver));
    let_go<<<blocks, 512, 0, runner.stream>>>(static_cast<const char*>(runner.flush), runner.flush_bytes / kLine);
    return cudaGetLastError();
}

}  // namespace
