// Adding products to the sums of their rows when several lanes may have the same row: full rows of a matrix, and entries
// stored more than once, would make atomic additions wait for each other one by one.
#pragma once

#include "msbench.cuh"

namespace msbench {

// Sums what lanes of the warp have for the same row: true in one lane of each, whose product is then the sum. Called by
// whole warps; lanes with a row below 0 have nothing. `peers`: the lanes with this lane's row.
__device__ inline bool combine_peers(unsigned peers, int row, float& product) {
    const int lane = threadIdx.x % 32;
    int rank = __popc(peers & ((1u << lane) - 1));
    const bool first = rank == 0;
    peers &= ~1u << lane;  // those behind this lane; halved in each turn
    while (__any_sync(~0u, peers != 0)) {
        const int next = __ffs(peers);
        const float other = __shfl_sync(~0u, product, next > 0 ? next - 1 : lane);
        if (next > 0) product += other;
        peers &= ~__ballot_sync(~0u, rank % 2 != 0);
        rank /= 2;
    }
    return first && row >= 0;
}

// The same for lanes that do not know their peers yet.
__device__ inline bool combine_rows(int row, float& product) {
    return combine_peers(__match_any_sync(~0u, row), row, product);
}

// Adds lanes' products to `sums`, in shared memory. Additions of floats there are tries, repeated until nobody came between: a row that most
// lanes have at once would make them wait for each other, so lanes whose first kTries failed add up by row before they go on.
template <int kTries = 1>
__device__ inline void add_to_shared(float* sums, int row, float product) {
    bool left = row >= 0;
    if (left) {
        int* const at = reinterpret_cast<int*>(sums + row);
        int seen = *static_cast<volatile int*>(at);
#pragma unroll
        for (int i = 0; i < kTries; ++i) {
            if (!left) break;
            const int before = seen;
            seen = atomicCAS(at, before, __float_as_int(__int_as_float(before) + product));
            left = seen != before;
        }
    }
    if (!__any_sync(~0u, left)) return;
    if (!left) row = -1;
    if (combine_rows(row, product)) atomicAdd(sums + row, product);
}

}  // namespace msbench
