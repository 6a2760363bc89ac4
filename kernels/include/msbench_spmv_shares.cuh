// A x with A in CSR by equal shares of entries, however long rows are.
//
// Products don't ask whose row they are in. A block loads a share of the entries, four a thread, and a little more, and multiplies them
// while it looks for the rows in its share: two trips to memory where a row that asks for its entries makes three. A segmented scan turns
// products into sums since the last row's beginning, and each row takes the one at its end.
//
// Rows up to kShareReach long are one block's, in whose share they begin and which reaches beyond it for them: even matrices need no block to
// wait for another. Of longer ones that are in several shares each block leaves a sum, and the last to arrive adds these up, in order.
//
// Measured (H200, 2026-11-24): 671088 entries in 2¹⁵ skewed rows 11.1 us of which an empty call is 2.8, even 8.5; blocks of 256, six a
// multiprocessor, and asking for x ahead are within 3 % of that. Even rows are 12 % faster where threads share a row.
#pragma once

#include "msbench_entries.cuh"

namespace msbench {

constexpr int kShareReach = 128, kMostSpmvShares = 4096;

// Of the long row that begins in this share: how many blocks have left their sum. Zero between calls, which share it if they overlap: one
// stream at a time.
static __device__ unsigned spmv_arrived[kMostSpmvShares];

struct CsrShares {
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, total, share;
    float* partial;  // [2][shares]: of the row that a share begins amid, and of the one that it ends amid
};

// A thread's four entries from `at` on; what is behind `end` becomes value 0 of column -1.
template <bool kFours>
__device__ inline void load_entries(const CsrShares& A, int at, int end, int (&column)[4], float (&value)[4]) {
    if (kFours && at + 4 <= end) {
        load_four_once(A.columns + at, column);
        load_four_once(A.values + at, value);
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        column[j] = at + j < end ? __ldg(A.columns + at + j) : -1;
        value[j] = at + j < end ? to_float(__ldg(A.values + at + j)) : 0.0f;
    }
}

// By a warp: block t leaves `sum` (of the lane that calls it its own) of row `row` with entries [begin, end).
__device__ inline void leave_sum(const CsrShares& A, scalar_t* y, int row, int begin, int end, float sum) {
    const int lane = threadIdx.x % 32, t = blockIdx.x, shares = gridDim.x;
    const int first = begin / A.share, final = (end - 1) / A.share;
    bool is_last = false;
    if (lane == 0) {
        __stcg(A.partial + (t == first ? shares + t : t), sum);
        __threadfence();
        is_last = atomicInc(spmv_arrived + first, final - first) == unsigned(final - first);  // which sets it back to zero
        __threadfence();
    }
    if (!__any_sync(~0u, is_last)) return;
    float total = 0;
    for (int i = first + lane; i <= final; i += 32) total += __ldcg(A.partial + (i == first ? shares + i : i));
    total = warp_reduce(total, Sum());
    if (lane == 0) y[row] = from_float<scalar_t>(total);
}

template <int kThreads, int kBlocks, bool kFours>
__global__ void __launch_bounds__(kThreads, kBlocks) multiply_csr_shares(const __grid_constant__ CsrShares A, const scalar_t* x, scalar_t* y) {
    constexpr int kWarps = kThreads / 32, kSpan = 4 * kThreads, kProbes = kThreads / 2, kNear = kThreads / 2;
    __shared__ alignas(16) float sums[kSpan];
    __shared__ alignas(4) unsigned char heads[kSpan];
    __shared__ float tails[kWarps];
    __shared__ unsigned char has_head[kWarps];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int start = blockIdx.x * A.share, stop = min(start + A.share, A.total), reach = min(stop + kShareReach, A.total);

    int column[4];
    float value[4];
    load_entries<kFours>(A, start + 4 * tid, reach, column, value);
    *reinterpret_cast<uchar4*>(heads + 4 * tid) = make_uchar4(0, 0, 0, 0);

    // The share's first row begins behind row `low`, or is the first of all.
    int low = 0, high = A.rows;
    do {
        const int stride = (high - low + kProbes - 1) / kProbes, at = low + (tid + 1) * stride;
        const int before = __syncthreads_count(tid < kProbes && at < high && A.offsets[at] < start);
        low += before * stride;
        high = min(high, low + stride);
    } while (high - low > kNear);

    // Rows that begin in the share, and the one before: a thread has one, or several if most are empty. `end` of none is its `begin`.
    const auto bounds = [&](int row, int& begin, int& end) {
        begin = A.offsets[min(row, A.rows)];
        end = A.offsets[min(row + 1, A.rows)];
    };
    const auto mark = [&](int begin, int end) {
        if (end > max(begin, start) && begin < stop) heads[max(begin, start) - start] = 1;
    };
    int begin, end;
    bounds(low + tid, begin, end);
    float product[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) product[j] = column[j] >= 0 ? value[j] * to_float(__ldg(x + column[j])) : 0.0f;
    mark(begin, end);
    int last = low + kThreads, last_end = end;  // behind the last row that is looked at
    while (__syncthreads_or(tid == kThreads - 1 && last < A.rows && (last_end < stop || stop == A.total))) {
        int more;
        bounds(last + tid, more, last_end);
        mark(more, last_end);
        last += kThreads;
    }

    // Sums of a thread's own four, of its warp's, and of the block's.
    const uchar4 head = *reinterpret_cast<const uchar4*>(heads + 4 * tid);
    float sum[4] = {product[0], product[1], product[2], product[3]};
    if (!head.y) sum[1] += sum[0];
    if (!head.z) sum[2] += sum[1];
    if (!head.w) sum[3] += sum[2];
    const unsigned mask = __ballot_sync(~0u, head.x | head.y | head.z | head.w), up_to = mask & ((2u << lane) - 1), before = up_to & ~(1u << lane);
    const int from = up_to ? 31 - __clz(up_to) : 0;
    float carry = sum[3];
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const float other = __shfl_up_sync(~0u, carry, distance);
        if (lane - distance >= from) carry += other;
    }
    if (lane == 31) tails[warp] = carry, has_head[warp] = mask != 0;
    carry = __shfl_up_sync(~0u, carry, 1);
    if (lane == 0) carry = 0;
    __syncthreads();
    const unsigned headed = __ballot_sync(~0u, lane < warp && has_head[lane % kWarps]);
    const int from_warp = headed ? 31 - __clz(headed) : 0;
    const float earlier = warp_reduce(lane < warp && lane >= from_warp ? tails[lane % kWarps] : 0.0f, Sum());
    if (!before) carry += earlier;
    if (!head.x) {
        sum[0] += carry;
        if (!head.y) {
            sum[1] += carry;
            if (!head.z) {
                sum[2] += carry;
                if (!head.w) sum[3] += carry;
            }
        }
    }
    *reinterpret_cast<float4*>(sums + 4 * tid) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();

