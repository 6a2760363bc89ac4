// y = A x with A in CSC.
//
// Idea: kLanes threads share a column, whose element of x they load together with its offsets; then all of its entries are
// under way at once. Columns of more than 8 steps are shared by the block's warps. Very long ones are not the block's: the last
// blocks of the grid have an equal share of A's entries each, and look for the column that theirs begins in, as in spmv_csr. Where
// products go, by rows:
// - up to 32768: sums that are zero between calls, a sector each (msbench_spread_sums.cuh); after a grid barrier they
//   are rounded and set back. One cooperative launch. Sums in shared memory for every block, added up behind the barrier,
//   took 10.5 to 20 us for the paper's sizes (measured).
// - else sums in the workspace, cleared before and rounded in a second kernel.
// In the former lanes of a warp with the same row add up first: a full row would make their additions wait for each other.
//
// Bound: paper sizes are a launch, two trips to memory, a grid barrier and one more trip, ≈ 7 us. Large: atomic additions,
// 101·10⁹ a second (measured), 332 us for 2²⁵. Measured (H200, 2026-11-23): 396 us when lanes added up first there, too; ordering
// products by bins of rows instead 442 us.

#include "msbench_entries.cuh"
#include "msbench_find_line.cuh"
#include "msbench_launch.cuh"
#include "msbench_spread_sums.cuh"

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kBlocks = 5;  // on a multiprocessor
constexpr int kFlight = 4;
constexpr int kSteps = 8;  // a column of more than kSteps x kLanes entries is put aside
constexpr int kMostShares = 128, kLeastShare = 1024;

struct Matrix {
    const scalar_t* values;
    const int32_t *row_indices, *offsets;
    int cols, total, share;
    unsigned column_blocks;  // those behind have a share each
};

// Sums of all rows in the workspace.
struct MemorySums {
    float* sums;
    __device__ void add(int row, float product) const {
        if (row >= 0) atomicAdd(sums + row, product);
    }
};

// Adds every `stride`-th entry from `first` on, times `factor`. Called by whole warps.
template <typename Sums>
__device__ void add_entries(const Matrix& A, float factor, int first, int end, int stride, const Sums& sums) {
    for (int k = first; __any_sync(~0u, k < end); k += kFlight * stride) {
        int row[kFlight];
        float product[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            row[i] = -1;
            if (k + i * stride < end) {
                row[i] = __ldcs(A.row_indices + k + i * stride);
                product[i] = msbench::to_float(__ldcs(A.values + k + i * stride)) * factor;
            }
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (!__any_sync(~0u, row[i] >= 0)) break;
            sums.add(row[i], product[i]);
        }
    }
}

// By a block: entries of the very long column that has entry `at`, from there to the next share, or from its first on.
template <typename Sums>
__device__ void add_share(const Matrix& A, const scalar_t* x, const Sums& sums) {
    const int at = (blockIdx.x - A.column_blocks) * A.share;
    msbench::FindLine<kThreads> find(A.cols, at);
    find.finish(A.offsets);
    const int begin = A.offsets[find.low], end = A.offsets[find.low + 1];
    if (end - begin < A.share) return;
    const int from = begin > at - A.share ? begin : at;
    add_entries(A, msbench::to_float(x[find.low]), from + int(threadIdx.x), min(end, at + A.share), kThreads, sums);
}

// Adds all products. By all threads of the grid.
template <int kLanes, typename Sums>
__device__ void add_columns(const Matrix& A, const scalar_t* x, const Sums& sums) {
    constexpr int kGroups = kThreads / kLanes;
    __shared__ int aside, columns_aside[kGroups];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x >= A.column_blocks) {
        add_share(A, x, sums);
        return;
    }
    for (int start = 0; start < A.cols; start += A.column_blocks * kGroups) {
        // Neighbours go to different blocks, a warp's worth at a time.
        const int column = start + (warp * A.column_blocks + blockIdx.x) * (32 / kLanes) + lane / kLanes;
        if (threadIdx.x == 0) aside = 0;
        int first = 0, end = 0;
        float factor = 0;
        if (column < A.cols) {
            first = A.offsets[column];
            end = A.offsets[column + 1];
            factor = msbench::to_float(x[column]);
        }
        __syncthreads();
        if (end - first > kSteps * kLanes) {
            if (lane % kLanes == 0 && end - first < A.share) columns_aside[atomicAdd(&aside, 1)] = column;
            end = first;
        }
        add_entries(A, factor, first + lane % kLanes, end, kLanes, sums);
        __syncthreads();
        const int count = aside, per_column = count > 0 ? max(1, kWarps / count) : 1;
        for (int i = warp / per_column; i < count && warp < kWarps / per_column * per_column; i += kWarps / per_column) {
            const int c = columns_aside[i], from = A.offsets[c] + warp % per_column * 32 + lane;
            add_entries(A, msbench::to_float(x[c]), from, A.offsets[c + 1], per_column * 32, sums);
        }
        __syncthreads();
    }
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int rows, const __grid_constant__ msbench::SpreadSums sums) {
    add_columns<kLanes>(A, x, sums);
    sums.collect(rows, [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <int kLanes>
__global__ void __launch_bounds__(kThreads, kBlocks)
    add_products(const __grid_constant__ Matrix A, const scalar_t* x, const __grid_constant__ MemorySums sums) {
    add_columns<kLanes>(A, x, sums);
}

__global__ void __launch_bounds__(kThreads) round_sums(const float* sums, scalar_t* y, int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    cudaGridDependencySynchronize();
    if (row < rows) y[row] = msbench::from_float<scalar_t>(__ldcg(sums + row));
}

template <int kLanes>
cudaError_t launch(Matrix A, const scalar_t* x, scalar_t* y, int64_t rows, void* workspace, cudaStream_t stream) {
    const int64_t most = msbench::resident_blocks(multiply<kLanes>, kThreads);
    A.share = int(std::max<int64_t>(kLeastShare, msbench::ceil_div(A.total, std::min<int64_t>(kMostShares, most / 4))));
    const int64_t shares = A.total < A.share ? 0 : msbench::ceil_div(A.total, A.share);
    const int64_t columns = msbench::ceil_div(A.cols, kThreads / kLanes);
    if (rows <= msbench::kSpreadRows) {
        A.column_blocks = unsigned(std::min(columns, most - shares));
        return msbench::Launch(A.column_blocks + unsigned(shares), kThreads, stream)
            .cooperative()(multiply<kLanes>, A, x, y, int(rows), msbench::SpreadSums(rows));
    }
    const MemorySums sums = {static_cast<float*>(workspace)};
    A.column_blocks = unsigned(columns);
    const cudaError_t error = cudaMemsetAsync(sums.sums, 0, rows * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    add_products<kLanes><<<A.column_blocks + unsigned(shares), kThreads, 0, stream>>>(A, x, sums);
    return msbench::Launch(unsigned(msbench::ceil_div(rows, kThreads)), kThreads, stream)
        .early()(round_sums, sums.sums, y, rows);
}

}  // namespace

extern "C" size_t spmv_csc_workspace(int64_t rows, int64_t, int64_t) {
    return rows <= msbench::kSpreadRows ? 0 : rows * sizeof(float);
}

extern "C" cudaError_t spmv_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, col_offsets, int(cols), int(nnz), 0, 0};
    const int64_t mean = msbench::ceil_div(nnz, cols);
    if (mean > 48 || cols * 32 <= 132 * kBlocks * kThreads / 2) return launch<32>(A, x, y, rows, workspace, stream);
    return launch<8>(A, x, y, rows, workspace, stream);
}
