// Sums and moments down the columns of a row-major matrix, over the threads of a block that stand in the same columns, and over the
// blocks of a cluster.
#pragma once

#include "msbench_groups.cuh"

#include "msbench.cuh"

namespace msbench {

// The sum over the block's threads of the same columns, T of them a row, in all of these threads.
template <int P, int T, int kWarps>
__device__ __forceinline__ void sum_over_rows(float (&s)[P], float (*part)[T * P]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int distance = T; distance < 32; distance *= 2) {
#pragma unroll
        for (int k = 0; k < P; ++k) s[k] += __shfl_xor_sync(~0u, s[k], distance);
    }
    if (lane < T) {
#pragma unroll
        for (int k = 0; k < P; ++k) part[warp][lane * P + k] = s[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < P; ++k) s[k] = 0;
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll
        for (int k = 0; k < P; ++k) s[k] += part[w][lane % T * P + k];
    }
}

// Columns of a tile as the blocks of a cluster know them, `share` rows each, joined in every one of them.
template <int P, int T, int kBlocks>
__device__ __forceinline__ void join_columns(float (&mean)[P], float (&squares)[P], int share, int rows, float inverse) {
    __shared__ float2 all[kBlocks][T * P];
    const int p = threadIdx.x % T, q = threadIdx.x / T;
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_wait();  // all blocks have begun
    if (q < kBlocks) {
        float2* const to = cluster.map_shared_rank(&all[blockIdx.x][p * P], q);
#pragma unroll
        for (int k = 0; k < P; ++k) to[k] = make_float2(mean[k], squares[k]);
    }
    cluster.sync();
#pragma unroll
    for (int k = 0; k < P; ++k) {
        mean[k] = squares[k] = 0;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) mean[k] = fmaf(max(0, min(share, rows - b * share)), all[b][p * P + k].x, mean[k]);
        mean[k] *= inverse;
#pragma unroll
        for (int b = 0; b < kBlocks; ++b) {
            const float apart = all[b][p * P + k].x - mean[k];
            squares[k] += fmaf(max(0, min(share, rows - b * share)) * apart, apart, all[b][p * P + k].y);
        }
    }
}

}  // namespace msbench
