// y = A x with A in CSR.
//
// Idea: kLanes threads share a row, as many as the mean length keeps busy, fewer once there are rows enough to fill the
// GPU; all entries of a usual row are under way at once. In large matrices a load takes four entries, wherever the row begins.
// Rows of more than 16 steps are put aside, and then the block's warps share them. Very long rows are not the block's: the last
// blocks of the grid have an equal share of A's entries each, look for the row that theirs begins in (512 probes at a time) and, if
// that one is very long, add up its entries from there to the next share; the last one to arrive adds these sums in order.
// So a full row costs 32 blocks a little, and the result is the same on every run.
//
// Bound: paper sizes are a launch and three trips to memory (offsets, entries, x). Large: gathers, 32 bytes of L2
// traffic each where x misses L1 (165·10⁹ a second, measured: 203 us at 2²⁵), and the sectors of the entries on top.
// Measured (H200, 2026-11-23): large 250 us (bf16 238); with 8 lanes 257 (244), 4 lanes 269 (258), by single entries 282
// (257), and 308 when those passed L1: neighbours share sectors. 128 shares instead of 32 cost 0.7 us at 2¹⁴ and 2¹⁵
// rows, twice the lanes 1 us at 2¹³ and 2¹⁴, eight entries under way and fewer blocks 0.6 us at 2¹⁰ to 2¹².

#include "msbench_entries.cuh"
#include "msbench_find_line.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kFlight = 4, kFoursFlight = 2;  // loads of entries that a thread has under way
constexpr int kBlocks = 4, kFoursBlocks = 3;  // on a multiprocessor
constexpr int kSteps = 16;                    // a row of more than kSteps x kLanes entries is put aside
constexpr int kMostShares = 32, kLeastShare = 2048;
constexpr int64_t kResident = 132 * kBlocks * kThreads;
constexpr int64_t kManyEntries = 1 << 22;

// Of the long row whose first share this is: how many of its shares have been added up. Zero between calls.
__device__ unsigned arrived[kMostShares];

struct Matrix {
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, total, share;
    unsigned row_blocks;  // those behind have a share each
};

// Every `stride`-th entry from `first` on, times x.
__device__ float dot(const Matrix& A, const scalar_t* x, int first, int end, int stride) {
    float sum = 0;
    for (int k = first; k < end; k += kFlight * stride) {
        int32_t column[kFlight];
        scalar_t value[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (k + i * stride < end) {
                column[i] = __ldcs(A.columns + k + i * stride);
                value[i] = __ldcs(A.values + k + i * stride);
            }
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (k + i * stride < end) sum = fmaf(msbench::to_float(value[i]), msbench::to_float(__ldg(x + column[i])), sum);
        }
    }
    return sum;
}

