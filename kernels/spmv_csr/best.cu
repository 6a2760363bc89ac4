// y = A x with A in CSR.
//
// Plans, by entries: `shares` (msbench_spmv_shares.cuh) from 400 000 to 2²², whose blocks have as many entries each, however long rows are;
// else `multiply`, of which the rest of this comment speaks. Whether rows are even is not known before the launch: `shares` is chosen
// where it loses less on even ones than it wins on skewed ones.
//
// Idea: kLanes threads share a row, as many as the mean length keeps busy, fewer once there are rows enough to fill the
// GPU; all entries of a usual row are under way at once. In large matrices a load takes four entries, wherever the row begins.
// Rows of more than 16 steps are put aside, and then the block's warps share them.
//
// Very long rows, of 1024 entries or half as many again as a 512th of A has, are not the block's. Every one of the first blocks
// looks at 512 offsets, which show where such rows may be: usually nowhere, and they end after this one trip to memory. Else they
// make the same list of them, cut them into parts of 128 entries (more in large matrices), and their warps take these in turn; the
// last block to arrive adds the sums of parts in order. So no multiprocessor has much more of a full row than any other, and
// the result is the same on every run.
//
// Bound: paper sizes are a launch and three trips to memory (offsets, entries, x). Large: gathers, 32 bytes of L2
// traffic each where x misses L1 (165·10⁹ a second, measured: 203 us at 2²⁵), and the sectors of the entries on top.
// Measured (H200, 2026-11-23): large 250 us (bf16 238); with 8 lanes 257 (244), 4 lanes 269 (258), by single entries 282
// (257), and 308 when those passed L1: neighbours share sectors. 128 blocks for very long rows instead of 32 cost 0.7 us
// at 2¹⁴ and 2¹⁵ rows, eight entries under way and fewer blocks 0.6 us at 2¹⁰ to 2¹².
// 2¹⁵ rows, 2026-11-24, where an empty call takes 2.8 us: skewed 13.9 us by `multiply` (bf16 13.2) and 9.4 (9.3) by `shares`; even
// 7.7 (7.0) and 8.5 (7.9). 10007 rows: skewed 12.2 (12.8) and 9.9 (9.4), even 7.9 (7.2) and 8.7 (8.2). 2¹⁴ rows: skewed 10.5 and 9.1, even
// 6.9 and 7.7.
// H100, 2026-11-26: 2¹⁴ rows 8.7 us with 8 lanes, 8.4 with 16; 2¹² 7.4 with 32, 7.3 with 16.

#include <algorithm>

#include "msbench_entries.cuh"
#include "msbench_long_lines.cuh"
#include "msbench_spmv_shares.cuh"

namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kFlight = 4, kFoursFlight = 2;  // loads of entries that a thread has under way
constexpr int kBlocks = 4, kFoursBlocks = 3;  // on a multiprocessor
constexpr int kSteps = 16;                    // a row of more than kSteps x kLanes entries is put aside
constexpr int64_t kResidentBlocks = 132 * kBlocks, kResident = kResidentBlocks * kThreads;
// Blocks for very long rows: not more than have a step each for all entries, and half as many where others would have to wait.
constexpr int kPartBlocks = 32, kStepEntries = kThreads * kFlight;
// A very long row has 3/1024 of the entries at least, so that there are 341 at most. A part has a sixteenth of that at least: 5462
// parts and one more a row. A least part is one step of a warp.
constexpr int kLeastVeryLong = 1024, kLeastPart = 32 * kFlight, kMostVeryLong = 341, kMostParts = 5462 + kMostVeryLong;
constexpr int64_t kLeastShared = 400'000, kManyEntries = 1 << 22;

// How many blocks have added up their parts. Zero between calls.
__device__ unsigned arrived;

