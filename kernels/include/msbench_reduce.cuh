// Sums over a block, in an order that is always the same.
#pragma once

#include "msbench.cuh"

namespace msbench {

// The sums of several numbers over a block of kThreads threads, in each thread of its first warp; other threads get nothing useful.
template <int kThreads, int kCount>
__device__ void block_sums(float (&x)[kCount]) {
    static_assert(kThreads % 32 == 0, "whole warps");
#pragma unroll
    for (int i = 0; i < kCount; ++i) x[i] = warp_reduce(x[i], Sum());
    if constexpr (kThreads > 32) {
        constexpr int kWarps = kThreads / 32;
        static_assert((kWarps & (kWarps - 1)) == 0 && kWarps <= 32, "a power of two of warps");
        __shared__ float of_warp[kCount][kWarps];
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        __syncthreads();  // an earlier sum's may still be read
        if (lane == 0) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) of_warp[i][warp] = x[i];
        }
        __syncthreads();
        if (warp > 0) return;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            x[i] = of_warp[i][lane % kWarps];
#pragma unroll
            for (int distance = kWarps / 2; distance > 0; distance /= 2) x[i] += __shfl_xor_sync(0xffffffffu, x[i], distance);
        }
    }
}

template <int kThreads>
__device__ float block_sum(float x) {
    float sums[1] = {x};
    block_sums<kThreads>(sums);
    return sums[0];
}

}  // namespace msbench
