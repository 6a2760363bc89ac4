// Tiles of C = A B in bf16 with fp32 sums, on the tensor cores through wgmma, fed by TMA. msbench_tile_product.cuh plans and launches.
//
// One block a multiprocessor walks over tiles of C. One warp group feeds a ring of shared-memory stages (panels of A and B, 64 deep, in the
// 128-byte swizzle that wgmma reads); one or two multiply, 64 rows of the tile each, and hand a stage back when the next one is under way.
// Copies run on into the next tile while results are stored. B stays as it is in memory, K or N fastest. Tiles are walked in groups of
// 16 tile rows, so that what runs at a time shares its panels in L2. K may be cut into
// slices, whose fp32 sums lie in layers; msbench_tile_slices.cuh adds them up in shared memory.
//
// Tried and no faster: pairs of blocks that bring B's panels for each other by multicast (H200, 2026-11-23).
#pragma once

#include "msbench.cuh"
#include "msbench_async.cuh"
#include "msbench_tile_store.cuh"
#include "msbench_wgmma.cuh"

namespace msbench {

namespace tile_product {

constexpr int kTileK = 64, kBox = 64;  // a row of a panel is 128 bytes
constexpr int kTileRows = 16, kMapThreads = 256;

template <int kConsumers_, int kTileN_, int kStages_>
struct Tile {
    static constexpr int kConsumers = kConsumers_, kStages = kStages_;
    static constexpr int kTileM = kConsumers * kGroupRows, kTileN = kTileN_, kThreads = (1 + kConsumers) * kGroupThreads;
    static constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileK * kTileN * 2, kStageBytes = kBytesA + kBytesB;
    static constexpr int kSharedBytes = kStages * kStageBytes + 1024;  // stages start on 1024 bytes
};

// A tile of C and a slice of K.
template <class T>
struct Work {
    int row, column, slice;

    __device__ __forceinline__ Work(int i, int tiles_m, int tiles_n) {
        const int tiles = tiles_m * tiles_n, tile = i % tiles, group = tile / (kTileRows * tiles_n), in_group = tile % (kTileRows * tiles_n);
        const int height = min(kTileRows, tiles_m - group * kTileRows);
        row = (group * kTileRows + in_group % height) * T::kTileM;
        column = in_group / height * T::kTileN, slice = i / tiles;
    }
};

// Where a row-major A [M, K] and B come from. kNFastest: B is [K, N], and its map has boxes of 64 columns of 64 k; otherwise [N, K], boxes of
// 64 k of kTileN columns.
template <class T, bool kNFastest_>
struct Matrices {
    static constexpr bool kNFastest = kNFastest_;

