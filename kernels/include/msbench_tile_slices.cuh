// Few tiles of C: a cluster has a tile, each of its blocks a slice of K, and their fp32 sums meet in distributed shared memory.
//
// Each block adds up its share of the tile's rows, slice by slice in order. One launch, and nothing but C is written. Two blocks fit on a
// multiprocessor: of clusters of four that fill one each, 30 are all that fit at once.
#pragma once

#include "msbench_groups.cuh"

#include "msbench_tiles.cuh"

namespace msbench::tile_product {

template <class T, class Source>
__global__ void __launch_bounds__(T::kThreads, 2)
    multiply_slices(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* C,
                    const __grid_constant__ Shape shape, int argument) {
    constexpr int kPitch = T::kTileN + 8;
    static_assert(kPitch * T::kTileM * 4 + 1024 <= T::kSharedBytes, "sums take the place of the stages");
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const auto cluster = cooperative_groups::this_cluster();
    const int slices = shape.slices, slice = blockIdx.x % slices, tiles_m = (shape.M + T::kTileM - 1) / T::kTileM;
    const int tile = blockIdx.x / slices, tile_row = tile % tiles_m * T::kTileM, tile_column = tile / tiles_m * T::kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K);
    if (threadIdx.x == 0) {
        prefetch(&a_map);
        prefetch(&b_map);
        ring.init(T::kConsumers * 4);  // each warp
    }
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    float* const sums_of_tile = reinterpret_cast<float*>(stages);
    Position<T> at;
    if (group == 0) {
        if (threadIdx.x == 0) produce<T, Source>(ring, at, stages, &a_map, &b_map, tile_row, tile_column, first_k, end_k, argument);
        __syncwarp();
        cluster.sync();
        cluster.sync();
        return;
    }
    constexpr int kThreads = T::kConsumers * kGroupThreads;
    float sums[T::kTileN / 2];
    consume<T, Source>(sums, ring, at, stages, group - 1, first_k, end_k);
    sync_named(1, kThreads);  // all stages have been read
    const int sums_row = (group - 1) * kGroupRows + threadIdx.x / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < T::kTileN / 8; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            *reinterpret_cast<float2*>(sums_of_tile + (sums_row + 8 * h) * kPitch + 8 * j + lane % 4 * 2) =
                make_float2(sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]);
        }
    }
    cluster.sync();
    const int share = (T::kTileM + slices - 1) / slices, end_row = min((slice + 1) * share, T::kTileM);
    for (int e = threadIdx.x - kGroupThreads; e < share * (T::kTileN / kChunk); e += kThreads) {
        const int row = slice * share + e / (T::kTileN / kChunk), column = e % (T::kTileN / kChunk) * kChunk;
        const int to_row = tile_row + row, to_column = tile_column + column;
        if (row >= end_row || to_row >= shape.M || to_column >= shape.N) continue;
        float sum[kChunk] = {};
#pragma unroll 4
        for (int s = 0; s < slices; ++s) {
            const float4* from = reinterpret_cast<const float4*>(cluster.map_shared_rank(sums_of_tile, s) + row * kPitch + column);
            const float4 x = from[0], y = from[1];
            sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
            sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
        }
        __nv_bfloat16* to = C + to_row * shape.pitch + to_column;
        if (shape.vectors) {
            *reinterpret_cast<uint4*>(to) = make_uint4(pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7]));
        } else {
#pragma unroll
            for (int i = 0; i < kChunk; ++i) {
                if (to_column + i < shape.N) to[i] = __float2bfloat16_rn(sum[i]);
            }
        }
    }
    cluster.sync();  // no block leaves while others read its sums
}

}  // namespace msbench::tile_product
