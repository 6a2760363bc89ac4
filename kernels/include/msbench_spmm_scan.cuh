// A X for matrices of few entries in COO or CSC, in one launch without a barrier of the grid: each block looks through all row indices for those
// of its own rows.
//
// Rows are dealt out to blocks in turn. A block puts its entries in order by row, some at a time, and multiplies them by parts of equal length, whose
// sums meet in shared memory. Whatever is read later is asked for at once, from memory to L2. A full row is one block's, though, which would
// take 45 us: where of a sample of the entries one block has many, the grid adds to sums in memory instead (msbench_spmm_direct.cuh).
//
// Bound: a launch, one trip to memory for row indices, and three to L2, for all indices, for entries, and for rows of X.
//
// Measured (H200, 2026-11-26, own program, us, an empty call takes 4.5; by sums in memory alone): 15055 entries times 77 in bf16, CSC 12.3 (13.7),
// COO 11.2 (13.4), skewed 16.1 (13.7) and 16.3 (14.5). In fp32, which has one barrier less, CSC 11.9 (11.8), COO 10.8 (11.8), skewed 15.4 (12.8)
// and 14.3 (12.2): it is left to sums in memory. 64 blocks instead of 128 take 2 us more, 32 columns a warp instead of 96 one.
#pragma once

#include "msbench_entry_bins.cuh"
#include "msbench_prefetch.cuh"
#include "msbench_spmm_direct.cuh"

