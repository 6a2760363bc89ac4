// A X by tiles of X in shared memory (msbench_spmm_tiles.cuh) with slices of A out of bins (msbench_bin_slices.cuh), and the same for X of
// more rows than fit: in chunks, of which a block has one after the other for the same columns. The rows of A are rows of their own in each
// chunk, and their sums are added up in memory.
//
// Chunks are only for fp32, whose sums are Y itself. Additions are 16 bytes wide and wait for nothing. Each chunk costs a tile's way to shared
// memory, and an addition of 64 bytes a row. In bf16, with fp32 sums in the workspace, additions are as many bytes and products half of them:
// 2048 rows times 8192 and 16384 columns, 1 % of entries and K = 4096 took 192 and 330 us, gathers behind it 151 and 293 (H200, 2026-11-26; in
// fp32 257 and 473, and gathers 279 and 557).
//
// Bound: that of msbench_spmm_tiles.cuh, X read once, and rows * K * 4 bytes of additions a chunk at 3.6 TB/s, which overlap.
#pragma once

#include "msbench_added_sums.cuh"
#include "msbench_bin_slices.cuh"
#include "msbench_spmm_tiles.cuh"

namespace msbench {

constexpr int kMostChunkRows = 2752;  // of X: so many that 8192 and 16384 are three and six chunks
constexpr int kChunkWindow = 64;

struct ChunkPlan {
    int chunks, size, pad, all;  // size: rows of X in each; pad: rows of A, in whole windows
    ChunkPlan(int64_t rows, int64_t cols)
        : chunks(int(ceil_div(cols, kMostChunkRows))),
          size(int(ceil_div(cols, chunks) + 1) / 2 * 2),
          pad(int(ceil_div(rows, kChunkWindow)) * kChunkWindow),
          all(chunks * pad) {}
};

using ChunkShape = TileShape<768, 2>;

__global__ void __launch_bounds__(ChunkShape::kBound, 1)
    multiply_chunks(const scalar_t* X, scalar_t* Y, const __grid_constant__ Slices a, const __grid_constant__ ChunkPlan plan,
                    int rows, int cols, int64_t K) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int taken;
    const int tid = threadIdx.x, lane = tid % 32, piece = lane % kPieces;
    const int streams = plan.pad / kChunkWindow * kStreams;  // of a chunk
    char* const ring = ring_of_warp<ChunkShape, 1>(shared, plan.size);
    if (tid < 2 * kPieces) reinterpret_cast<uint4*>(shared + plan.size * kRowBytes)[tid] = make_uint4(0, 0, 0, 0);
    const auto stage = [&](int tile, int chunk) {
        const int first = chunk * plan.size;
        stage_tile<ChunkShape>(shared, X + first * K, min(cols - first, plan.size), K, tile);
    };
    stage(blockIdx.x, 0);
    cudaGridDependencySynchronize();  // X did not have to wait for the slices

    for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
        const int64_t column = int64_t(tile) * kTileColumns + piece * kPiece;
        const bool inside = column < K;
        const float zeros[kPiece] = {};
        for (int row = tid / kPieces; row < rows && inside; row += ChunkShape::kThreads / kPieces) store_piece(Y + row * K + column, zeros);
        for (int chunk = 0; chunk < plan.chunks; ++chunk) {
            if (chunk > 0 || tile > int(blockIdx.x)) {
                __syncthreads();
                stage(tile, chunk);
            }
            if (tid == 0) taken = 0;
            wait_for_copies<0>();
            __syncthreads();
            const auto take = [&] { return lane == 0 ? atomicAdd(&taken, 1) : 0; };
            const auto head_of = [&](int number) { return number < streams ? stream_at(a, chunk * streams + number) : Stream{}; };
            int stream = __shfl_sync(~0u, take(), 0);
            Stream head = head_of(stream);
            while (stream < streams) {
                const int following = __shfl_sync(~0u, take(), 0);
                const Stream next = head_of(following);
                const OwnPieces<1> pieces(false);
                const char* own[AddedSums::kOwn];
#pragma unroll
                for (int i = 0; i < AddedSums::kOwn; ++i) own[i] = shared + pieces[i] * 16;
                AddedSums added{reinterpret_cast<float*>(Y), K, int64_t(tile) * kTileColumns, chunk * plan.pad, rows, pieces, {}};
                multiply_stream<false, kRowBytes, ChunkShape::kUnits>(a, head, own, ring, added);
                stream = following;
                head = next;
            }
        }
    }
}

