// A X with a tile of X in shared memory: 64 bytes of each row, all rows of X, while all of A streams past (msbench_slice_product.cuh).
//
// Rows of 64 bytes and not of 128, so that *all* of 2048 rows fit: with 128 bytes an eighth of the rows had to come from L2. Where all rows fit so
// and there would be two tiles a block, a tile has 128 bytes of each, and the entries are read once. A warp has a stream of slices, a block one or
// more tiles in turn; where tiles are few, several blocks share each.
//
// Bound: X is read from shared memory nnz * K * size bytes at 128 B a clock and multiprocessor, 0.68 ms for 65536 rows below; entries, padding and
// bank conflicts come to a third of that.
//
// Measured (H200, 2026-11-26, own program, us; 1 % of 2048 columns, K = 4096, for 1024, 4096, 16384 and 65536 rows): fp32 50, 125, 408, 1533 with
// stores of Y by 4 bytes, neighbouring tiles in the same block, and a step at the end of each slice; 47, 109, 328, 1211 without. bf16 33, 72, 226, 820
// and 33, 67, 196, 690. Of that stores are 3, 14, 58, 236 (bf16 1, 3, 17, 70), the order of tiles 4, 5, 8, 5, a ring of two large chunks
// instead of four small ones 0, 2, 11, 44 (0, 2, 10, 42). 1024 columns and 2048 rows: 52, and 36 to 40 with 128 bytes.
// With two lanes a row of a slice and 768 threads (H100, 2026-11-26) fp32 50, 114, 315, 1160, bf16 34.8, 67.5, 181, 636. 512 threads: fp32 49, 113,
// 314, 1156, and 49, 113, 308, 1135 with chunks twice as long, but 38 in place of 37 where rows are of 128 bytes (2048 x 1024), and 1 to 5 % more in
// spmm_chunks; bf16 34.4, 71, 190, 685, and 256 rows 25.6, not 26.6. 1024 threads: fp32 50.5, 116, 315, 1153; bf16 35.7, 67.3, 179, 625.
// Lost: slices of eight rows or 32, but for few rows, which was the slicing (msbench_slice_layout.cuh); entries with columns of 16 bits, 1181 at the
// large end but 1.5 us more at the small one; in bf16 tensor cores, two entries of eight rows at a time behind ldmatrix, 32, 67, 199, 714; tiles by
// the copy engine, by 0 to 2 us; asking for the next tile while one is multiplied, by 2; asking for X in the launch that slices, by 1 to 2; shared
// memory and registers set aside so that blocks start beside those that slice, by 1; in bf16 registers for 768 threads, by 1 to 2 %.
#pragma once

#include <type_traits>

#include "msbench_launch.cuh"
#include "msbench_slice_product.cuh"
#include "msbench_spmm_slices.cuh"

