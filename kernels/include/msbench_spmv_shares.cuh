// A x with A in CSR by equal shares of entries, however long rows are.
//
// Products don't ask whose row they are in. A block loads a share of the entries, four a thread, and a little more, and multiplies them
// while it looks for the rows in its share: two trips to memory where a row that asks for its entries makes three. A segmented scan turns
// products into sums since the last row's beginning, and each row takes the one at its end.
//
// Where rows are even, those of a share are about where their number says: the first offsets that a block reads are the ones there, and some at
// equal distances, which it searches if the share proves to be elsewhere. Even rows cost no search, and skewed ones no trip for seeming even.
//
// Rows up to kShareReach long are one block's, in whose share they begin and which reaches beyond it for them: even matrices need no block to
// wait for another. Of longer ones that are in several shares each block but the last leaves a sum and a mark in one word, so that no fence is
// needed, and the last waits for these words and adds them up, in order. Blocks begin in the order of their numbers, and who waits has the
// highest of the row's: those that it waits for have begun.
//
// Bound: a launch, two trips to memory, and one through L2 for long rows.
//
// Measured (H200, 2026-11-24): 671088 entries in 2¹⁵ skewed rows 9.4 us, of which an empty call is 2.8, even 8.5; where every block searched
// and the last to arrive added up, behind fences, 11.2 and 8.8. Blocks of 256, six a multiprocessor, are within 3 % of that. 2026-11-26 (empty:
// 4.4), 500650 entries of 10007 rows: 10.2, skewed 11.4; by a block of 1024 on each multiprocessor, which copies x, 9.1 and 10.6, without the
// copy 10.2 and 11.5. Where such blocks don't suffice, eight entries a thread lose (10.3 for 9.6).
#pragma once

#include "msbench_entries.cuh"
#include "msbench_held_vector.cuh"
#include "msbench_launch.cuh"

namespace msbench {

constexpr int kShareReach = 128, kMostSpmvShares = 4096;

// What each block has of the long row that goes on behind its share: the sum's bits, and 1 above them. Zero between calls, which share it if
// they overlap: one stream at a time.
static __device__ unsigned long long spmv_left[kMostSpmvShares];

struct CsrShares {
    const scalar_t* values;
    const int32_t *columns, *offsets;
    int rows, total, share;
    float rows_each;  // by entry
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

// For the blocks behind: `sum` of the row that goes on there.
__device__ inline void leave_sum(float sum) {
    *const_cast<volatile unsigned long long*>(spmv_left + blockIdx.x) = 1ull << 32 | __float_as_uint(sum);
}

// By a warp: what blocks from `first` to the one before this have left, which it takes away.
__device__ inline float sum_left(int first) {
    float sum = 0;
    for (int i = first + int(threadIdx.x) % 32; i < int(blockIdx.x); i += 32) {
        volatile unsigned long long* const left = spmv_left + i;
        unsigned long long word;
        do word = *left;
        while (word == 0);
        *left = 0;
        sum += __uint_as_float(unsigned(word));
    }
    return warp_reduce(sum, Sum());
}

// kTable: x is copied to shared memory.
template <int kThreads, int kBlocks, bool kFours, bool kTable>
__global__ void __launch_bounds__(kThreads, kBlocks)
    multiply_csr_shares(const __grid_constant__ CsrShares A, const scalar_t* x, scalar_t* y, int cols) {
    constexpr int kWarps = kThreads / 32, kSpan = 4 * kThreads, kProbes = kThreads / 2, kNear = kThreads / 2, kBack = kThreads / 8;
    __shared__ alignas(16) float sums[kSpan];
    __shared__ alignas(4) unsigned char heads[kSpan];
    __shared__ float tails[kWarps];
    __shared__ unsigned char has_head[kWarps];
    extern __shared__ __align__(16) unsigned char raw[];
    scalar_t* const table = reinterpret_cast<scalar_t*>(raw);
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int start = blockIdx.x * A.share, stop = min(start + A.share, A.total), reach = min(stop + kShareReach, A.total);

    int column[4];
    float value[4];
    load_entries<kFours>(A, start + 4 * tid, reach, column, value);
    *reinterpret_cast<uchar4*>(heads + 4 * tid) = make_uchar4(0, 0, 0, 0);
    if constexpr (kTable) begin_copy(table, x, cols);

    // Rows from `low` on: those that begin in the share, and the one before. A thread has one, or several if most are empty. `end` of none
    // is its `begin`.
    const auto bounds = [&](int row, int& begin, int& end) {
        begin = A.offsets[min(row, A.rows)];
        end = A.offsets[min(row + 1, A.rows)];
    };
    const auto mark = [&](int begin, int end) {
        if (end > max(begin, start) && begin < stop) heads[max(begin, start) - start] = 1;
    };
    int low = max(0, int(float(start) * A.rows_each) - kBack), high = A.rows, stride = (high + kProbes - 1) / kProbes, begin, end;
    bounds(low + tid, begin, end);
    int probe = tid < kProbes && (tid + 1) * stride < high ? A.offsets[(tid + 1) * stride] : start;
    if constexpr (kTable) end_copy();
    if (!__syncthreads_and((tid > 0 || low == 0 || begin < start) && (tid < kThreads - 1 || end >= stop))) {
        low = 0;
        while (true) {
            low += __syncthreads_count(probe < start) * stride;
            high = min(high, low + stride);
            if (high - low <= kNear) break;
            stride = (high - low + kProbes - 1) / kProbes;
            const int at = low + (tid + 1) * stride;
            probe = tid < kProbes && at < high ? A.offsets[at] : start;
        }
        bounds(low + tid, begin, end);
    }
    float product[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) product[j] = column[j] >= 0 ? value[j] * to_float(kTable ? table[column[j]] : __ldg(x + column[j])) : 0.0f;
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
        const bool goes_on = shared && end > stop;
        if (goes_on) leave_sum(sums[stop - 1 - start]);
        const unsigned ends = __ballot_sync(~0u, shared && !goes_on);  // one at most
        if (ends == 0) continue;
        const float left = sum_left(__shfl_sync(~0u, begin, __ffs(ends) - 1) / A.share);
        if (shared && !goes_on) y[row] = from_float<scalar_t>(left + sums[end - 1 - start]);
    }
}

// Entries for one block of 1024 threads on each multiprocessor.
constexpr int kSharedByOneWave = 132 * (4 * 1024 - kShareReach);

// For at most 2²² entries; kTable: x fits into shared memory.
template <int kThreads, int kBlocks, bool kTable>
cudaError_t multiply_by_csr_shares(CsrShares A, const scalar_t* x, scalar_t* y, int64_t cols, cudaStream_t stream) {
    constexpr int kMost = 4 * kThreads - kShareReach, kLeast = 256;
    const int64_t even = ceil_div(ceil_div(A.total, 132 * kBlocks), 4) * 4;
    A.share = int(even < kLeast ? kLeast : even > kMost ? kMost : even);
    A.rows_each = float(A.rows) / float(A.total);
    auto* const kernel = fours_allowed(A.columns, A.values) ? multiply_csr_shares<kThreads, kBlocks, true, kTable>
                                                            : multiply_csr_shares<kThreads, kBlocks, false, kTable>;
    Launch launch(unsigned(ceil_div(A.total, A.share)), kThreads, stream);
    return launch.shared(kTable ? vector_bytes(cols) : 0)(kernel, A, x, y, int(cols));
}

}  // namespace msbench
