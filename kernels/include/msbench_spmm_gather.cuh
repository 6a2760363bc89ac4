// A X with the rows of X gathered from L2, for matrices of any shape and arrays of any alignment.
//
// A group of 16 or 32 lanes has a row of A and as many columns of X as it loads at once, 16 bytes a lane (one element where
// arrays are not aligned): the lanes load as many entries together, and pass them round, with 4 to 16 rows of X under way. A grid's
// first blocks have the same columns, so that the part of X that is in use stays in L2. Rows of more than 256 entries are shared
// by the block's groups; very long ones by a grid's last blocks, one for each share of A's entries, which look for the row that their share
// begins in (as in spmv_csr).
#pragma once

#include "msbench_find_line.cuh"
#include "msbench_launch.cuh"
#include "msbench_sparse_rows.cuh"

namespace msbench {

constexpr int kMostSums = 1 << 16;  // shares of long rows times blocks of columns

// Of the long row whose first share this is: how many shares have been added up. Zero between calls, which share it if they
// overlap: one stream at a time.
static __device__ unsigned shares_arrived[kMostSums];

// A lane's part of a row of X or Y.
template <int kVec>
struct Part {
    uint4 raw;
    __device__ void load(const scalar_t* p) { raw = __ldg(reinterpret_cast<const uint4*>(p)); }
    __device__ void add_to(float (&sum)[kVec], float value) const { add_piece(raw, value, sum); }
    static __device__ void store(scalar_t* p, const float (&sum)[kVec]) {
        *reinterpret_cast<Packet<scalar_t>*>(p) = rounded(sum);
    }
};

template <>
struct Part<1> {
    scalar_t raw;
    __device__ void load(const scalar_t* p) { raw = __ldg(p); }
    __device__ void add_to(float (&sum)[1], float value) const { sum[0] = fmaf(value, to_float(raw), sum[0]); }
    static __device__ void store(scalar_t* p, const float (&sum)[1]) { *p = from_float<scalar_t>(sum[0]); }
};

// Adds entries [begin, end) of a row; `x` is this lane's column of row 0 of X, used if `inside`.
template <int kVec, int kGroup, int kFlight, typename Rows>
__device__ inline void add_entries(const Rows& A, const scalar_t* x, bool inside, int64_t K, int begin, int end,
                                   float (&sum)[kVec]) {
    const int lane = threadIdx.x % kGroup;
    const unsigned mask = kGroup == 32 ? ~0u : ((1u << kGroup % 32) - 1) << (threadIdx.x % 32 / kGroup * kGroup);
    const auto load = [&](int k) { return k < end ? A.entry(k) : Entry{-1, 0.0f}; };
    Entry entry = load(begin + lane);
    for (int e = begin; e < end; e += kGroup) {
        const Entry next = load(e + kGroup + lane);
        const int count = __popc(__ballot_sync(mask, entry.column >= 0) & mask);  // padding comes last
        for (int t = 0; t < count; t += kFlight) {
            Part<kVec> part[kFlight];
            bool used[kFlight];
#pragma unroll
            for (int u = 0; u < kFlight; ++u) {
                const int column = __shfl_sync(mask, entry.column, t + u, kGroup);
                used[u] = t + u < count && inside;
                if (used[u]) part[u].load(x + column * K);
            }
#pragma unroll
            for (int u = 0; u < kFlight; ++u) {
                const float value = __shfl_sync(mask, entry.value, t + u, kGroup);
                if (used[u]) part[u].add_to(sum, value);
            }
        }
        if (count < kGroup) break;
        entry = next;
    }
}

// The sums that the groups of a block have of one row, in the first group.
template <int kVec, int kGroup, int kGroups>
__device__ inline void sum_groups(float (&sum)[kVec], float (&shared)[kGroups][kGroup * kVec]) {
    const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
    __syncthreads();  // an earlier row's may still be read
#pragma unroll
    for (int k = 0; k < kVec; ++k) shared[group][lane * kVec + k] = sum[k];
    __syncthreads();
    if (group > 0) return;
    for (int other = 1; other < kGroups; ++other) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum[k] += shared[other][lane * kVec + k];
    }
}

// By a block: entries of the very long row that has entry t * share, from there to the next share, or from the row's first
// one on. The last share to arrive adds them all up, in order.
template <int kVec, int kGroup, int kFlight, int kThreads, typename Rows>
__device__ __noinline__ void add_share(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t column, int64_t K, int t, int share,
                          float* partial, float (&shared)[kThreads / kGroup][kGroup * kVec]) {
    constexpr int kGroups = kThreads / kGroup;
    const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup, at = t * share;
    const bool inside = column < K;
    const scalar_t* x = X + column;
    FindLine<kThreads> find(A.rows, at);
    find.finish(A.offsets);
    const int row_begin = A.begin(find.low), row_end = A.end(find.low);
    if (row_end - row_begin < share) return;
    const int first = (row_begin + share - 1) / share, last = (row_end - 1) / share;  // shares of this row
    const int from = t == first ? row_begin : at, until = min(row_end, at + share);
    const int each = (until - from + kGroups - 1) / kGroups;
    float sum[kVec] = {};
    add_entries<kVec, kGroup, kFlight>(A, x, inside, K, min(from + group * each, until),
                                       min(from + (group + 1) * each, until), sum);
    sum_groups<kVec, kGroup, kGroups>(sum, shared);
    if (group > 0) return;
    const unsigned mask = kGroup == 32 ? ~0u : (1u << kGroup % 32) - 1;
    if (inside) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) __stcg(partial + t * K + column + k, sum[k]);
    }
    __threadfence();
    __syncwarp(mask);
    int is_last = 0;
    if (lane == 0) {
        unsigned* count = shares_arrived + first * gridDim.y + blockIdx.y;
        is_last = atomicInc(count, last - first) == unsigned(last - first);  // which sets it back to zero
        __threadfence();
    }
    if (!__shfl_sync(mask, is_last, 0, kGroup) || !inside) return;
