// Weights of attention in bf16 from tiles of scores (msbench_tiles.cuh), without looking at other tiles of their rows.
//
// A tile subtracts a shift of its own from each row's scores, a multiple of 32 to base 2, so that most tiles of a row have the same one. Shift and
// sum of a row's weights in the tile are kept for the product with values (msbench_weight_mix.cuh). The largest weight lies in (2^-16, 2^16],
// so that a last tile of few keys, whose scores may all be negative, rarely stands out.
#pragma once

#include "msbench_math.cuh"
#include "msbench_tiles.cuh"

namespace msbench::weight_tiles {

using namespace tile_product;

constexpr float kCoarse = 32.0f;

// Of each tile's columns and each row: shift and sum.
struct RowParts {
    float2* parts;
    int64_t pitch;
    int count;
};

// A warp's 16 rows of scores to weights.
template <int kCount>
__device__ __forceinline__ void weigh(float (&s)[kCount], float2* parts, int row, int column, const Shape& shape, float scale, int lane) {
    const bool partial = column + kCount * 2 > shape.N;
    float largest[2] = {-INFINITY, -INFINITY}, origin[2], sum[2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (partial && column + i / 4 * 8 + lane % 4 * 2 + i % 2 >= shape.N) s[i] = -INFINITY;
        largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], s[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2));
        largest[h] = kCoarse * ceilf(largest[h] * scale * (1 / kCoarse) - 0.5f);
        origin[h] = largest[h] == -INFINITY ? 0.0f : largest[h];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        s[i] = exp2_fast(fmaf(s[i], scale, -origin[i / 2 % 2]));
        sum[i / 2 % 2] += s[i];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
        if (lane % 4 == 0) parts[row + h * 8 + lane / 4] = make_float2(largest[h], sum[h]);
    }
}

// Weights of tiles of Q K', and what is to be known of their rows.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    score(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* weights,
          const __grid_constant__ Shape shape, RowParts rows, float scale) {
    using Source = Matrices<T, false>;
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int tiles_m = (shape.M + T::kTileM - 1) / T::kTileM, tiles_n = (shape.N + T::kTileN - 1) / T::kTileN;
    if (threadIdx.x == 0) {
        prefetch(&a_map);
        prefetch(&b_map);
        ring.init(T::kConsumers * 4);
    }
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    constexpr bool kMovesRegisters = T::kConsumers == 2 && T::kTileN == 256;
    Position<T> at;
    if (group == 0) {
        if constexpr (kMovesRegisters) give_up_registers<40>();
        for (int i = blockIdx.x; i < tiles_m * tiles_n && threadIdx.x == 0; i += gridDim.x) {
            const Work<T> w(i, tiles_m, tiles_n);
            produce<T, Source>(ring, at, stages, &a_map, &b_map, w.row, w.column, 0, shape.K, 0);
        }
    } else {
        if constexpr (kMovesRegisters) get_registers<232>();
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        for (int i = blockIdx.x; i < tiles_m * tiles_n; i += gridDim.x) {
            const Work<T> w(i, tiles_m, tiles_n);
            float sums[T::kTileN / 2];
            consume<T, Source>(sums, ring, at, stages, group - 1, 0, shape.K);
            const int row = w.row + (group - 1) * kGroupRows + warp * 16;
            weigh(sums, rows.parts + w.column / T::kTileN * rows.pitch, row, w.column, shape, scale, lane);
            store_rows(sums, weights, row, w.column, shape, lane);
        }
    }
}

}  // namespace msbench::weight_tiles
