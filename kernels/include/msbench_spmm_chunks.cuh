// A X by tiles of X in shared memory (msbench_spmm_tiles.cuh) with slices of A out of bins (msbench_bin_slices.cuh), and the same for X of
// more rows than fit: in chunks of 2048, of which a block has one after the other for the same columns. The rows of A are rows of
// their own in each chunk, and their sums are added up in memory.
//
// Chunks are only for fp32, whose sums are Y itself. Additions are 16 bytes wide and wait for nothing. Each chunk costs a tile's way to shared
// memory, and an addition of 64 bytes a row. In bf16, with fp32 sums in the workspace, additions are as many bytes and products half of them:
// 2048 rows times 16384 columns, 335544 entries and K = 4096 took 433 us, and gathers 380 (H100, 2026-11-25; in fp32 504 and 713).
//
// Bound: that of msbench_spmm_tiles.cuh, X read once, and rows * K * 4 bytes of additions a chunk at 3.6 TB/s, which overlap.
#pragma once

#include "msbench_bin_slices.cuh"
#include "msbench_spmm_tiles.cuh"

namespace msbench {

constexpr int kChunkShift = 11, kChunkRows = 1 << kChunkShift;  // of X
constexpr int kChunkWindow = 64;

struct ChunkPlan {
    int chunks, pad, all;  // pad: rows of A in each, in whole windows
    ChunkPlan(int64_t rows, int64_t cols)
        : chunks(int(ceil_div(cols, kChunkRows))), pad(int(ceil_div(rows, kChunkWindow)) * kChunkWindow), all(chunks * pad) {}
};

// What a lane has of the rows of a tile of Y: one piece.
struct AddedSums {
    scalar_t* Y;  // this lane's piece in row 0
    int64_t K;
    int first, rows;  // the number of row 0 in this chunk, and rows from there on
    bool inside;
    float sum[kPiece];

    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = zero_here();
    }
    __device__ void store(int number) const {
        const int row = number - first;
        if (row >= rows || !inside) return;
        float* const to = reinterpret_cast<float*>(Y + row * K);
#ifdef __NVCC__
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(sum[0]), "f"(sum[1]), "f"(sum[2]), "f"(sum[3]) : "memory");
#else
        for (int k = 0; k < 4; ++k) atomicAdd(to + k, sum[k]);
#endif
    }
    __device__ void finish_wide(unsigned, int) const {}  // there are none
};

__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_chunks(const scalar_t* X, scalar_t* Y, const __grid_constant__ Slices a, const __grid_constant__ ChunkPlan plan,
                    int rows, int cols, int64_t K, int per_block) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int taken;
    const int tid = threadIdx.x, lane = tid % 32, piece = lane % kPieces;
    const int streams = plan.pad / kChunkWindow * kStreams;  // of a chunk
    char* const ring = shared + (kChunkRows + 2) * kRowBytes + tid / 32 * kRing * kChunkBytes;
    if (tid < 2 * kPieces) reinterpret_cast<uint4*>(shared + kChunkRows * kRowBytes)[tid] = make_uint4(0, 0, 0, 0);
    const auto stage = [&](int tile, int chunk) {
        const int first = chunk * kChunkRows;
        stage_tile(shared, X + first * K, min(cols - first, kChunkRows), K, tile);
    };
    const int first_tile = blockIdx.x * per_block;
    stage(first_tile, 0);
    cudaGridDependencySynchronize();  // X did not have to wait for the slices

    for (int tile = first_tile; tile < min(first_tile + per_block, a.tiles); ++tile) {
        const int64_t column = int64_t(tile) * kTileColumns + piece * kPiece;
        const bool inside = column < K;
        for (int row = tid / kPieces; row < rows; row += kTileThreads / kPieces) {
            if (inside) *reinterpret_cast<uint4*>(Y + row * K + column) = make_uint4(0, 0, 0, 0);
        }
        for (int chunk = 0; chunk < plan.chunks; ++chunk) {
            if (chunk > 0 || tile > first_tile) {
                __syncthreads();
                stage(tile, chunk);
            }
            if (tid == 0) taken = 0;
            wait_for_copies<0>();
            __syncthreads();
            AddedSums own = {Y + column, K, chunk * plan.pad, rows, inside, {}};
            const auto take = [&] { return lane == 0 ? atomicAdd(&taken, 1) : 0; };
            const auto head_of = [&](int number) {
                Stream head = {0, 0};
                if (number < streams) {
                    const int2 raw = __ldcg(reinterpret_cast<const int2*>(a.streams) + chunk * streams + number);
                    head = {raw.x, raw.y};
                }
                return head;
            };
            int stream = __shfl_sync(~0u, take(), 0);
            Stream head = head_of(stream);
            while (stream < streams) {
                const int following = __shfl_sync(~0u, take(), 0);
                const Stream next = head_of(following);
                multiply_stream<false>(a, head, shared + piece * 16, ring, own);
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
    const EntryBins bins(at, plan.all, A.total, 6, kChunkShift, plan.pad);
    cudaError_t error = bin_entries(A, bins, stream);
    if (error == cudaSuccess) error = slice_by_bins<true>(bins, slices, spill, plan.all, kChunkRows, A.total, stream);
    if (error != cudaSuccess) return error;
    const int shared = (kChunkRows + 2) * kRowBytes + kTileWarps * kRing * kChunkBytes;
    return Launch(unsigned(ceil_div(tiles.tiles, tiles.per_block)), kTileThreads, stream).shared(shared).early()(
        multiply_chunks, X, Y, slices, plan, A.rows, A.cols, K, tiles.per_block);
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
    const int shared = ((A.cols + 1) / 2 * 2 + 2) * kRowBytes + kTileWarps * kRing * kChunkBytes;
    return Launch(plan.blocks(), kTileThreads, stream).shared(shared).early()(multiply_tiles, X, Y, slices, A.cols, K, plan);
}

}  // namespace msbench
