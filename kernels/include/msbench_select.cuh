// The k largest of distinct keys in shared memory, by pivots: one barrier judges 32 of them, a warp each, where a search bit by
// bit has one for each of 64 bits.
#pragma once

#include "msbench_scan.cuh"

namespace msbench {

using Key = unsigned long long;  // 0 is nothing

constexpr int kSelectThreads = 1024, kSelectWarps = kSelectThreads / 32;

// The largest of a warp's keys, in every lane.
__device__ inline Key warp_max(Key key) {
    const unsigned high = __reduce_max_sync(~0u, unsigned(key >> 32));
    return Key(high) << 32 | __reduce_max_sync(~0u, unsigned(key >> 32) == high ? unsigned(key) : 0u);
}

// The best of 32 pivots, one a warp: at least k of the keys reach it, and few more; 0 if no pivot has that many.
__device__ inline Key pivot_bound(const Key* keys, unsigned count, int k, unsigned offset = 0) {
    __shared__ unsigned reached[kSelectWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Key pivot = keys[(warp * count / kSelectWarps + offset) % count];
    unsigned mine = 0;
#pragma unroll 8
    for (unsigned i = lane; i < count; i += 32) mine += keys[i] >= pivot;
    mine = __reduce_add_sync(~0u, mine);
    if (lane == 0) reached[warp] = int(mine) >= k && pivot != 0 ? mine * kSelectWarps + warp : ~0u;
    __syncthreads();
    const unsigned best = __reduce_min_sync(~0u, reached[lane]);
    return best == ~0u ? 0 : keys[(best % kSelectWarps * count / kSelectWarps + offset) % count];
}

// Leaves `most` keys or fewer, the k <= most largest among them. Returns a bound that k keys reach. Called by all threads.
__device__ inline Key shrink(Key* list, int* count, int k, int most) {
    Key least = 0;
    __syncthreads();
    int left = *count;
    for (unsigned round = 0; left > most; ++round) {  // other pivots each time: one of them is not the smallest
        const Key bound = pivot_bound(list, left, k, round);
        least = max(least, bound);
        __syncthreads();
        if (threadIdx.x == 0) *count = 0;
        for (int start = 0; start < left; start += kSelectThreads) {
            const int i = start + threadIdx.x;
            const Key key = i < left ? list[i] : 0;
            __syncthreads();  // what the list loses here has been read
            append(key != 0 && key >= bound, key, list, count, left);
        }
        __syncthreads();
        left = *count;
    }
    return least;
}

}  // namespace msbench
