// A X for rows of A that are too long for a warp, where a warp has a row (msbench_spmm_short.cuh): shared by a block's warps, or by many blocks.
//
// Every one of the blocks for very long rows looks at as many offsets as it has threads, and mostly ends there: 0.3 us in all where rows are
// even (H200), while blocks that each look for their share of the entries take 1 us.
#pragma once

#include <algorithm>

#include "msbench_load_if.cuh"
#include "msbench_long_lines.cuh"
#include "msbench_sparse_rows.cuh"

namespace msbench {

// Adds entries [begin, end) of a row, times this lane's kWide columns of X, every 32nd from `x` on, with kFlight rows of X under way. `left`:
// columns from the lane's first one on; only the last of its columns may be missing, if kTight. By whole warps, so no branch is around it.
template <int kWide, int kFlight, bool kTight, typename Rows>
__device__ __forceinline__ void add_row(const Rows& A, const scalar_t* x, int left, int K, int begin, int end, float (&sum)[kWide]) {
    const int lane = threadIdx.x % 32;
    asm("" : "+l"(x));  // or the compiler computes addresses from more parts
#pragma unroll 1
    for (int e = begin; __any_sync(~0u, e < end); e += 32) {
        Entry entry{-1, 0.0f};
        if (e + lane < end) entry = A.entry(e + lane);
        if (entry.column < 0) entry.value = 0;
        int count = __popc(__ballot_sync(~0u, entry.column >= 0));  // padding comes last
        int row_of_x = entry.column * K;
#pragma unroll 1
        while (count > 0) {
            Loaded<scalar_t> part[kFlight][kWide];
#pragma unroll
            for (int u = 0; u < kFlight; ++u) {
                const scalar_t* const from = x + __shfl_sync(~0u, row_of_x, u);
#pragma unroll
                for (int w = 0; w < kWide; ++w) part[u][w].load_if(u < count && ((kTight && w < kWide - 1) || left > w * 32), from + w * 32);
            }
#pragma unroll
            for (int u = 0; u < kFlight; ++u) {
                const float factor = __shfl_sync(~0u, entry.value, u);
                if (u >= count) continue;
#pragma unroll
                for (int w = 0; w < kWide; ++w) sum[w] = fmaf(factor, part[u][w].value(), sum[w]);
            }
            row_of_x = __shfl_down_sync(~0u, row_of_x, kFlight % 32), entry.value = __shfl_down_sync(~0u, entry.value, kFlight % 32);
            count -= kFlight;
        }
    }
}

// Adds up what a block's warps have of the same columns, and calls store(k, sum) for each k below `left`.
template <int kThreads, int kWide, typename Store>
__device__ __forceinline__ void sum_warps(const float (&sum)[kWide], int left, Store store) {
    __shared__ float sums[kThreads / 32][kWide * 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int w = 0; w < kWide; ++w) sums[warp][w * 32 + lane] = sum[w];
    __syncthreads();
    for (int k = threadIdx.x; k < min(kWide * 32, left); k += kThreads) {
        float total = 0;
#pragma unroll
        for (int other = 0; other < kThreads / 32; ++other) total += sums[other][k];
        store(k, total);
    }
    __syncthreads();  // before the next sums
}

// By a block: entries [begin, end) of a row, shared by its warps.
template <int kThreads, int kWide, int kFlight, typename Rows, typename Store>
__device__ __forceinline__ void add_row_by_block(const Rows& A, const scalar_t* X, int first, int K, int begin, int end, Store store) {
    constexpr int kWarps = kThreads / 32;
    const int column = first + int(threadIdx.x) % 32, each = (end - begin + kWarps - 1) / kWarps, from = begin + int(threadIdx.x) / 32 * each;
    float sum[kWide] = {};
    add_row<kWide, kFlight, false>(A, X + column, K - column, K, min(from, end), min(from + each, end), sum);
    sum_warps<kThreads>(sum, K - first, store);
}

// A very long row has kLeastVeryLong entries at least, and so many of all that there are kMostVeryLongRows at most; a block has a part of it.
constexpr int kLeastVeryLong = 512, kMostVeryLongRows = 128, kLeastRowPart = 128, kVeryLongBlocks = 48;

struct VeryLongRows {
    int least, part;  // entries of a row and of a part
    unsigned blocks;  // that have them: the grid's first ones
    float* partial;   // [parts][K]

