// A X with a tile of X in shared memory: 64 bytes of each row, all rows of X, while all of A streams past (msbench_spmm_slices.cuh).
//
// Rows of 64 bytes and not of 128, so that *all* of 2048 rows fit: with 128 bytes an eighth of the rows had to come from L2. Four
// lanes have a row of a slice, and a warp a stream of slices, whose entries come through a ring that cp.async fills. There are no
// predicates but the end of a slice. A block has one or more tiles in turn; where tiles are few, several blocks share each.
//
// Bound: X is read from shared memory nnz * K * size bytes at 128 B a clock and multiprocessor: half of the time that a
// prototype took at 2¹⁸ rows in fp32 (5.2 ms, H200). Entries, 8 bytes for 64 of X, and bank conflicts should be the rest.
#pragma once

#include "msbench_launch.cuh"
#include "msbench_spmm_slices.cuh"

namespace msbench {

constexpr int kTileThreads = 768, kTileWarps = kTileThreads / 32;
constexpr int kRowBytes = 64;  // of a row of X in a tile
constexpr int kTileColumns = kRowBytes / sizeof(scalar_t), kPieces = kRowBytes / 16;
constexpr int kMostTileRows = 2496;
constexpr int kRing = 4, kChunkBytes = 512;  // chunks of entries that a warp has under way
constexpr int kPairBytes = 16 * kHeight, kChunkPairs = kChunkBytes / kPairBytes;

// Blocks that have finished. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned tile_blocks_done;

struct TilePlan {
    int tiles, per_block, sharers;  // blocks that share a tile
    TilePlan(int64_t K, int multiprocessors)
        : tiles(int(ceil_div(K, kTileColumns))),
          per_block(int(ceil_div(tiles, multiprocessors))),
          sharers(std::max(1, multiprocessors / tiles)) {}
    unsigned blocks() const { return unsigned(ceil_div(tiles, per_block) * sharers); }
};

__device__ inline unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

// A load that stays where it is written, ahead of the next branch, at an address of 32 bits whose overflow drops marks.
__device__ inline uint4 load_shared(const char* base, unsigned offset) {
#ifdef __NVCC__
    uint4 x;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(shared_address(base) + offset));
    return x;
#else
    return *reinterpret_cast<const uint4*>(base + offset);
#endif
}

// A zero that is made here, and not ahead of the branch for all who don't need it.
__device__ inline float zero_here() {
#ifdef __NVCC__
    float zero;
    asm volatile("mov.f32 %0, 0f00000000;" : "=f"(zero));
    return zero;
#else
    return 0.0f;
#endif
}

__device__ inline void copy_async(const void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

__device__ inline void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kLeft>
__device__ inline void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Starts the copy of a tile of X.
__device__ inline void stage_tile(char* to, const scalar_t* X, int rows, int64_t K, int tile) {
    for (int i = threadIdx.x; i < rows * kPieces; i += kTileThreads) {
        const int64_t column = int64_t(tile) * kTileColumns + i % kPieces * kPiece;
        if (column < K) copy_async(to + i * 16, X + i / kPieces * K + column);
        else *reinterpret_cast<uint4*>(to + i * 16) = make_uint4(0, 0, 0, 0);
    }
    commit_copies();
}

// What a lane has of the rows of a tile of Y: one piece.
struct TileSums {
    const Slices& a;
    scalar_t* Y;
    int64_t K, column;
    int tile;
    float sum[kPiece];

    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = zero_here();
    }
    __device__ void store(int row) const {
        if (column < K) *reinterpret_cast<Packet<scalar_t>*>(Y + row * K + column) = rounded(sum);
    }
    // The end of a wide slice: its slots have parts of one row, or of a part of a long row.
    __device__ void finish_wide(unsigned mark, int name) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < kPiece; ++k) {
#pragma unroll
            for (int distance = kPieces; distance < 32; distance *= 2) sum[k] += __shfl_xor_sync(~0u, sum[k], distance);
        }
        if (!(mark & kShared)) {
            if (lane < kPieces) store(name);
            return;
        }
        float* total = a.sums + name * K + column;
        if (lane < kPieces && column < K) {
#pragma unroll
            for (int k = 0; k < kPiece; ++k) atomicAdd(total + k, sum[k]);
        }
        __threadfence();
        __syncwarp();
        const LongRow row = a.long_rows[name];
        int is_last = 0;
        if (lane == 0) is_last = atomicAdd(a.arrived + name * int64_t(a.tiles) + tile, 1u) + 1 == unsigned(row.slices);
        __threadfence();
        if (!__shfl_sync(~0u, is_last, 0) || lane >= kPieces || column >= K) return;
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = __ldcg(total + k);
        store(row.row);
    }
};

