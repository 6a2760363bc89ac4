// y = A x with A in CSR.
//
// Idea: LANES threads share a row, as many as the mean row length keeps busy, fewer once there are rows enough to fill
// the GPU; four entries a thread are in flight, and the entries stream past x, which stays in L1 and L2. Rows of more
// than LONG_STEPS x LANES entries are put aside, and the whole block then adds up each of them: every warp leaves its
// share in shared memory, so that one barrier serves all long rows of the block. Neighbouring rows go to different
// blocks, a warp's worth at a time, so that long rows next to each other don't end up in one block. No atomics on y,
// and sums are fp32 in an order that depends only on the matrix: the result is the same on every run.
//
// Bound: 8 bytes an entry, 2 flops; one launch. The reads of x, 32 bytes of L2 traffic each when they miss L1, come on
// top.

#include "msbench.cuh"

namespace {

constexpr int THREADS = 512, WARPS = THREADS / 32;
constexpr int UNROLL = 4, LONG_UNROLL = 8;        // entries a thread has in flight, in a short and in a long row
constexpr int LONG_STEPS = 16;                    // a row of more than LONG_STEPS x LANES entries is long
constexpr int64_t RESIDENT_THREADS = 132 * 2048;  // what the GPU runs at a time

// The share of a row's entries that starts at `first` and strides by `stride`, times x.
template <int DEPTH>
__device__ float dot(const scalar_t* values, const int32_t* col_indices, const scalar_t* x, int first, int end,
                     int stride) {
    float sum = 0.0f;
    for (int k = first; k < end; k += DEPTH * stride) {
        int columns[DEPTH];
        scalar_t factors[DEPTH];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (k + i * stride < end) {
                columns[i] = __ldcs(col_indices + k + i * stride);
                factors[i] = __ldcs(values + k + i * stride);
            }
        }
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (k + i * stride < end) sum = fmaf(msbench::to_float(factors[i]), msbench::to_float(x[columns[i]]), sum);
        }
    }
    return sum;
}

template <int LANES>
__global__ void __launch_bounds__(THREADS, 2048 / THREADS)
    multiply(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets, const scalar_t* x,
             scalar_t* y, int rows) {
    constexpr int ROWS = THREADS / LANES;
    __shared__ int long_count, long_rows[ROWS];
    __shared__ float shares[ROWS][WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = (warp * gridDim.x + blockIdx.x) * (32 / LANES) + lane / LANES;
    if (threadIdx.x == 0) long_count = 0;
    __syncthreads();

    int first = 0, end = 0;
    if (row < rows) {
        first = row_offsets[row];
        end = row_offsets[row + 1];
    }
    const bool is_long = end - first > LONG_STEPS * LANES;
    float sum = is_long ? 0.0f : dot<UNROLL>(values, col_indices, x, first + lane % LANES, end, LANES);
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (row < rows && lane % LANES == 0) {
        if (is_long) long_rows[atomicAdd(&long_count, 1)] = row;
        else y[row] = msbench::from_float<scalar_t>(sum);
    }

    __syncthreads();
    if (long_count == 0) return;
    for (int i = 0; i < long_count; ++i) {
        const int long_first = row_offsets[long_rows[i]], long_end = row_offsets[long_rows[i] + 1];
        const float share = dot<LONG_UNROLL>(values, col_indices, x, long_first + int(threadIdx.x), long_end, THREADS);
        const float warp_share = msbench::warp_reduce(share, msbench::Sum());
        if (lane == 0) shares[i][warp] = warp_share;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < long_count; i += THREADS) {
        float total = 0.0f;
        for (int j = 0; j < WARPS; ++j) total += shares[i][j];
        y[long_rows[i]] = msbench::from_float<scalar_t>(total);
    }
}

template <int LANES>
void launch(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets, const scalar_t* x,
            scalar_t* y, int64_t rows, cudaStream_t stream) {
    const unsigned blocks = unsigned(msbench::ceil_div(rows, THREADS / LANES));
    multiply<LANES><<<blocks, THREADS, 0, stream>>>(values, col_indices, row_offsets, x, y, int(rows));
}

}  // namespace

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t, int64_t nnz, void*, size_t,
                                cudaStream_t stream) {
    const int64_t mean = msbench::ceil_div(nnz, rows);
    int lanes = 2;
    while (lanes < 32 && (lanes * UNROLL < mean || (lanes < mean && 2 * lanes * rows <= RESIDENT_THREADS))) lanes *= 2;
    switch (lanes) {
        case 2: launch<2>(values, col_indices, row_offsets, x, y, rows, stream); break;
        case 4: launch<4>(values, col_indices, row_offsets, x, y, rows, stream); break;
        case 8: launch<8>(values, col_indices, row_offsets, x, y, rows, stream); break;
        case 16: launch<16>(values, col_indices, row_offsets, x, y, rows, stream); break;
        default: launch<32>(values, col_indices, row_offsets, x, y, rows, stream);
    }
    return cudaGetLastError();
}