    static int64_t least_of(int64_t total) { return std::max<int64_t>(ceil_div(total, kMostVeryLongRows), kLeastVeryLong); }
    static int64_t part_of(int64_t total) { return std::max<int64_t>(least_of(total) / 16, kLeastRowPart); }
    static size_t bytes(int64_t total, int64_t K) { return (total / part_of(total) + total / least_of(total)) * K * sizeof(float); }
    VeryLongRows(bool uneven, int64_t total, void* workspace)
        : least(int(least_of(total))),
          part(int(part_of(total))),
          blocks(uneven && total >= least ? kVeryLongBlocks : 0),
          partial(static_cast<float*>(workspace)) {}
};

// How many blocks have added up their parts. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ unsigned row_parts_arrived;

// By each of the first blocks: their share of the parts of all very long rows. The last to arrive adds up the parts, in order.
template <int kThreads, int kWide, int kFlight, typename Rows>
__device__ __forceinline__ void multiply_very_long(const Rows& A, const scalar_t* X, scalar_t* Y, int K, const VeryLongRows& very_long) {
    constexpr int kWarps = kThreads / 32, kColumns = 32 * kWide, kPartFlight = 8;
    __shared__ LongLines<kThreads, kMostVeryLongRows> list;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int found = list.find(A.offsets, A.rows, A.total, very_long.least, very_long.part);
    if (found == 0) return;
    const auto& sorted = list.sorted;
    const int groups = int(ceil_div(K, kColumns)), units = sorted.first[found] * groups;
    for (int unit = blockIdx.x; unit < units; unit += very_long.blocks) {
        const int part = unit / groups, first = unit % groups * kColumns, i = list.line_of(part), row = sorted.lines[i];
        const int from = A.begin(row) + (part - sorted.first[i]) * very_long.part, until = min(A.end(row), from + very_long.part);
        add_row_by_block<kThreads, kWide, kFlight>(A, X, first, K, from, until, [&](int k, float sum) {
            __stcg(very_long.partial + int64_t(part) * K + first + k, sum);
        });
    }
    bool is_last = false;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicInc(&row_parts_arrived, very_long.blocks - 1) == very_long.blocks - 1;  // back to zero with the last one
        __threadfence();
    }
    if (!__syncthreads_or(is_last)) return;
    for (int unit = 0; unit < found * groups; ++unit) {
        const int i = unit / groups, first = unit % groups * kColumns, end = sorted.first[i + 1];
        float sum[kWide] = {};
        for (int part = sorted.first[i] + warp; part < end; part += kPartFlight * kWarps) {
            float x[kPartFlight][kWide];
#pragma unroll
            for (int u = 0; u < kPartFlight; ++u) {
                const float* const from = very_long.partial + int64_t(min(part + u * kWarps, end - 1)) * K;
#pragma unroll
                for (int w = 0; w < kWide; ++w) x[u][w] = __ldcg(from + min(first + w * 32 + lane, K - 1));
            }
#pragma unroll
            for (int u = 0; u < kPartFlight; ++u) {
#pragma unroll
                for (int w = 0; w < kWide; ++w) sum[w] += part + u * kWarps < end ? x[u][w] : 0.0f;
            }
        }
        scalar_t* const y = Y + (int64_t(sorted.lines[i]) * K + first);
        sum_warps<kThreads>(sum, K - first, [&](int k, float total) { y[k] = from_float<scalar_t>(total); });
    }
}

}  // namespace msbench