struct Matrix {
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, total, very_long, part;  // entries of a very long row, at least, and of a part
    unsigned part_blocks, row_blocks;  // those for very long rows come first
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

// The same for long rows, several steps mostly. Loads have no condition, and what is behind the end is the last entry again: at a
// stride that the compiler does not know it had made each entry's loads wait for those of the one before.
__device__ float dot_long(const Matrix& A, const scalar_t* x, int first, int end, int stride) {
    float sum = 0;
#pragma unroll 1
    for (int k = first; k < end; k += kFlight * stride) {
        int32_t column[kFlight];
        scalar_t value[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            const int at = min(k + i * stride, end - 1);
            column[i] = __ldcs(A.columns + at);
            value[i] = __ldcs(A.values + at);
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            const float factor = msbench::to_float(__ldg(x + column[i]));
            if (k + i * stride < end) sum = fmaf(msbench::to_float(value[i]), factor, sum);
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

using VeryLong = msbench::LongLines<kThreads, kMostVeryLong>;

// By each of the first blocks: their share of the parts of all very long rows.
__device__ void add_parts(const Matrix& A, const scalar_t* x, scalar_t* y, float* partial, VeryLong& list) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int count = list.find(A.offsets, A.rows, A.total, A.very_long, A.part);
    if (count == 0) return;
    const auto& sorted = list.sorted;
    for (int part = warp * A.part_blocks + blockIdx.x; part < sorted.first[count]; part += kWarps * A.part_blocks) {
        const int i = list.line_of(part), row = sorted.lines[i], from = A.offsets[row] + (part - sorted.first[i]) * A.part;
        const int end = min(A.offsets[row + 1], from + A.part);
        const float sum = msbench::warp_reduce(dot_long(A, x, from + lane, end, 32), msbench::Sum());
        if (lane == 0) __stcg(partial + part, sum);
    }
    __syncthreads();
    bool is_last = false;
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicInc(&arrived, A.part_blocks - 1) == A.part_blocks - 1;  // back to zero with the last one
        __threadfence();
    }
    if (!__syncthreads_or(is_last)) return;
    for (int i = warp; i < count; i += kWarps) {
        float total = 0;
        for (int part = sorted.first[i] + lane; part < sorted.first[i + 1]; part += 32) total += __ldcg(partial + part);
        total = msbench::warp_reduce(total, msbench::Sum());
        if (lane == 0) y[sorted.lines[i]] = msbench::from_float<scalar_t>(total);
    }
}

template <int kLanes, bool kFours>
__global__ void __launch_bounds__(kThreads, kFours ? kFoursBlocks : kBlocks)
    multiply(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, float* partial) {
    constexpr int kRows = kThreads / kLanes;
    struct Aside {
        int count, rows[kRows];
        float shares[kRows][kWarps];
    };
    __shared__ union {
        Aside aside;
        VeryLong very_long;
    } shared;
    if (blockIdx.x < A.part_blocks) {
        add_parts(A, x, y, partial, shared.very_long);
        return;
    }
    Aside& aside = shared.aside;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Neighbours go to different blocks, a warp's worth at a time, so that long rows don't come together in one.
    const int row = (warp * A.row_blocks + blockIdx.x - A.part_blocks) * (32 / kLanes) + lane / kLanes;
    if (threadIdx.x == 0) aside.count = 0;
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
        else if (end - first < A.very_long) aside.rows[atomicAdd(&aside.count, 1)] = row;
    }

    __syncthreads();
    const int count = aside.count;
    if (count == 0) return;
    const int per_row = max(1, kWarps / count), place = warp % per_row;
    for (int i = warp / per_row; i < count && warp < kWarps / per_row * per_row; i += kWarps / per_row) {
        const int start = A.offsets[aside.rows[i]], stop = A.offsets[aside.rows[i] + 1];
        const float part = dot_long(A, x, start + place * 32 + lane, stop, per_row * 32);
        const float total = msbench::warp_reduce(part, msbench::Sum());
        if (lane == 0) aside.shares[i][place] = total;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
        float total = 0;
        for (int j = 0; j < per_row; ++j) total += aside.shares[i][j];
        y[aside.rows[i]] = msbench::from_float<scalar_t>(total);
    }
}

template <int kLanes, bool kFours = false>
void launch(Matrix A, const scalar_t* x, scalar_t* y, void* workspace, cudaStream_t stream) {
    A.row_blocks = unsigned(msbench::ceil_div(A.rows, kThreads / kLanes));
    A.very_long = int(std::max<int64_t>(kLeastVeryLong, msbench::ceil_div(3 * int64_t(A.total), 1024)));
    A.part = int(std::max<int64_t>(kLeastPart, msbench::ceil_div(A.very_long, 16)));
    const bool crowded = A.row_blocks <= kResidentBlocks && A.row_blocks + kPartBlocks > kResidentBlocks;
    const int64_t most = crowded ? kPartBlocks / 2 : kPartBlocks;
    A.part_blocks = A.total < A.very_long ? 0 : unsigned(std::min(most, msbench::ceil_div(A.total, kStepEntries)));
    multiply<kLanes, kFours><<<A.part_blocks + A.row_blocks, kThreads, 0, stream>>>(A, x, y, static_cast<float*>(workspace));
}

}  // namespace

extern "C" size_t spmv_csr_workspace(int64_t, int64_t, int64_t) {
    return kMostParts * sizeof(float);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    if (nnz >= kLeastShared && nnz < kManyEntries) {
        const msbench::CsrShares A = {values, col_indices, row_offsets, int(rows), int(nnz), 0, 0};
        return msbench::multiply_by_csr_shares<512, 3>(A, x, y, stream);
    }
    const Matrix A = {values, col_indices, row_offsets, int(rows), int(nnz), 0, 0, 0, 0};
    const int64_t mean = msbench::ceil_div(nnz, rows);
    int lanes = 2;
    while (lanes < 32 && (lanes * kFlight < mean || (2 * lanes <= mean && 2 * lanes * rows <= kResident))) lanes *= 2;
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
