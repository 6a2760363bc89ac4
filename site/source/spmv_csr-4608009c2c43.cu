// y = A x with A in CSR.
//
// Plans, by entries: `shares` (msbench_spmv_shares.cuh) from 400 000 to 2²², whose blocks have as many entries each, however long rows are;
// `walk` (msbench_csr_walk.cuh) from there on if rows have 24 to 128 entries in the mean: blocks that stay, and clusters of them that hold
// part of x; else `multiply`, of which the rest of this comment speaks. Whether rows are even is not known before the launch: `shares` is
// chosen where it loses less on even ones than it wins on skewed ones.
//
// Idea: kLanes threads share a row, as many as the mean length keeps busy, fewer once there are rows enough to fill the
// GPU; all entries of a usual row are under way at once. Rows of more than 16 steps are put aside, and then the block's warps share them.
//
// Very long rows (msbench_csr_rows.cuh) are not the block's. Every one of the first blocks looks at 512 offsets, which show where such
// rows may be: usually nowhere, and they end after this one trip to memory. Else they cut them into parts, and their warps take these in
// turn. So no multiprocessor has much more of a full row than any other, and the result is the same on every run.
//
// Bound: paper sizes are a launch and three trips to memory (offsets, entries, x). Large: the gathers that L2 answers, 165·10⁹ a second
// (measured), 203 us at 2²⁵ if it answers all.
// Measured (H200, 2026-11-23): 128 blocks for very long rows instead of 32 cost 0.7 us at 2¹⁴ and 2¹⁵ rows, eight entries under way and
// fewer blocks 0.6 us at 2¹⁰ to 2¹².
// 2¹⁵ rows, 2026-11-24, where an empty call takes 2.8 us: skewed 13.9 us by `multiply` (bf16 13.2) and 9.4 (9.3) by `shares`; even
// 7.7 (7.0) and 8.5 (7.9). 10007 rows: skewed 12.2 (12.8) and 9.9 (9.4), even 7.9 (7.2) and 8.7 (8.2). 2¹⁴ rows: skewed 10.5 and 9.1, even
// 6.9 and 7.7.
// H100, 2026-11-26: 2¹⁴ rows 8.7 us with 8 lanes, 8.4 with 16; 2¹² 7.4 with 32, 7.3 with 16. Large 294 us by lanes that load fours, 238 by `walk`
// (bf16 276, 229). A copy of x in each block's shared memory, in place of gathers from L2, cost up to 2.6 us at 2¹⁵ rows: many blocks want the
// same lines at once.
// H200, 2026-11-26, bf16 and fp32, without and with entries and x asked for while offsets are under way: 2¹⁰ rows 6.5 and 6.6, 6.3 and 6.3; 2¹²
// 6.9 and 7.2, 6.7 and 7.0; 2¹⁴ 7.6 and 7.9, 7.5 and 7.8. By bulk copies it costs 0.2. Blocks of 128 threads take up to 0.6 more.
// Entries loaded from where even rows have them, at once with offsets and x, and multiplied before the rows are known: 0.4 less from 2¹² to 2¹³ rows,
// as much at others, 1.5 more where 2¹² rows are skewed, and 25 more at 2¹⁵. Touching y early, as spmv_ell does, gains nothing.

#include <algorithm>

#include "msbench_csr_walk.cuh"
#include "msbench_prefetch.cuh"
#include "msbench_spmv_shares.cuh"