namespace msbench {

constexpr int kScanThreads = 1024, kScanWarps = kScanThreads / 32, kScanEach = 16, kScanTile = kScanThreads * kScanEach;
constexpr int kMostOwners = 128, kScanRows = 128, kScanSums = 1 << 14, kScanColumns = 4096;
constexpr int kMostOfSample = 48;  // of 1024 entries, 8 if they are even
constexpr int kNoRow = 1 << 30;
constexpr int kLeastScanPart = 4;  // entries that are worth a warp of their own

struct alignas(16) ScanEntry {
    int row, column;
    float value;
};

struct ScanScratch {
    unsigned list[kScanTile];  // own row and place in the tile
    ScanEntry entries[kScanThreads];
    int starts[kScanRows + 1], found;
    int ends[kScanColumns];  // of columns
};

template <typename Matrix>
__global__ void __launch_bounds__(kScanThreads, 1)
    multiply_by_scanning(const __grid_constant__ Matrix A, const scalar_t* __restrict__ X, scalar_t* Y, float* direct_sums, int K, int chunk,
                         int log_owners) {
    constexpr bool kCsc = std::is_same_v<Matrix, CscMatrix>;
    extern __shared__ __align__(16) char memory[];
    ScanScratch& s = *reinterpret_cast<ScanScratch*>(memory);
    float* const sums = reinterpret_cast<float*>(memory + sizeof(ScanScratch));  // [own row][K]
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, block = blockIdx.x, owners = 1 << log_owners;
    const int own_rows = block < owners ? (A.rows - block + owners - 1) >> log_owners : 0;
    int row[kScanEach];
    const auto load = [&](int first) {
#pragma unroll
        for (int i = 0; i < kScanEach; ++i) {
            const int at = first + i * kScanThreads + tid;
            row[i] = at < A.total ? __ldg(A.row_indices + at) : kNoRow;
        }
    };
    load(0);
    const int thread = block * kScanThreads + tid;
    prefetch_sector(X, int64_t(A.cols) * K, thread);
    prefetch_sector(A.values, A.total, thread);
    if constexpr (kCsc) {
        for (int i = tid; i < A.cols; i += kScanThreads) s.ends[i] = __ldg(A.offsets + i + 1);
    } else {
        prefetch_sector(A.col_indices, A.total, thread);
    }
    for (int i = tid; i < own_rows * K; i += kScanThreads) sums[i] = 0;
    // If of a sample one block has many, its rows are not its own.
    if (tid < kMostOwners) s.starts[tid] = 0;
    __syncthreads();
    if (tid < A.total) atomicAdd(&s.starts[row[0] & (owners - 1)], 1);
    __syncthreads();
    const bool many = tid < kMostOwners && s.starts[tid] > kMostOfSample * (kMostOwners >> log_owners);
    if (__syncthreads_or(many)) return add_by_grid(A, X, Y, direct_sums, K, chunk);
    if (block >= owners) return;
    for (int first = 0; first < A.total; first += kScanTile) {
        if (first > 0) load(first);
        if (tid == 0) s.found = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kScanEach; ++i) {
            if ((row[i] & (owners - 1)) != block || row[i] >= kNoRow) continue;
            s.list[atomicAdd(&s.found, 1)] = unsigned(row[i] >> log_owners) << 14 | (i * kScanThreads + tid);
        }
        __syncthreads();
        for (int begin = 0; begin < s.found; begin += kScanThreads) {
            const int count = min(kScanThreads, s.found - begin);
            ScanEntry own;
            if (tid <= kScanRows) s.starts[tid] = 0;
            if (tid < count) {
                const unsigned item = s.list[begin + tid];
                const int at = first + int(item & (kScanTile - 1));
                own.row = item >> 14;
                own.value = to_float(__ldg(A.values + at));
                if constexpr (!kCsc) own.column = __ldg(A.col_indices + at);
                if constexpr (kCsc) {
                    int low = 0, high = A.cols;  // how many columns end at or before this entry
                    while (low < high) {
                        const int middle = (low + high) / 2;
                        if (s.ends[middle] <= at) low = middle + 1;
                        else high = middle;
                    }
                    own.column = low;
                }
            }
            __syncthreads();
            const int rank = tid < count ? atomicAdd(&s.starts[own.row + 1], 1) : 0;
            __syncthreads();
            if (warp == 0) {
                int sum[kScanRows / 32], all = 0;
#pragma unroll
                for (int k = 0; k < kScanRows / 32; ++k) sum[k] = all += s.starts[1 + lane * (kScanRows / 32) + k];
                const int before = warp_inclusive(all) - all;
#pragma unroll
                for (int k = 0; k < kScanRows / 32; ++k) s.starts[1 + lane * (kScanRows / 32) + k] = before + sum[k];
            }
            __syncthreads();
            if (tid < count) s.entries[s.starts[own.row] + rank] = own;
            __syncthreads();
            constexpr int kWide = 3;
            const int blocks = (K + 32 * kWide - 1) / (32 * kWide), parts = max(1, min(kScanWarps / blocks, count / kLeastScanPart));
            for (int i = warp; i < parts * blocks; i += kScanWarps) {
                constexpr int kFlight = 16 / kWide;
                const int part = i / blocks, from = count * part / parts, to = count * (part + 1) / parts, column = i % blocks * 32 * kWide + lane;
                int current = s.entries[from].row;
                float sum[kWide] = {};
                const auto leave = [&] {
#pragma unroll
                    for (int w = 0; w < kWide; ++w) {
                        if (column + w * 32 < K) atomicAdd(sums + current * K + column + w * 32, sum[w]);
                        sum[w] = 0;
                    }
                };
                for (int e = from; e < to; e += kFlight) {
                    scalar_t x[kFlight][kWide];
#pragma unroll
                    for (int u = 0; u < kFlight; ++u) {
                        const int column_of_A = s.entries[min(e + u, to - 1)].column;
#pragma unroll
                        for (int w = 0; w < kWide; ++w) {
                            if (column + w * 32 < K) x[u][w] = __ldg(X + column_of_A * K + column + w * 32);
                        }
                    }
#pragma unroll
                    for (int u = 0; u < kFlight; ++u) {
                        if (e + u >= to) break;
                        const ScanEntry entry = s.entries[e + u];
                        if (entry.row != current) {
                            leave();
                            current = entry.row;
                        }
#pragma unroll
                        for (int w = 0; w < kWide; ++w) {
                            if (column + w * 32 < K) sum[w] = fmaf(entry.value, to_float(x[u][w]), sum[w]);
                        }
                    }
                }
                leave();
            }
            __syncthreads();
        }
    }
    for (int i = tid; i < own_rows * K; i += kScanThreads) {
        const int own = i / K;
        Y[int64_t((own << log_owners) + block) * K + (i - own * K)] = from_float<scalar_t>(sums[i]);
    }
}

// log2 of the blocks that rows are dealt out to.
inline int log_owners() {
    int log = 0;
    while (2 << log <= std::min(multiprocessors(), kMostOwners)) ++log;
    return log;
}

inline bool worth_scanning(int64_t rows, int64_t cols, int64_t total, int64_t K) {
    const int64_t own = ceil_div(rows, 1 << log_owners());
    return worth_direct(rows, total, K) && total <= 2 * kScanTile && own <= kScanRows && own * K <= kScanSums && cols <= kScanColumns;
}

// `workspace`: direct_bytes(rows, K).
template <typename Matrix>
cudaError_t multiply_by_scanning(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    float* const sums = std::is_same_v<scalar_t, float> ? reinterpret_cast<float*>(Y) : static_cast<float*>(workspace);
    const int blocks = multiprocessors(), owners = log_owners();
    const int chunk = int(std::clamp<int64_t>(ceil_div(A.total, blocks), kLeastChunk, kMostChunk));
    const size_t own_sums = ceil_div(A.rows, 1 << owners) * K * sizeof(float);
    return Launch(blocks, kScanThreads, stream).shared(sizeof(ScanScratch) + own_sums).cooperative()(multiply_by_scanning<Matrix>, A, X, Y, sums, int(K), chunk,
                                                                                                    owners);
}

}  // namespace msbench
