// A X with the rows of X gathered from L2 for runs of neighbouring rows of A: for so many rows that each group of lanes gets several.
//
// As in msbench_spmm_gather.cuh, but a group's rows are one stream of entries: their offsets come with one load, and rows of X
// are under way across the ends of rows. A row on its own waits for its offsets, its entries and its last rows of X in turn, a third of the
// time where it has 32 entries. Where one of a block's rows is long, its rows go one by one.
//
// Bound: nnz * K * size bytes of X from L2 at 7.5 to 8.8 TB/s (measured on an H200).
//
// Measured (H100, 2026-11-26, us): 2²² entries in 2¹⁷ rows times 128 340 (bf16 194), by gather_rows 358 (203). Runs of two rows 353 (201),
// of four 343 (195), those with stores past L2's other contents 339 (194). With loads past L1 581 (311). With eight rows of X
// under way and five blocks a multiprocessor 458 (282), with six blocks and four rows 399 (237): L2 has to be asked by many warps.
#pragma once

#include "msbench_spmm_gather.cuh"

namespace msbench {

template <int kVec, int kGroup, int kFlight, int kRun, int kThreads, int kBlocks, typename Rows>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gather_runs(const __grid_constant__ Rows A, const scalar_t* __restrict__ X, scalar_t* Y, int64_t K, unsigned run_blocks,
                int share, float* partial) {
    static_assert(kRun < kGroup, "a lane has one offset");
    constexpr int kGroups = kThreads / kGroup, kLong = 256;
    __shared__ int long_rows[kGroups];
    __shared__ float shared[kGroups][kGroup * kVec];
    const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
    const unsigned mask = kGroup == 32 ? ~0u : ((1u << kGroup % 32) - 1) << (threadIdx.x % 32 / kGroup * kGroup);
    const int64_t column = (int64_t(blockIdx.y) * kGroup + lane) * kVec;
    const bool inside = column < K;
    const scalar_t* x = X + column;
    const auto store = [&](int row, const float(&sum)[kVec]) {
        if (inside) Part<kVec>::store(Y + row * K + column, sum);
    };
    if (blockIdx.x >= run_blocks) {
        add_share<kVec, kGroup, kFlight, kThreads>(A, X, Y, column, K, int(blockIdx.x - run_blocks), share, partial, shared);
        return;
    }

    const int row0 = int(blockIdx.x + run_blocks * group) * kRun;  // neighbours in different blocks
    const int offset = A.offsets[min(row0 + min(lane, kRun), A.rows)];
    const int begin = __shfl_sync(mask, offset, 0, kGroup), end = __shfl_sync(mask, offset, kRun, kGroup);
    const int row_end = __shfl_down_sync(mask, offset, 1, kGroup), length = lane < kRun ? row_end - offset : 0;
    if (!__syncthreads_or(length > kLong)) {
        const int shift = threadIdx.x % 32 / kGroup * kGroup;
        unsigned empty = (__ballot_sync(mask, lane < kRun && length == 0 && row0 + lane < A.rows) & mask) >> shift;
        unsigned left = (__ballot_sync(mask, length > 0) & mask) >> shift;  // rows that have not ended
        float sum[kVec] = {};
        for (; empty; empty &= empty - 1) store(row0 + __ffs(empty) - 1, sum);
        const auto load = [&](int k) { return k < end ? A.entry(k) : Entry{0, 0.0f}; };
        Entry entry = load(begin + lane);
        for (int e = begin; e < end; e += kGroup) {
            const Entry next = load(e + kGroup + lane);
            const int last = row_end - 1 - e, count = min(kGroup, end - e);
            const unsigned ends = __reduce_or_sync(mask, length > 0 && last >= 0 && last < kGroup ? 1u << last : 0u);
            for (int t = 0; t < count; t += kFlight) {
                Part<kVec> part[kFlight];
#pragma unroll
                for (int u = 0; u < kFlight; ++u) {
                    const int from = __shfl_sync(mask, entry.column, t + u, kGroup) * int(K);
                    if (t + u < count && inside) part[u].load(x + from);
                }
#pragma unroll
                for (int u = 0; u < kFlight; ++u) {
                    const float value = __shfl_sync(mask, entry.value, t + u, kGroup);
                    if (t + u < count && inside) part[u].add_to(sum, value);
                    if (ends >> (t + u) & 1) {
                        store(row0 + __ffs(left) - 1, sum);
                        left &= left - 1;
#pragma unroll
                        for (int k = 0; k < kVec; ++k) sum[k] = 0;
                    }
                }
            }
            entry = next;
        }
        return;
    }

    for (int i = 0; i < kRun; ++i) {
        const int row = row0 + i, first = __shfl_sync(mask, offset, i, kGroup), until = __shfl_sync(mask, offset, i + 1, kGroup);
        const bool is_long = until - first > kLong;
        if (!is_long) {
            float sum[kVec] = {};
            add_entries<kVec, kGroup, kFlight>(A, x, inside, K, first, until, sum);
            if (row < A.rows) store(row, sum);
        }
        __syncthreads();
        if (lane == 0) long_rows[group] = is_long && until - first < share ? row : -1;
        __syncthreads();
        for (int g = 0; g < kGroups; ++g) {
            if (long_rows[g] < 0) continue;
            const int from = A.begin(long_rows[g]), to = A.end(long_rows[g]), each = (to - from + kGroups - 1) / kGroups;
            float sum[kVec] = {};
            add_entries<kVec, kGroup, kFlight>(A, x, inside, K, min(from + group * each, to), min(from + (group + 1) * each, to), sum);
            sum_groups<kVec, kGroup, kGroups>(sum, shared);
            if (group == 0) store(long_rows[g], sum);
        }
    }
}

// Whether every group of lanes gets two runs, of 64 groups on each of 132 multiprocessors.
inline bool worth_runs(int64_t rows) {
    return rows >= 1 << 17;
}

// One launch. `workspace`: gather_bytes(K). X and Y are aligned to 16 bytes, and K is a multiple of kPiece.
template <typename Rows>
cudaError_t multiply_by_runs(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    constexpr int kThreads = 128, kGroup = 16, kFlight = 4, kRun = 8;
    const unsigned blocks = unsigned(ceil_div(A.rows, kThreads / kGroup * kRun)), columns = unsigned(ceil_div(K, kGroup * kPiece));
    const int share = int(std::max<int64_t>(ceil_div(A.total, kMostShares), 512));
    const unsigned shares = A.total >= share ? unsigned(ceil_div(A.total, share)) : 0;
    return Launch(dim3(blocks + shares, columns), kThreads, stream)(
        gather_runs<kPiece, kGroup, kFlight, kRun, kThreads, 8, Rows>, A, X, Y, K, blocks, share, static_cast<float*>(workspace));
}

}  // namespace msbench