namespace {

constexpr int kThreads = 512;
constexpr int kFlight = 4;  // loads of entries that a thread has under way
constexpr int kBlocks = 4;  // on a multiprocessor
constexpr int kSteps = 16;  // a row of more than kSteps x kLanes entries is put aside
constexpr int64_t kResidentBlocks = 132 * kBlocks, kResident = kResidentBlocks * kThreads;
// Blocks for very long rows: not more than have a step each for all entries, and half as many where others would have to wait.
constexpr int kPartBlocks = 32, kStepEntries = kThreads * kFlight;
constexpr int64_t kLeastShared = 400'000, kManyEntries = 1 << 22;
constexpr size_t kMostTable = 32 * 1024;  // bytes of x that each of the blocks that share entries copies

// Every `stride`-th entry from `first` on, times x.
__device__ float dot(const msbench::CsrMatrix& A, const scalar_t* x, int first, int end, int stride) {
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

// The first `part_blocks` blocks have very long rows.
template <int kLanes>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply(const __grid_constant__ msbench::CsrMatrix A, const scalar_t* x, scalar_t* y, int cols, float* partial, unsigned part_blocks) {
    constexpr int kRows = kThreads / kLanes;
    __shared__ union {
        msbench::RowsAside<kThreads, kRows> aside;
        msbench::LongLines<kThreads, msbench::kMostVeryLong> very_long;
    } shared;
    if (blockIdx.x < part_blocks) {
        msbench::multiply_very_long(A, x, y, partial, shared.very_long, part_blocks);
        return;
    }
    auto& aside = shared.aside;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Neighbours go to different blocks, a warp's worth at a time, so that long rows don't come together in one.
    const int row = (warp * (gridDim.x - part_blocks) + blockIdx.x - part_blocks) * (32 / kLanes) + lane / kLanes;
    if (threadIdx.x == 0) aside.count = 0;
    int first = 0, end = 0;
    if (row < A.rows) {
        first = A.offsets[row];
        end = A.offsets[row + 1];
    }
    if (A.total < kLeastShared) {  // else they are too many to stay in L2 until they are wanted
        const int thread = int(blockIdx.x - part_blocks) * kThreads + int(threadIdx.x);
        msbench::prefetch_sector(A.columns, A.total, thread);
        msbench::prefetch_sector(A.values, A.total, thread);
        msbench::prefetch_sector(x, cols, thread);
    }
    __syncthreads();
    const bool is_long = end - first > kSteps * kLanes;
    float sum = 0;
    if (!is_long) sum = dot(A, x, first + lane % kLanes, end, kLanes);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (row < A.rows && lane % kLanes == 0) {
        if (!is_long) y[row] = msbench::from_float<scalar_t>(sum);
        else if (end - first < A.very_long) aside.rows[atomicAdd(&aside.count, 1)] = row;
    }
    __syncthreads();
    if (aside.count > 0) aside.multiply(A, x, y);
}

template <int kLanes>
cudaError_t launch(const msbench::CsrMatrix& A, const scalar_t* x, scalar_t* y, int64_t cols, void* workspace, cudaStream_t stream) {
    const int64_t row_blocks = msbench::ceil_div(A.rows, kThreads / kLanes);
    const bool crowded = row_blocks <= kResidentBlocks && row_blocks + kPartBlocks > kResidentBlocks;
    const int64_t most = crowded ? kPartBlocks / 2 : kPartBlocks;
    const unsigned part_blocks = A.total < A.very_long ? 0 : unsigned(std::min(most, msbench::ceil_div(A.total, kStepEntries)));
    const unsigned blocks = part_blocks + unsigned(row_blocks);
    float* const partial = static_cast<float*>(workspace);
    multiply<kLanes><<<blocks, kThreads, 0, stream>>>(A, x, y, int(cols), partial, part_blocks);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t spmv_csr_workspace(int64_t, int64_t, int64_t) {
    return msbench::kMostRowParts * sizeof(float);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    if (nnz >= kLeastShared && nnz < kManyEntries) {
        const msbench::CsrShares A = {values, col_indices, row_offsets, int(rows), int(nnz), 0, 0};
        if (nnz <= msbench::kSharedByOneWave && msbench::vector_bytes(cols) <= kMostTable)
            return msbench::multiply_by_csr_shares<1024, 1, true>(A, x, y, cols, stream);
        return msbench::multiply_by_csr_shares<512, 3, false>(A, x, y, cols, stream);
    }
    const msbench::CsrMatrix A = msbench::csr_matrix(values, col_indices, row_offsets, rows, nnz);
    const int64_t mean = msbench::ceil_div(nnz, rows);
    if (nnz >= kManyEntries && mean >= 24 && mean <= 128 && msbench::fours_allowed(col_indices, values)) {
        float* const partial = static_cast<float*>(workspace);
        if (msbench::vector_bytes(cols) <= msbench::kHeldBytes) return msbench::multiply_by_walking<1>(A, x, y, cols, partial, stream);
        return msbench::multiply_by_walking<msbench::kVectorCluster>(A, x, y, cols, partial, stream);
    }
    int lanes = 2;
    while (lanes < 32 && (lanes * kFlight < mean || (2 * lanes <= mean && 2 * lanes * rows <= kResident))) lanes *= 2;
    if (lanes == 2) return launch<2>(A, x, y, cols, workspace, stream);
    if (lanes == 4) return launch<4>(A, x, y, cols, workspace, stream);
    if (lanes == 8) return launch<8>(A, x, y, cols, workspace, stream);
    if (lanes == 16) return launch<16>(A, x, y, cols, workspace, stream);
    return launch<32>(A, x, y, cols, workspace, stream);
}
