// The sum over a block behind one barrier, in an order that is always the same.
//
// Half of the code of block_sum, which goes through shuffles twice: where a kernel is so short that its code, which comes from memory as
// its numbers do, counts.
#pragma once

#include "msbench.cuh"

namespace msbench {

// In each thread of the block's first warp; other threads get 0. Once in a kernel.
template <int kThreads>
__device__ float flat_sum(float x) {
    static_assert(kThreads % 128 == 0, "four numbers a lane");
    __shared__ alignas(16) float of_thread[kThreads];
    of_thread[threadIdx.x] = x;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kThreads / 128; ++i) {
        const float4 part = reinterpret_cast<const float4*>(of_thread)[i * 32 + threadIdx.x];
        sum += (part.x + part.y) + (part.z + part.w);
    }
    return warp_reduce(sum, Sum());
}

}  // namespace msbench