// A lane's share of entries [begin, end), by loads of four; what they take of other rows is not multiplied.
template <int kLanes>
__device__ float dot_fours(const Matrix& A, const scalar_t* x, int begin, int end, int lane) {
    float sum = 0;
    for (int k = begin / 4 * 4 + lane * 4; k < end; k += kFoursFlight * kLanes * 4) {
        int32_t column[kFoursFlight][4];
        float value[kFoursFlight][4];
#pragma unroll
        for (int i = 0; i < kFoursFlight; ++i) {
            const int at = k + i * kLanes * 4;
            if (at + 4 <= A.total && at < end) {
                msbench::load_four_once(A.columns + at, column[i]);
                msbench::load_four_once(A.values + at, value[i]);
            } else if (at < end) {  // the array's last ones
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (at + j < end) {
                        column[i][j] = A.columns[at + j];
                        value[i][j] = msbench::to_float(A.values[at + j]);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kFoursFlight; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int at = k + i * kLanes * 4 + j;
                if (at >= begin && at < end) sum = fmaf(value[i][j], msbench::to_float(__ldg(x + column[i][j])), sum);
            }
        }
    }
    return sum;
}

// By a block: entries of the very long row that has entry `at`, from there to the next share, or from the row's first on.
__device__ void add_share(const Matrix& A, const scalar_t* x, scalar_t* y, float* partial, float* scratch) {
    const int t = blockIdx.x - A.row_blocks, at = t * A.share;
    msbench::FindLine<kThreads> find(A.rows, at);
    find.finish(A.offsets);
    const int row = find.low, begin = A.offsets[row], end = A.offsets[row + 1];
    if (end - begin < A.share) return;
    const int first = (begin + A.share - 1) / A.share, last = (end - 1) / A.share;  // shares of this row
    const int from = t == first ? begin : at;
    float sum = dot(A, x, from + int(threadIdx.x), min(end, at + A.share), kThreads);
    sum = msbench::block_reduce(sum, msbench::Sum(), scratch);
    if (threadIdx.x >= 32) return;
    int is_last = 0;
    if (threadIdx.x == 0) {
        partial[t] = sum;
        __threadfence();
        is_last = atomicInc(arrived + first, last - first) == unsigned(last - first);  // back to zero with the last one
        __threadfence();
    }
    if (!__shfl_sync(~0u, is_last, 0)) return;
    float total = 0;
    for (int i = first + int(threadIdx.x); i <= last; i += 32) total += __ldcg(partial + i);
    total = msbench::warp_reduce(total, msbench::Sum());
    if (threadIdx.x == 0) y[row] = msbench::from_float<scalar_t>(total);
}

template <int kLanes, bool kFours>
__global__ void __launch_bounds__(kThreads, kFours ? kFoursBlocks : kBlocks)
    multiply(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, float* partial) {
    constexpr int kRows = kThreads / kLanes;
    __shared__ int aside, rows_aside[kRows];
    __shared__ float shares[kRows][kWarps];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x >= A.row_blocks) {
        add_share(A, x, y, partial, shares[0]);
        return;
    }
    // Neighbours go to different blocks, a warp's worth at a time, so that long rows don't come together in one.
    const int row = (warp * A.row_blocks + blockIdx.x) * (32 / kLanes) + lane / kLanes;
    if (threadIdx.x == 0) aside = 0;
    int first = 0, end = 0;
    if (row < A.rows) {
        first = A.offsets[row];
        end = A.offsets[row + 1];
    }
    __syncthreads();
    const bool is_long = end - first > kSteps * kLanes;
    float sum = 0;
    if constexpr (kFours) {
        if (!is_long) sum = dot_fours<kLanes>(A, x, first, end, lane % kLanes);
    } else {
        if (!is_long) sum = dot(A, x, first + lane % kLanes, end, kLanes);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (row < A.rows && lane % kLanes == 0) {
        if (!is_long) y[row] = msbench::from_float<scalar_t>(sum);
        else if (end - first < A.share) rows_aside[atomicAdd(&aside, 1)] = row;
    }

    __syncthreads();
    const int count = aside;
    if (count == 0) return;
    const int per_row = max(1, kWarps / count), place = warp % per_row;
    for (int i = warp / per_row; i < count && warp < kWarps / per_row * per_row; i += kWarps / per_row) {
        const int start = A.offsets[rows_aside[i]], stop = A.offsets[rows_aside[i] + 1];
        const float part = dot(A, x, start + place * 32 + lane, stop, per_row * 32);
        const float total = msbench::warp_reduce(part, msbench::Sum());
        if (lane == 0) shares[i][place] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
        float total = 0;
        for (int j = 0; j < per_row; ++j) total += shares[i][j];
        y[rows_aside[i]] = msbench::from_float<scalar_t>(total);
    }
}

template <int kLanes, bool kFours = false>
void launch(Matrix A, const scalar_t* x, scalar_t* y, void* workspace, cudaStream_t stream) {
    A.row_blocks = unsigned(msbench::ceil_div(A.rows, kThreads / kLanes));
    A.share = int(std::max<int64_t>(kLeastShare, msbench::ceil_div(A.total, kMostShares)));
    const unsigned shares = A.total < A.share ? 0 : unsigned(msbench::ceil_div(A.total, A.share));
    multiply<kLanes, kFours><<<A.row_blocks + shares, kThreads, 0, stream>>>(A, x, y, static_cast<float*>(workspace));
}

}  // namespace

extern "C" size_t spmv_csr_workspace(int64_t, int64_t, int64_t) {
    return kMostShares * sizeof(float);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, col_indices, row_offsets, int(rows), int(nnz), 0, 0};
    const int64_t mean = msbench::ceil_div(nnz, rows);
    int lanes = 2;
    while (lanes < 32 && (lanes * kFlight < mean || (lanes < mean && 4 * lanes * rows <= kResident))) lanes *= 2;
    if (nnz >= kManyEntries && mean >= 24 && mean <= 128 && msbench::fours_allowed(col_indices, values)) {
        launch<16, true>(A, x, y, workspace, stream);
    } else if (lanes == 2) {
        launch<2>(A, x, y, workspace, stream);
    } else if (lanes == 4) {
        launch<4>(A, x, y, workspace, stream);
    } else if (lanes == 8) {
        launch<8>(A, x, y, workspace, stream);
    } else if (lanes == 16) {
        launch<16>(A, x, y, workspace, stream);
    } else {
        launch<32>(A, x, y, workspace, stream);
    }
    return cudaGetLastError();
}
