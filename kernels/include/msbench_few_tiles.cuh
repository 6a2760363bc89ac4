// As many tiles of C in bf16 as there are multiprocessors, or fewer: a block has one, or a slice of one's K.
//
// A block's first thread starts copies as soon as its barriers stand, before the others are ready; B's come first, since they wait for memory
// while A's rows soon are in L2. The blocks of a cluster are slices of a tile. A warp sends its sums to the block that adds up its rows, where they
// land in room of their own, in the order of registers: nobody waits for stages to be free, and there is one barrier after the products instead
// of two. Slices are added in a fixed order. Nothing but C is written.
//
// A block fills a multiprocessor: with room for two, halves of 64 x 2048 x 4096 took 12.7 us for 11.5 (H200). Of clusters of four only 30 run
// at once.
#pragma once

#include "msbench_tile_product.cuh"

namespace msbench::few_tiles {

using tile_product::consume;
using tile_product::kTileK;
using tile_product::Shape;

template <int kConsumers, int kStages, int kSlices_>
struct Plan {
    using T = tile_product::Tile<kConsumers, 64, kStages>;
    static constexpr int kSlices = kSlices_, kWarps = kConsumers * 4, kQuads = T::kTileN / 8;  // four sums a lane
    static constexpr int kOwned = kWarps / kSlices;                                             // warps whose rows a block adds up
    static constexpr int kStageBytes = T::kStages * T::kStageBytes, kPartBytes = kQuads * 32 * 16;  // of a warp's sums
    static constexpr int kSharedBytes = T::kSharedBytes + (kSlices - 1) * kOwned * kPartBytes;
    static_assert(kStages >= 2 && kOwned * kSlices == kWarps);
};

// The halves of a cluster's barrier. What is written before an arrival is seen after the wait, but not before a first arrival, which only says
// that the block has started.
__device__ __forceinline__ void start_in_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void arrive_in_cluster() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Four numbers to where `to` is in the shared memory of the cluster's block `rank`.
__device__ __forceinline__ void send(SharedAddress to, int rank, float a, float b, float c, float d) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nst.shared::cluster.v4.f32 [there], {%2, %3, %4, %5};\n}" ::"r"(to),
                 "r"(rank), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}

template <class P>
__global__ void __launch_bounds__(P::T::kThreads, 1)
    multiply(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* C,
             const __grid_constant__ Shape shape) {
    using T = typename P::T;
    using Position = RingPosition<T::kStages>;
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int slice = blockIdx.x, tile_row = blockIdx.y * T::kTileM, tile_column = blockIdx.z * T::kTileN;
    const int first_k = slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K);
    int k = first_k;
    Position at;
    const auto copy = [&](int end) {
        for (; k < end; k += kTileK, at.advance()) {
            ring.acquire(at, T::kStageBytes);
            unsigned char* panel = stages + at.stage * T::kStageBytes;
            copy_box(panel + T::kBytesA, &b_map, ring.filled[at.stage], tile_column, k);
            copy_box(panel, &a_map, ring.filled[at.stage], k, tile_row);
        }
    };
    if (threadIdx.x == 0) {
        ring.init(P::kWarps);
        cudaGridDependencySynchronize();
        copy(min(first_k + T::kStages * kTileK, end_k));  // all stages
    }
    if constexpr (P::kSlices > 1) start_in_cluster();
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0), lane = threadIdx.x % 32;
    if (group == 0) {
        if (threadIdx.x == 0) copy(end_k);
        __syncwarp();
        if constexpr (P::kSlices > 1) wait_for_cluster(), arrive_in_cluster();
        return;
    }
    const int warp = threadIdx.x / 32 - kGroupThreads / 32;
    Position mine;
    float sums[T::kTileN / 2];
    consume<T, tile_product::Matrices<T, true>>(sums, ring, mine, stages, group - 1, first_k, end_k);
    if constexpr (P::kSlices > 1) {
        const int owner = warp / P::kOwned;
        wait_for_cluster();  // all its blocks have started
        if (owner != slice) {
            const int part = (slice - (slice > owner)) * P::kOwned + warp % P::kOwned;
            const SharedAddress to = shared_address(stages) + P::kStageBytes + part * P::kPartBytes + lane * 16;
#pragma unroll
            for (int j = 0; j < P::kQuads; ++j) send(to + j * 512, owner, sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
        }
        arrive_in_cluster();
        if (owner != slice) return;
        wait_for_cluster();
#pragma unroll
        for (int s = 0; s < P::kSlices - 1; ++s) {
            const float4* from =
                reinterpret_cast<const float4*>(stages + P::kStageBytes + (s * P::kOwned + warp % P::kOwned) * P::kPartBytes) + lane;
#pragma unroll
            for (int j = 0; j < P::kQuads; ++j) {
                const float4 x = from[j * 32];
                sums[4 * j] += x.x, sums[4 * j + 1] += x.y, sums[4 * j + 2] += x.z, sums[4 * j + 3] += x.w;
            }
        }
    }
    store_rows(sums, C, tile_row + warp * 16, tile_column, shape, lane);
}

template <class P>
cudaError_t launch(const Matrix16& A, const Matrix16& B, __nv_bfloat16* C, int64_t pitch, bool behind, cudaStream_t stream) {
    using T = typename P::T;
    const TensorMaps maps;
    CUtensorMap a_map, b_map;
    const auto describe = [&](CUtensorMap* map, const Matrix16& m, int box_rows) {
        return maps.describe<2>(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, m.data, {cuuint64_t(m.columns), cuuint64_t(m.rows)},
                                {cuuint64_t(m.pitch) * 2}, {tile_product::kBox, cuuint32_t(box_rows)});
    };
    cudaError_t status = describe(&a_map, A, T::kTileM);
    if (status == cudaSuccess) status = describe(&b_map, B, kTileK);
    if (status != cudaSuccess) return status;
    const int slice_k = int(ceil_div(ceil_div(A.columns, P::kSlices), kTileK)) * kTileK;
    const Shape shape{int(A.rows), int(B.columns), int(A.columns), slice_k, P::kSlices, pitch,
                      pitch % tile_product::kChunk == 0 && packets_allowed(C)};
    Launch launch(dim3(P::kSlices, unsigned(ceil_div(A.rows, T::kTileM)), unsigned(ceil_div(B.columns, T::kTileN))), dim3(T::kThreads), stream);
    launch.shared(P::kSharedBytes);
    if (behind) launch.early();
    if constexpr (P::kSlices > 1) return launch_clusters(P::kSlices, launch, multiply<P>, a_map, b_map, C, shape);
    else return launch(multiply<P>, a_map, b_map, C, shape);
}

}  // namespace msbench::few_tiles