// Multiplies a stream of slices by the tile, or one of a wide slice, whose end is looked at behind the loop, which then
// stays short.
template <bool kWideStream, typename Sums>
__device__ __forceinline__ void multiply_stream(const Slices& a, Stream head, const char* X, char* ring, Sums& sums) {
    const int lane = threadIdx.x % 32;
    const char* entries = reinterpret_cast<const char*>(a.entries + head.first) + lane * 16;
    const auto issue = [&](int chunk) {
        if (chunk * kChunkPairs < head.pairs)
            copy_async(ring + chunk % kRing * kChunkBytes + lane * 16, entries + chunk * kChunkBytes);
        commit_copies();
    };
    const auto row_of_X = [&](unsigned row) { return load_shared(X, row * kRowBytes); };  // marks are shifted out
    unsigned end_mark = 0;
    int name = -1;
    // The second step of a pair may be the last one of a slice.
    const auto add_or_finish = [&](unsigned mark, unsigned value, uint4 x) {
        if (int(mark) >= 0) {
            add_piece(x, __uint_as_float(value), sums.sum);
        } else if constexpr (kWideStream) {
            if (int(value) >= 0) end_mark = mark, name = int(value);
        } else {
            if (int(value) >= 0) sums.store(int(value));
            sums.clear();
        }
    };
    __syncwarp();
#pragma unroll
    for (int chunk = 0; chunk < kRing - 1; ++chunk) issue(chunk);
    sums.clear();
#pragma unroll 1
    for (int chunk = 0; chunk * kChunkPairs < head.pairs; ++chunk) {
        wait_for_copies<kRing - 2>();
        __syncwarp();
        issue(chunk + kRing - 1);
        const char* at = ring + chunk % kRing * kChunkBytes + lane / kPieces * 16;
#pragma unroll
        for (int pair = 0; pair < kChunkPairs; pair += 2) {
            if (chunk * kChunkPairs + pair >= head.pairs) break;
            const uint4 first = load_shared(at, pair * kPairBytes), second = load_shared(at, (pair + 1) * kPairBytes);
            const uint4 x0 = row_of_X(first.x), x1 = row_of_X(first.z), x2 = row_of_X(second.x), x3 = row_of_X(second.z);
            add_piece(x0, __uint_as_float(first.y), sums.sum);
            add_or_finish(first.z, first.w, x1);
            add_piece(x2, __uint_as_float(second.y), sums.sum);
            add_or_finish(second.z, second.w, x3);
        }
    }
    if constexpr (kWideStream) sums.finish_wide(end_mark, name);
}

__global__ void __launch_bounds__(kTileThreads, 1)
    multiply_tiles(const scalar_t* X, scalar_t* Y, const __grid_constant__ Slices a, int rows_of_X, int64_t K,
                   const __grid_constant__ TilePlan plan) {
    extern __shared__ __align__(128) char shared[];
    const int zeros = (rows_of_X + 1) / 2 * 2, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int piece = lane % kPieces;
    char* ring = shared + (zeros + 2) * kRowBytes + warp * kRing * kChunkBytes;
    const char* own = shared + piece * 16;
    const int first_tile = int(blockIdx.x) / plan.sharers * plan.per_block;
    stage_tile(shared, X, rows_of_X, K, first_tile);
    if (threadIdx.x < 2 * kPieces) reinterpret_cast<uint4*>(shared + zeros * kRowBytes)[threadIdx.x] = make_uint4(0, 0, 0, 0);
    cudaGridDependencySynchronize();  // X did not have to wait for the slices
    const int wide = __ldcg(&wide_in_use), streams = a.windows * kStreams + wide;

    for (int tile = first_tile; tile < min(first_tile + plan.per_block, plan.tiles); ++tile) {
        if (tile > first_tile) {
            __syncthreads();
            stage_tile(shared, X, rows_of_X, K, tile);
        }
        wait_for_copies<0>();
        __syncthreads();
        TileSums sums = {a, Y, K, int64_t(tile) * kTileColumns + piece * kPiece, tile, {}};
        // Wide streams first: they are the longest.
        const auto take = [&] { return lane == 0 ? atomicAdd(a.taken + tile, 1) : 0; };
        const auto head_of = [&](int number) {
            Stream head = {0, 0};
            if (number < streams) {
                const int2 raw = __ldcg(reinterpret_cast<const int2*>(a.streams) + (streams - 1 - number));
                head = {raw.x, raw.y};
            }
            return head;
        };
        int stream = __shfl_sync(~0u, take(), 0), taken = take();
        Stream head = head_of(stream);
        while (stream < streams) {
            const int following = __shfl_sync(~0u, taken, 0);
            taken = take();
            const Stream next = head_of(following);
            if (stream < wide) multiply_stream<true>(a, head, own, ring, sums);
            else multiply_stream<false>(a, head, own, ring, sums);
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

// Two launches. `workspace`: tiles_bytes(...). `first`: no kernel comes before in the launcher. X and Y are aligned to 16
// bytes, and K is a multiple of kPiece.
template <typename Rows>
cudaError_t multiply_by_tiles(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, bool first,
                              cudaStream_t stream) {
    const TilePlan plan(K, kMultiprocessors);
    Slices slices;
    place_slices(workspace, A.rows, A.total, K, plan.tiles, &slices);
    Launch slice(slices.windows, kSliceThreads, stream);
    if (!first) slice.early();
    const cudaError_t error = slice(slice_rows<Rows>, A, slices);
    if (error != cudaSuccess) return error;
    const int shared = ((A.cols + 1) / 2 * 2 + 2) * kRowBytes + kTileWarps * kRing * kChunkBytes;
    return Launch(plan.blocks(), kTileThreads, stream).shared(shared).early()(multiply_tiles, X, Y, slices, A.cols, K, plan);
}

}  // namespace msbench