#pragma unroll
    for (int k = 0; k < kVec; ++k) sum[k] = 0;
#pragma unroll 4
    for (int i = first; i <= last; ++i) {
#pragma unroll
        for (int k = 0; k < kVec; ++k) sum[k] += __ldcg(partial + i * K + column + k);
    }
    Part<kVec>::store(Y + find.low * K + column, sum);
}

template <int kVec, int kGroup, int kFlight, int kThreads, int kBlocks, typename Rows>
__global__ void __launch_bounds__(kThreads, kBlocks)
    gather_rows(const __grid_constant__ Rows A, const scalar_t* __restrict__ X, scalar_t* Y, int64_t K,
                unsigned row_blocks, int share, float* partial) {
    constexpr int kGroups = kThreads / kGroup, kLong = 256;
    __shared__ int long_rows[kGroups];
    __shared__ float shared[kGroups][kGroup * kVec];
    const int group = threadIdx.x / kGroup, lane = threadIdx.x % kGroup;
    const int64_t column = (int64_t(blockIdx.y) * kGroup + lane) * kVec;
    const bool inside = column < K;
    const scalar_t* x = X + column;
    const auto store = [&](int row, const float(&sum)[kVec]) {
        if (inside) Part<kVec>::store(Y + row * K + column, sum);
    };
    cudaGridDependencySynchronize();

    if constexpr (Rows::kUneven) {
        if (blockIdx.x >= row_blocks) {
            add_share<kVec, kGroup, kFlight, kThreads>(A, X, Y, column, K, int(blockIdx.x - row_blocks), share, partial, shared);
            return;
        }
    }
    const int row = blockIdx.x + row_blocks * group;  // neighbours in different blocks
    int begin = 0, end = 0;
    if (row < A.rows) {
        begin = A.begin(row);
        end = A.end(row);
    }
    const bool is_long = end - begin > kLong;
    if (!is_long) {
        float sum[kVec] = {};
        add_entries<kVec, kGroup, kFlight>(A, x, inside, K, begin, end, sum);
        if (row < A.rows) store(row, sum);
    }
    const bool is_shared = Rows::kUneven && end - begin >= share;
    if (lane == 0) long_rows[group] = is_long && !is_shared ? row : -1;
    if (__syncthreads_or(is_long)) {
        for (int i = 0; i < kGroups; ++i) {
            if (long_rows[i] < 0) continue;
            const int first = A.begin(long_rows[i]), last = A.end(long_rows[i]);
            const int each = (last - first + kGroups - 1) / kGroups;
            float sum[kVec] = {};
            add_entries<kVec, kGroup, kFlight>(A, x, inside, K, min(first + group * each, last),
                                               min(first + (group + 1) * each, last), sum);
            sum_groups<kVec, kGroup, kGroups>(sum, shared);
            if (group == 0) store(long_rows[i], sum);
        }
    }
}

constexpr int kMostShares = 128;

inline size_t gather_bytes(int64_t K, int most_shares = kMostShares) {
    return most_shares * K * sizeof(float);
}

template <int kVec, int kGroup, int kFlight, int kThreads, int kBlocks, typename Rows>
cudaError_t launch_gather(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, bool first,
                          cudaStream_t stream, int most_shares) {
    const unsigned blocks = unsigned(ceil_div(A.rows, kThreads / kGroup)), columns = unsigned(ceil_div(K, kGroup * kVec));
    const int share = int(std::max<int64_t>(ceil_div(A.total, most_shares), 512));
    const unsigned shares = Rows::kUneven && A.total >= share ? unsigned(ceil_div(A.total, share)) : 0;
    Launch launch(dim3(blocks + shares, columns), kThreads, stream);
    if (!first) launch.early();
    return launch(gather_rows<kVec, kGroup, kFlight, kThreads, kBlocks, Rows>, A, X, Y, K, blocks, share,
                  static_cast<float*>(workspace));
}

// `workspace`: gather_bytes(K, most_shares), for rows that may be uneven. `first`: no kernel comes before this one in the launcher, or it is
// to wait for that one's end. `most_shares`: into how many all entries are cut for rows that are very long; at most 1024 for K of 2048.
template <typename Rows>
cudaError_t gather(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, bool first,
                   cudaStream_t stream, int most_shares = kMostShares) {
    const bool pieces = packets_allowed(X, Y) && K % kPiece == 0;
    if (!pieces) return launch_gather<1, 32, 16, 256, 3>(A, X, Y, K, workspace, first, stream, most_shares);
    if (K >= 128 * kPiece) return launch_gather<kPiece, 32, 4, 128, 8>(A, X, Y, K, workspace, first, stream, most_shares);
    return launch_gather<kPiece, 16, 4, 128, 8>(A, X, Y, K, workspace, first, stream, most_shares);
}

}  // namespace msbench
