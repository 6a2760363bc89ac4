// Floats as unsigned integers that compare in the same order, and places in that order found by comparing all pairs.
//
// All pairs are N²/2 comparisons instead of N log N, but they need no barrier between blocks and hardly any within one: up
// to 4096 keys they cost less than one further exchange through memory.
#pragma once

#include <msbench.cuh>

namespace msbench {

// Ascending; -0 below 0, NaNs with a clear sign bit above infinity.
__device__ inline unsigned ordered_bits(unsigned bits) {
    return bits ^ (unsigned(int(bits) >> 31) | 0x80000000u);
}

__device__ inline unsigned ordered_key(float x) {
    return ordered_bits(__float_as_uint(x));
}

__device__ inline unsigned bits_of_ordered(unsigned key) {
    return key & 0x80000000u ? key ^ 0x80000000u : ~key;
}

__device__ inline float value_of_ordered(unsigned key) {
    return __uint_as_float(bits_of_ordered(key));
}

constexpr int kRankThreads = 1024, kRankedByBlock = 32;
constexpr unsigned kMissingKey = 0xffffffffu;  // pads the keys; follows all others

// How many of n <= kMost keys in shared memory (padded to kMost) come before key number 32 blockIdx.x + lane; of equal keys
// those before it do. The result is valid in the block's first warp, a lane for each of the block's 32 keys. Called by all
// kRankThreads threads when the keys are written; has a barrier.
template <int kMost>
__device__ inline unsigned rank_among(const unsigned (&keys)[kMost], int n) {
    __shared__ unsigned place[kRankedByBlock];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = blockIdx.x;
    if (warp == 0) place[lane] = 0;
    __syncthreads();
    const unsigned key = keys[own * 32 + lane];
    unsigned before = 0;
    for (int part = warp; part * 32 < n; part += kRankThreads / 32) {  // 32 keys, the same for all lanes
        const uint4* four = reinterpret_cast<const uint4*>(keys + part * 32);
        if (part == own) {
#pragma unroll
            for (int j = 0; j < 32; ++j) before += keys[part * 32 + j] < key || (keys[part * 32 + j] == key && j < lane);
        } else if (part < own) {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                before += (four[j].x <= key) + (four[j].y <= key) + (four[j].z <= key) + (four[j].w <= key);
            }
        } else {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                before += (four[j].x < key) + (four[j].y < key) + (four[j].z < key) + (four[j].w < key);
            }
        }
    }
    if (before) atomicAdd(&place[lane], before);
    __syncthreads();
    return place[lane];
}

}  // namespace msbench