    // Brings 64 k of a tile's rows of A and columns of B.
    static __device__ __forceinline__ void copy(unsigned char* a, unsigned char* b, const CUtensorMap* a_map, const CUtensorMap* b_map,
                                                Barrier& filled, int row, int column, int k, int) {
        constexpr int kStep = kNFastest ? kBox : T::kTileN;
        copy_box(a, a_map, filled, k, row);
#pragma unroll
        for (int n = 0; n < T::kTileN; n += kStep) {
            copy_box(b + n * kTileK * 2, b_map, filled, kNFastest ? column + n : k, kNFastest ? k : column + n);
        }
    }
    static __device__ __forceinline__ uint64_t a_start(SharedAddress at) { return descriptor_k_fastest(at); }
    static __device__ __forceinline__ uint64_t b_start(SharedAddress at) {
        return kNFastest ? descriptor_n_fastest(at, kBox * kTileK * 2) : descriptor_k_fastest(at);
    }
    // Bytes from a panel's start to its 16 k number `step`.
    static constexpr int a_offset(int step) { return step * kMmaK * 2; }
    static constexpr int b_offset(int step) { return step * (kNFastest ? kMmaK * kBox * 2 : kMmaK * 2); }
    static constexpr int kRowBytes = kTileK * 2;  // of A's panel
};

template <class T>
using Position = RingPosition<T::kStages>;

// The copies of a tile for k from first_k to end_k, by one thread.
template <class T, class Source>
__device__ __forceinline__ void produce(Ring<T::kStages>& ring, Position<T>& at, unsigned char* stages, const CUtensorMap* a_map,
                                        const CUtensorMap* b_map, int row, int column, int first_k, int end_k, int argument) {
    for (int k = first_k; k < end_k; k += kTileK, at.advance()) {
        ring.acquire(at, T::kStageBytes);
        unsigned char* panel = stages + at.stage * T::kStageBytes;
        Source::copy(panel, panel + T::kBytesA, a_map, b_map, ring.filled[at.stage], row, column, k, argument);
    }
}

// The sums of warp group `group`'s 64 rows of the tile.
template <class T, class Source>
__device__ __forceinline__ void consume(float (&sums)[T::kTileN / 2], Ring<T::kStages>& ring, Position<T>& at, unsigned char* stages, int group,
                                        int first_k, int end_k) {
    const int lane = threadIdx.x % 32;
    const uint64_t a_start = Source::a_start(shared_address(stages) + group * kGroupRows * Source::kRowBytes),
                   b_start = Source::b_start(shared_address(stages) + T::kBytesA);
    const auto release = [&](int stage) {
        if (lane == 0) ring.release(stage);
    };
#pragma unroll
    for (int j = 0; j < T::kTileN / 2; ++j) sums[j] = 0.0f;
    int previous = -1;
    for (int k = first_k; k < end_k; k += kTileK, at.advance()) {
        ring.wait(at);
        const unsigned offset = unsigned(at.stage * T::kStageBytes) >> 4;
        mma_fence();
#pragma unroll
        for (int step = 0; step < kTileK / kMmaK; ++step) {
            multiply_add<MmaType::kBf16, Source::kNFastest>(sums, a_start + offset + (Source::a_offset(step) >> 4),
                                                            b_start + offset + (Source::b_offset(step) >> 4));
        }
        mma_commit();
        mma_wait<1>();  // the previous stage has been read
        if (previous >= 0) release(previous);
        previous = at.stage;
    }
    mma_wait<0>();
    hold(sums);
    if (previous >= 0) release(previous);
}

// `C` is the product itself, or has a layer of fp32 sums for each slice. `argument` is for the source's copies.
template <class T, class Source, typename Out>
__global__ void __launch_bounds__(T::kThreads, 1)
    multiply(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, Out* C, const __grid_constant__ Shape shape,
             int argument) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int tiles_m = (shape.M + T::kTileM - 1) / T::kTileM, tiles_n = (shape.N + T::kTileN - 1) / T::kTileN;
    const int works = tiles_m * tiles_n * shape.slices;
    if (threadIdx.x == 0) {
        prefetch(&a_map);
        prefetch(&b_map);
        ring.init(T::kConsumers * 4);  // each warp
    }
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);  // known to be the same in a warp
    constexpr bool kMovesRegisters = T::kConsumers == 2 && T::kTileN == 256;
    Position<T> at;
    if (group == 0) {
        if constexpr (kMovesRegisters) give_up_registers<40>();
        for (int i = blockIdx.x; i < works && threadIdx.x == 0; i += gridDim.x) {
            const Work<T> w(i, tiles_m, tiles_n);
            const int first_k = w.slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K);
            produce<T, Source>(ring, at, stages, &a_map, &b_map, w.row, w.column, first_k, end_k, argument);
        }
    } else {
        if constexpr (kMovesRegisters) get_registers<232>();
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        for (int i = blockIdx.x; i < works; i += gridDim.x) {
            const Work<T> w(i, tiles_m, tiles_n);
            const int first_k = w.slice * shape.slice_k, end_k = min(first_k + shape.slice_k, shape.K);
            float sums[T::kTileN / 2];
            consume<T, Source>(sums, ring, at, stages, group - 1, first_k, end_k);
            store_rows(sums, C + w.slice * (shape.M * shape.pitch), w.row + (group - 1) * kGroupRows + warp * 16, w.column, shape, lane);
        }
    }
}

}  // namespace tile_product

}  // namespace msbench