// Whether tiles are many enough for a multiprocessor to have one alone, rows long enough in each chunk, and windows fit.
inline bool worth_chunks(int64_t rows, int64_t cols, int64_t total, int64_t K) {
    constexpr int64_t kLeastMeanRow = 12;
    const ChunkPlan plan(rows, cols);
    if (!std::is_same_v<scalar_t, float> || cols <= kMostTileRows || ceil_div(K, kTileColumns) <= kMultiprocessors / 2) return false;
    return total >= plan.all * kLeastMeanRow && windows_fit(plan.all, total, kChunkWindow);
}

inline size_t chunks_bytes(int64_t rows, int64_t cols, int64_t total, int64_t K) {
    const ChunkPlan plan(rows, cols);
    const int64_t tiles = TilePlan(K, kMultiprocessors).tiles;
    return place_slices(nullptr, plan.all, total, K, int(tiles), nullptr, kChunkWindow) + total * sizeof(uint2) + 256 +
           EntryBins::bytes(plan.all, total, 6);
}

// Three launches. `workspace`: chunks_bytes(...). X and Y are aligned to 16 bytes, and K is a multiple of kPiece.
template <typename Matrix>
cudaError_t multiply_by_chunks(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const ChunkPlan plan(A.rows, A.cols);
    const TilePlan tiles(K, kMultiprocessors);
    Slices slices;
    char* at = static_cast<char*>(workspace) + place_slices(workspace, plan.all, A.total, K, tiles.tiles, &slices, kChunkWindow);
    uint2* const spill = reinterpret_cast<uint2*>(at);
    at += (A.total * sizeof(uint2) + 255) / 256 * 256;
    const EntryBins bins(at, plan.all, A.total, 6, plan.size, plan.pad);
    cudaError_t error = bin_entries(A, bins, stream);
    if (error == cudaSuccess) error = slice_by_bins<true>(bins, slices, spill, plan.all, plan.size, A.total, stream);
    if (error != cudaSuccess) return error;
    Launch launch(unsigned(ceil_div(tiles.tiles, tiles.per_block)), ChunkShape::kThreads, stream);
    return launch.shared(tile_shared_bytes<ChunkShape>(plan.size)).early()(multiply_chunks, X, Y, slices, plan, A.rows, A.cols, K);
}

// X of rows that fit at once: as spmm_csr has it, with slices out of bins.
inline int tile_window(int64_t rows, int64_t total) {
    return rows >= 8192 && windows_fit(rows, total, kSliceThreads) ? kSliceThreads : kChunkWindow;
}

inline size_t bin_tiles_bytes(int64_t rows, int64_t total, int64_t K) {
    const int window = tile_window(rows, total);
    return place_slices(nullptr, rows, total, K, TilePlan(K, kMultiprocessors).tiles, nullptr, window) + total * sizeof(uint2) + 256 +
           EntryBins::bytes(rows, total, window == kChunkWindow ? 6 : 8);
}

template <typename Matrix>
cudaError_t multiply_by_bin_tiles(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const TilePlan plan(K, kMultiprocessors);
    Slices slices;
    const int window = tile_window(A.rows, A.total);
    char* const at = static_cast<char*>(workspace) + place_slices(workspace, A.rows, A.total, K, plan.tiles, &slices, window);
    const EntryBins bins(at + (A.total * sizeof(uint2) + 255) / 256 * 256, A.rows, A.total, window == kChunkWindow ? 6 : 8);
    cudaError_t error = bin_entries(A, bins, stream);
    if (error == cudaSuccess) error = slice_by_bins<false>(bins, slices, reinterpret_cast<uint2*>(at), A.rows, A.cols, A.total, stream);
    if (error != cudaSuccess) return error;
    return multiply_sliced(X, Y, slices, A.cols, K, stream);
}

}  // namespace msbench