namespace msbench {

constexpr int kMostTileRows = 2496, kMostLongTileRows = 1424;  // rows of a tile; of 128 bytes each

// Threads of a block, which have a tile in common, and units of entries that each of a warp's two chunks has. kBound: threads that registers
// are to suffice for: with 64 of them each, bf16 is 1 to 2 % faster than with 80.
template <int kBlockThreads, int kChunkUnits>
struct TileShape {
    static constexpr int kThreads = kBlockThreads, kUnits = kChunkUnits;
    static constexpr int kBound = sizeof(scalar_t) == 2 && kThreads > 512 ? 1024 : kThreads;
};

// Blocks that have finished. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned tile_blocks_done;

struct TilePlan {
    int tiles, per_block, sharers;  // blocks that share a tile
    TilePlan(int64_t K, int multiprocessors, int halves = 1)
        : tiles(int(ceil_div(K, kTileColumns * halves))),
          per_block(int(ceil_div(tiles, multiprocessors))),
          sharers(std::max(1, multiprocessors / tiles)) {}
    unsigned blocks() const { return unsigned(ceil_div(tiles, per_block) * sharers); }
};

// Starts the copy of a tile of X, of which other blocks want the neighbouring columns at the same time.
template <typename Shape, int kHalves = 1>
__device__ inline void stage_tile(char* to, const scalar_t* X, int rows, int64_t K, int tile) {
    constexpr int kAll = kHalves * kPieces;
    for (int i = threadIdx.x; i < rows * kAll; i += Shape::kThreads) {
        const int64_t column = (int64_t(tile) * kAll + i % kAll) * kPiece;
        if (column < K) copy_async_ahead(to + i * 16, X + i / kAll * K + column);
        else *reinterpret_cast<uint4*>(to + i * 16) = make_uint4(0, 0, 0, 0);
    }
    commit_copies();
}

// Where a warp has its ring, behind a tile of `rows`, a row of zeros for both kinds, and other warps' rings.
template <typename Shape, int kHalves>
__device__ __forceinline__ char* ring_of_warp(char* tile, int rows) {
    return tile + (rows + 2) * kHalves * kRowBytes + threadIdx.x / 32 * ring_bytes(Shape::kUnits);
}

template <typename Shape>
constexpr int tile_shared_bytes(int rows, int halves = 1) {
    return (rows + 2) * halves * kRowBytes + Shape::kThreads / 32 * ring_bytes(Shape::kUnits);
}

__device__ inline Stream stream_at(const Slices& a, int number) {
    const int4 raw = __ldcg(reinterpret_cast<const int4*>(a.streams) + number);
    return {raw.x, raw.y, raw.z, raw.w};
}

template <typename Shape, int kHalves>
__global__ void __launch_bounds__(Shape::kBound, 1)
    multiply_tiles(const scalar_t* X, scalar_t* Y, const __grid_constant__ Slices a, int rows_of_X, int64_t K,
                   const __grid_constant__ TilePlan plan) {
    extern __shared__ __align__(128) char shared[];
    const int rows = (rows_of_X + 1) / 2 * 2, lane = threadIdx.x % 32;
    char* const ring = ring_of_warp<Shape, kHalves>(shared, rows);
    // Neighbours have neighbouring tiles at the same time, and whole lines of X and Y between them.
    const int first_tile = blockIdx.x / plan.sharers, stride = gridDim.x / plan.sharers;
    stage_tile<Shape, kHalves>(shared, X, rows_of_X, K, first_tile);
    if (threadIdx.x < 2 * kHalves * kPieces)
        reinterpret_cast<uint4*>(shared + rows * kHalves * kRowBytes)[threadIdx.x] = make_uint4(0, 0, 0, 0);
    cudaGridDependencySynchronize();  // X did not have to wait for the slices
    const int wide = __ldcg(&wide_in_use), streams = a.windows * kStreams + wide;

    for (int tile = first_tile; tile < plan.tiles; tile += stride) {
        if (tile > first_tile) {
            __syncthreads();
            stage_tile<Shape, kHalves>(shared, X, rows_of_X, K, tile);
        }
        wait_for_copies<0>();
        __syncthreads();
        // Wide streams first: they are the longest.
        const auto take = [&] { return lane == 0 ? atomicAdd(a.taken + tile, 1) : 0; };
        const auto head_of = [&](int number) { return number < streams ? stream_at(a, streams - 1 - number) : Stream{}; };
        int stream = __shfl_sync(~0u, take(), 0), taken = take();
        Stream head = head_of(stream);
        while (stream < streams) {
            const int following = __shfl_sync(~0u, taken, 0);
            taken = take();
            const Stream next = head_of(following);
            const auto multiply = [&](auto is_wide) {
                const OwnPieces<kHalves> pieces(is_wide);
                const char* own[TileSums<kHalves>::kOwn];
#pragma unroll
                for (int i = 0; i < TileSums<kHalves>::kOwn; ++i) own[i] = shared + pieces[i] * 16;
                TileSums<kHalves> sums(a, Y, K, tile, pieces);
                multiply_stream<decltype(is_wide)::value, kHalves * kRowBytes, Shape::kUnits>(a, head, own, ring, sums);
            };
            if (stream < wide) multiply(std::true_type{});
            else multiply(std::false_type{});
            stream = following;
            head = next;
        }
    }

    __syncthreads();
    if (threadIdx.x == 0 && atomicInc(&tile_blocks_done, gridDim.x - 1) == gridDim.x - 1) wide_in_use = long_in_use = 0;
}

constexpr int kMultiprocessors = 132;  // which plans and the workspace are made for
constexpr int64_t kLeastTileWork = 1 << 24, kLeastTileColumns = 256;

// Whether entries are many enough to pay for tiles, and X fits.
inline bool worth_tiles(int64_t cols, int64_t total, int64_t K) {
    return cols <= kMostTileRows && K >= kLeastTileColumns && total * K >= kLeastTileWork;
}

inline size_t tiles_bytes(int64_t rows, int64_t total, int64_t K) {
    return place_slices(nullptr, rows, total, K, TilePlan(K, kMultiprocessors).tiles, nullptr);
}

template <typename Shape, int kHalves = 1>
cudaError_t launch_tiles(const scalar_t* X, scalar_t* Y, const Slices& slices, int cols, int64_t K, cudaStream_t stream) {
    constexpr int kMost = kHalves == 1 ? kMostTileRows : kMostLongTileRows;
    static_assert(tile_shared_bytes<Shape>(kMost, kHalves) <= 227 * 1024, "shared memory of a block");
    const TilePlan plan(K, kMultiprocessors, kHalves);
    return Launch(plan.blocks(), Shape::kThreads, stream).shared(tile_shared_bytes<Shape>((cols + 1) / 2 * 2, kHalves)).early()(
        multiply_tiles<Shape, kHalves>, X, Y, slices, cols, K, plan);
}

// The launch behind the slices, in which tiles are counted by 64 bytes. Few streams are for few warps; in fp32 so are many, whose
// warps have longer chunks in return. By the type and not by MSBENCH_WITHOUT_BF16, which a source that uses bf16 besides goes without.
template <typename T>
cudaError_t multiply_sliced(const T* X, T* Y, const Slices& slices, int cols, int64_t K, cudaStream_t stream) {
    if constexpr (std::is_same_v<T, float>) {
        const bool twice = TilePlan(K, kMultiprocessors).per_block > 1;  // all entries would be read
        if (twice && cols <= kMostLongTileRows) return launch_tiles<TileShape<768, 2>, 2>(X, Y, slices, cols, K, stream);
        return launch_tiles<TileShape<512, 4>>(X, Y, slices, cols, K, stream);
    } else {
        const int64_t rows = int64_t(slices.windows) * slices.window;
        if (rows <= 1024) return launch_tiles<TileShape<512, 2>>(X, Y, slices, cols, K, stream);
        if (rows < 8192) return launch_tiles<TileShape<768, 2>>(X, Y, slices, cols, K, stream);
        return launch_tiles<TileShape<1024, 2>>(X, Y, slices, cols, K, stream);
    }
}

// Two launches. `workspace`: tiles_bytes(...). `first`: no kernel comes before in the launcher. X and Y are aligned to 16
// bytes, and K is a multiple of kPiece.
template <typename Rows>
cudaError_t multiply_by_tiles(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, bool first,
                              cudaStream_t stream) {
    Slices slices;
    place_slices(workspace, A.rows, A.total, K, TilePlan(K, kMultiprocessors).tiles, &slices);
    Launch slice(slices.windows, kSliceThreads, stream);
    if (!first) slice.early();
    const cudaError_t error = slice(slice_rows<Rows>, A, slices);
    if (error != cudaSuccess) return error;
    return multiply_sliced(X, Y, slices, A.cols, K, stream);
}

}  // namespace msbench
