// A X for matrices of few entries in COO or CSC, in one cooperative launch: products go straight to fp32 sums in L2, which the
// grid has cleared.
//
// The sums are Y itself in fp32, and lie in the workspace in bf16, where they are rounded behind a second grid barrier. A block
// loads a chunk of at most 256 entries while the sums are cleared, and orders it by row. A warp walks through a part of
// the chunk with a column of X a lane, and adds to a sum in memory only where the row changes: so a full row costs a few additions
// a block and column, not one for each entry, and however long rows are, all blocks have as many entries.
//
// Ahead of the barrier X is on its way to L2, and so are the ends of columns, if they are few, on theirs to registers: CSC took 12.7 us
// without the two and 11.9 with them, in bf16 14.3 and 13.8 (H100, 2026-11-26; 15055 entries times 77).
//
// Bound: a launch, a grid barrier behind the entries, one trip to X, and the additions. Those of a warp go to neighbouring columns
// and are done by sectors, so that vectors would gain nothing in L2: naive.cu of spmm_csc makes 1.4 * 10⁹ of them in 1.5 ms (H200),
// 3.6 TB/s, the rate measured for `red.v4`.
#pragma once

#include "msbench_groups.cuh"

#include <climits>
#include <type_traits>

#include "msbench_find_line.cuh"
#include "msbench_launch.cuh"
#include "msbench_pack_rows.cuh"

namespace msbench {

constexpr int kDirectThreads = 1024, kDirectWarps = kDirectThreads / 32;
constexpr int kMostChunk = 256, kLeastChunk = 16;  // entries; all pairs of a chunk are compared
constexpr int kLeastPart = 4;                      // entries of a chunk that are worth a warp of their own

// An entry of a chunk in order, as one load from shared memory.
struct alignas(16) DirectEntry {
    int row, column;
    float value;
};

// By a warp: entries [begin, end) in order, times this lane's column of X.
__device__ inline void add_part(const DirectEntry* entries, int begin, int end, const scalar_t* X, float* sums, int64_t column,
                                int64_t K) {
    constexpr int kFlight = 8;  // rows of X under way
    const bool inside = column < K;
    int row = entries[begin].row;
    float sum = 0;
    for (int e = begin; e < end; e += kFlight) {
        scalar_t x[kFlight];
#pragma unroll
        for (int u = 0; u < kFlight; ++u) {
            if (e + u < end && inside) x[u] = __ldg(X + entries[e + u].column * K + column);
        }
#pragma unroll
        for (int u = 0; u < kFlight; ++u) {
            if (e + u >= end || !inside) continue;
            const DirectEntry entry = entries[e + u];
            if (entry.row != row) {
                atomicAdd(sums + row * K + column, sum);
                row = entry.row;
                sum = 0;
            }
            sum = fmaf(entry.value, to_float(x[u]), sum);
        }
    }
    if (inside) atomicAdd(sums + row * K + column, sum);
}

// By all blocks of a cooperative grid. `chunk`: entries that a block takes at a time.
template <typename Matrix>
__device__ __noinline__ void add_by_grid(const Matrix& A, const scalar_t* __restrict__ X, scalar_t* Y, float* sums, int64_t K, int chunk) {
    constexpr bool kCsc = std::is_same_v<Matrix, CscMatrix>;
    __shared__ int ends[kCsc ? kDirectThreads : 1];
    __shared__ alignas(16) unsigned keys[kMostChunk];
    __shared__ DirectEntry entries[kMostChunk];
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const int64_t size = A.rows * K, stride = int64_t(gridDim.x) * kDirectThreads, first = int64_t(blockIdx.x) * kDirectThreads + tid;

    // Columns that are as few as threads are looked for among ends that are loaded once, ahead of the barrier.
    const bool few = kCsc && A.cols <= kDirectThreads;
    DirectEntry own;
    int own_end = INT_MAX;
    FindLine<kDirectThreads> find(1, 0);
    bool before = false;
    // Starts the loads of a chunk, of which a thread has an entry, and of CSC also the search for its first column.
    const auto start = [&](int begin) {
        const int at = begin + tid;
        if (tid < chunk && at < A.total) {
            own.row = load_once(A.row_indices + at);
            own.value = to_float(load_once(A.values + at));
            if constexpr (!kCsc) own.column = load_once(A.col_indices + at);
        }
        if constexpr (kCsc) {
            if (few) return;
            find = FindLine<kDirectThreads>(A.cols, begin);
            before = find.probe(A.offsets);
        }
    };
    if constexpr (kCsc) {
        if (few && tid < A.cols) own_end = A.offsets[tid + 1];
    }
    int begin = blockIdx.x * chunk;
    if (begin < A.total) start(begin);
    // X on its way to L2, a sector a thread.
    const int64_t sector = first * 32;
    if (sector < A.cols * K * int64_t(sizeof(scalar_t)))
        asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(X) + sector));
    for (int64_t i = first; i < size; i += stride) sums[i] = 0;
    cooperative_groups::this_grid().sync();

    while (begin < A.total) {
        const int count = min(chunk, A.total - begin);
        if constexpr (kCsc) {
            const auto search = [&] {
                find.narrow(__syncthreads_count(before));
                return LinesOfTile<kDirectThreads>(find, A.offsets, A.cols, begin + count, ends);
            };
            const LinesOfTile<kDirectThreads> columns = few ? LinesOfTile<kDirectThreads>(own_end, begin, begin + count, ends) : search();
            if (tid < count) own.column = columns(begin + tid);
        }
        // A place is the number of smaller keys. Rows are below 2¹⁸, so that row and number fit into one key.
        const unsigned key = tid < count ? unsigned(own.row) * kMostChunk + tid : ~0u;
        if (tid < kMostChunk) keys[tid] = key;
        __syncthreads();
        if (tid < count) {
            int place = 0;
            for (int i = 0; i < count; i += 4) {
                const uint4 other = *reinterpret_cast<const uint4*>(keys + i);
                place += (other.x < key) + (other.y < key) + (other.z < key) + (other.w < key);
            }
            entries[place] = own;
        }
        __syncthreads();
        const int blocks = int(ceil_div(K, 32));  // of columns
        const int parts = max(1, min(kDirectWarps / blocks, count / kLeastPart));
        for (int i = warp; i < parts * blocks; i += kDirectWarps) {
            const int part = i / blocks, from = count * part / parts, to = count * (part + 1) / parts;
            add_part(entries, from, to, X, sums, int64_t(i % blocks) * 32 + lane, K);
        }
        begin += gridDim.x * chunk;
        if (begin < A.total) start(begin);
        __syncthreads();  // entries may still be read
    }

    if constexpr (!std::is_same_v<scalar_t, float>) {
        cooperative_groups::this_grid().sync();
        for (int64_t i = first; i < size; i += stride) Y[i] = from_float<scalar_t>(__ldcg(sums + i));
    }
}