    for (int row = low + tid; row - tid < last; row += kThreads) {
        if (row != low + tid) bounds(row, begin, end);
        const bool exists = row < A.rows, is_long = end - begin > kShareReach;
        const bool begins = exists && begin >= start && (begin < stop || stop == A.total);
        const bool shared = exists && is_long && (begins ? end > stop : begin < start && end > start);
        if (begins && !shared) y[row] = from_float<scalar_t>(end > begin ? sums[end - 1 - start] : 0.0f);
        unsigned left = __ballot_sync(~0u, shared);
        const float own = shared ? sums[min(end, stop) - 1 - start] : 0.0f;
        while (left) {
            const int from_lane = __ffs(left) - 1;
            left &= left - 1;
            leave_sum(A, y, __shfl_sync(~0u, row, from_lane), __shfl_sync(~0u, begin, from_lane), __shfl_sync(~0u, end, from_lane),
                      __shfl_sync(~0u, own, from_lane));
        }
    }
}

inline size_t csr_shares_bytes() {
    return 2 * kMostSpmvShares * sizeof(float);
}

// For at most 2²² entries. `partial`: csr_shares_bytes().
template <int kThreads, int kBlocks>
cudaError_t multiply_by_csr_shares(CsrShares A, const scalar_t* x, scalar_t* y, cudaStream_t stream) {
    constexpr int kMost = 4 * kThreads - kShareReach, kLeast = 256;
    static_assert(kMost >= kLeast);
    const int64_t even = ceil_div(ceil_div(A.total, 132 * kBlocks), 4) * 4;
    A.share = int(even < kLeast ? kLeast : even > kMost ? kMost : even);
    const unsigned blocks = unsigned(ceil_div(A.total, A.share));
    if (fours_allowed(A.columns, A.values)) multiply_csr_shares<kThreads, kBlocks, true><<<blocks, kThreads, 0, stream>>>(A, x, y);
    else multiply_csr_shares<kThreads, kBlocks, false><<<blocks, kThreads, 0, stream>>>(A, x, y);
    return cudaGetLastError();
}

}  // namespace msbench
