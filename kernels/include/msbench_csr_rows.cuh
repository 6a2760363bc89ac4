// Rows of a matrix in CSR that are too long for the few threads that a usual row gets: shared by a block's warps, or by many blocks.
#pragma once

#include "msbench_entries.cuh"
#include "msbench_long_lines.cuh"

namespace msbench {

struct CsrMatrix {
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, total, very_long, part;  // entries of a very long row, at least, and of a part
};

// A very long row has 3/1024 of the entries at least, so that there are 341 at most. A part has a sixteenth of that at least: 5462
// parts and one more a row. A least part is one step of a warp.
constexpr int kRowFlight = 4, kLeastVeryLong = 1024, kLeastRowPart = 32 * kRowFlight, kMostVeryLong = 341, kMostRowParts = 5462 + kMostVeryLong;

inline CsrMatrix csr_matrix(const scalar_t* values, const int32_t* columns, const int32_t* offsets, int64_t rows, int64_t total) {
    const int64_t share = ceil_div(3 * total, 1024), very_long = share > kLeastVeryLong ? share : kLeastVeryLong;
    const int64_t sixteenth = ceil_div(very_long, 16), part = sixteenth > kLeastRowPart ? sixteenth : kLeastRowPart;
    return {values, columns, offsets, int(rows), int(total), int(very_long), int(part)};
}

// Every `stride`-th entry from `first` on, times x, for several steps mostly. Loads have no condition, and what is behind the end is
// the last entry again: at a stride that the compiler does not know it had made each entry's loads wait for those of the one before.
__device__ inline float dot_long(const CsrMatrix& A, const scalar_t* x, int first, int end, int stride) {
    float sum = 0;
#pragma unroll 1
    for (int k = first; k < end; k += kRowFlight * stride) {
        int32_t column[kRowFlight];
        scalar_t value[kRowFlight];
#pragma unroll
        for (int i = 0; i < kRowFlight; ++i) {
            const int at = min(k + i * stride, end - 1);
            column[i] = __ldcs(A.columns + at);
            value[i] = __ldcs(A.values + at);
        }
#pragma unroll
        for (int i = 0; i < kRowFlight; ++i) {
            const float factor = to_float(__ldg(x + column[i]));
            if (k + i * stride < end) sum = fmaf(to_float(value[i]), factor, sum);
        }
    }
    return sum;
}

// In shared memory: rows put aside by a block's threads, at most kRows, for all of its warps.
template <int kThreads, int kRows>
struct RowsAside {
    static constexpr int kWarps = kThreads / 32;
    int count, rows[kRows];
    float shares[kWarps / 2][kWarps];

    // After a barrier, by the whole block, if count > 0.
    __device__ void multiply(const CsrMatrix& A, const scalar_t* x, scalar_t* y) {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const int per_row = max(1, kWarps / count), place = warp % per_row;
        for (int i = warp / per_row; i < count && warp < kWarps / per_row * per_row; i += kWarps / per_row) {
            const int start = A.offsets[rows[i]], stop = A.offsets[rows[i] + 1];
            const float total = warp_reduce(dot_long(A, x, start + place * 32 + lane, stop, per_row * 32), Sum());
            if (lane == 0) {
                if (per_row > 1) shares[i][place] = total;
                else y[rows[i]] = from_float<scalar_t>(total);
            }
        }
        if (per_row == 1) return;
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += kThreads) {
            float total = 0;
            for (int j = 0; j < per_row; ++j) total += shares[i][j];
            y[rows[i]] = from_float<scalar_t>(total);
        }
    }
};

// How many blocks have added up their parts. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned parts_arrived;

// By each of the first `blocks` blocks: their share of the parts of all very long rows; the last to arrive adds the sums of parts
// in order. `partial`: kMostRowParts floats.
template <int kThreads>
__device__ void multiply_very_long(const CsrMatrix& A, const scalar_t* x, scalar_t* y, float* partial, LongLines<kThreads, kMostVeryLong>& list,
                                   unsigned blocks) {
    constexpr int kWarps = kThreads / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int count = list.find(A.offsets, A.rows, A.total, A.very_long, A.part);
    if (count == 0) return;
    const auto& sorted = list.sorted;
    for (int part = warp * blocks + blockIdx.x; part < sorted.first[count]; part += kWarps * blocks) {
        const int i = list.line_of(part), row = sorted.lines[i], from = A.offsets[row] + (part - sorted.first[i]) * A.part;
        const int end = min(A.offsets[row + 1], from + A.part);
        const float sum = warp_reduce(dot_long(A, x, from + lane, end, 32), Sum());
        if (lane == 0) __stcg(partial + part, sum);
    }
    __syncthreads();
    bool is_last = false;
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicInc(&parts_arrived, blocks - 1) == blocks - 1;  // back to zero with the last one
        __threadfence();
    }
    if (!__syncthreads_or(is_last)) return;
    for (int i = warp; i < count; i += kWarps) {
        float total = 0;
        for (int part = sorted.first[i] + lane; part < sorted.first[i + 1]; part += 32) total += __ldcg(partial + part);
        total = warp_reduce(total, Sum());
        if (lane == 0) y[sorted.lines[i]] = from_float<scalar_t>(total);
    }
}

}  // namespace msbench