template <typename Matrix>
__global__ void __launch_bounds__(kDirectThreads, 1)
    add_directly(const __grid_constant__ Matrix A, const scalar_t* __restrict__ X, scalar_t* Y, float* sums, int64_t K, int chunk) {
    add_by_grid(A, X, Y, sums, K, chunk);
}

// Products and sums, counted in whole warps, up to which this is the plan. At the limit the additions take 5 us by the rate above; packing
// and multiplying took 18 us and more (H200, 2026-11-24, 15055 entries, 77 columns). The limit itself is by this reckoning, and not
// yet measured.
constexpr int64_t kMostDirectWork = 1 << 22;

inline bool worth_direct(int64_t rows, int64_t total, int64_t K) {
    return (rows + total) * std::max<int64_t>(K, 32) <= kMostDirectWork;
}

inline size_t direct_bytes(int64_t rows, int64_t K) {
    return std::is_same_v<scalar_t, float> ? 0 : rows * K * sizeof(float);
}

// `workspace`: direct_bytes(rows, K).
template <typename Matrix>
cudaError_t multiply_directly(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    float* const sums = std::is_same_v<scalar_t, float> ? reinterpret_cast<float*>(Y) : static_cast<float*>(workspace);
    const int blocks = multiprocessors();  // all of them, however few entries there are: sums are to be cleared, too
    const int chunk = int(std::clamp<int64_t>(ceil_div(A.total, blocks), kLeastChunk, kMostChunk));
    return Launch(blocks, kDirectThreads, stream).cooperative()(add_directly<Matrix>, A, X, Y, sums, K, chunk);
}

}  // namespace msbench
