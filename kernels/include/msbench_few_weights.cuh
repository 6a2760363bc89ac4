// Attention's two products in bf16, as in msbench_weight_tiles.cuh and msbench_weight_mix.cuh, where each has as many tiles as there are
// multiprocessors, or fewer: a block has one, or a slice of one's K, whose sums a cluster adds up (msbench_send_slices.cuh).
//
// Copies start before a block's other threads are ready; of the second product values that nobody writes come while the first one runs, on
// multiprocessors that it leaves free.
//
// Dead ends (H100, 2026-11-26): one launch, clusters of 8 or 16 blocks with 64 queries that send their keys' weights to each other by bulk copies
// in shared memory, 10.8 us in place of 10.1 at 128 x 256 x 512 x 512, 13.4 of 12.0 at 256 x 512 x 1024 x 1024, 15.0 of 13.4 at
// 512 x 512 x 1024 x 2048 and 22.7 of 15.8 at 256 x 1024 x 2048 x 1024: queries are read by as many clusters as there are slices of columns, and a
// cluster has few multiprocessors for its scores. The same with all values loaded beforehand: 0.4 to 6 us more. Values fetched to L2 by a warp of
// the first kernel: as much as without, and 2.5 us more at 128 x 2048 x 512 x 4096, since its keys wait for them.
#pragma once

#include "msbench_send_slices.cuh"
#include "msbench_weight_mix.cuh"

namespace msbench::few_weights {

using namespace tile_product;
using weight_tiles::RowParts;

template <int kConsumers, int kTileN, int kStages, int kSlices_>
struct Plan {
    using T = Tile<kConsumers, kTileN, kStages>;
    static constexpr int kSlices = kSlices_, kWarps = kConsumers * 4, kQuads = kTileN / 8, kOwned = kWarps / kSlices;
    static constexpr int kStageBytes = kStages * T::kStageBytes, kPartBytes = kQuads * 32 * 16;
    static_assert(kOwned * kSlices == kWarps);
};

template <class P>
constexpr int shared_bytes() {
    return P::T::kSharedBytes + sent_bytes<P>();
}

// As weight_tiles::score. The grid is slices x tile rows x tile columns.
template <class P>
__global__ void __launch_bounds__(P::T::kThreads, 1)
    score(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* weights,
          const __grid_constant__ Shape shape, RowParts rows, float scale) {
    using T = typename P::T;
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int slice = blockIdx.x, tile_row = blockIdx.y * T::kTileM, tile_column = blockIdx.z * T::kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K);
    int k = first_k;
    Position<T> at;
    const auto copy = [&](int end) {
        for (; k < end; k += kTileK, at.advance()) {
            ring.acquire(at, T::kStageBytes);
            unsigned char* panel = stages + at.stage * T::kStageBytes;
            copy_box(panel + T::kBytesA, &b_map, ring.filled[at.stage], k, tile_column);
            copy_box(panel, &a_map, ring.filled[at.stage], k, tile_row);
        }
    };
    if (threadIdx.x == 0) {
        ring.init(P::kWarps);
        cudaGridDependencySynchronize();
        copy(min(first_k + T::kStages * kTileK, end_k));  // all stages
    }
    if constexpr (P::kSlices > 1) few_tiles::start_in_cluster();
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    if (group == 0) {
        if (threadIdx.x == 0) copy(end_k);
        __syncwarp();
        follow_slices<P>();
        return;
    }
    const int warp = threadIdx.x / 32 - kGroupThreads / 32, row = tile_row + warp * 16;
    Position<T> mine;
    float sums[T::kTileN / 2];
    consume<T, Matrices<T, false>>(sums, ring, mine, stages, group - 1, first_k, end_k);
    if (!add_slices<P>(sums, stages, slice, warp, lane)) return;
    weight_tiles::weigh(sums, rows.parts + blockIdx.z * rows.pitch, row, tile_column, shape, scale, lane);
    store_rows(sums, weights, row, tile_column, shape, lane);
}

// As weight_tiles::mix.
template <class P>
__global__ void __launch_bounds__(P::T::kThreads, 1)
    mix(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* Y, const __grid_constant__ Shape shape,
        RowParts rows, int part_columns, bool ready) {
    using T = typename P::T;
    using Source = Matrices<T, true>;
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int slice = blockIdx.x, tile_row = blockIdx.y * T::kTileM, tile_column = blockIdx.z * T::kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K), early_end = min(first_k + T::kStages * kTileK, end_k);
    const auto copy_values = [&](int stage, int k) {
        ring.filled[stage].expect(T::kStageBytes);
#pragma unroll
        for (int n = 0; n < T::kTileN; n += kBox) {
            copy_box(stages + stage * T::kStageBytes + T::kBytesA + n * kTileK * 2, &b_map, ring.filled[stage], tile_column + n, k);
        }
    };
    if (threadIdx.x == 0) {
        ring.init(P::kWarps);
        if (ready) {
            for (int k = first_k, s = 0; k < early_end; k += kTileK, ++s) copy_values(s, k);
        }
    }
    if constexpr (P::kSlices > 1) few_tiles::start_in_cluster();
    __syncthreads();
    cudaGridDependencySynchronize();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    if (group == 0) {
        if (threadIdx.x == 0) {
            Position<T> at;
            for (int k = first_k; k < end_k; k += kTileK, at.advance()) {
                if (k >= early_end) ring.emptied[at.stage].wait(at.parity ^ 1);
                if (k >= early_end || !ready) copy_values(at.stage, k);
                copy_box(stages + at.stage * T::kStageBytes, &a_map, ring.filled[at.stage], k, tile_row);
            }
        }
        __syncwarp();
        follow_slices<P>();
        return;
    }
    const int warp = threadIdx.x / 32 - kGroupThreads / 32, row = tile_row + warp * 16;
    const float2* parts = rows.parts + min(row + lane / 2, shape.M - 1);
    const weight_tiles::RowTotal total = weight_tiles::total_of(parts, rows, lane);
    Position<T> mine;
    float sums[T::kTileN / 2];
    if (weight_tiles::any_of_group(group, total.differ)) {
        weight_tiles::consume_shifted<T, Source>(sums, ring, mine, stages, group - 1, first_k, end_k, parts, rows.pitch, part_columns, total.top);
    } else {
        consume<T, Source>(sums, ring, mine, stages, group - 1, first_k, end_k);
    }
    if (!add_slices<P>(sums, stages, slice, warp, lane)) return;
#pragma unroll
    for (int j = 0; j < T::kTileN / 2; ++j) sums[j] *= total.factor[j / 2 % 2];
    store_rows(sums, Y, row, tile_column, shape, lane);
}

}  // namespace msbench::few_weights
