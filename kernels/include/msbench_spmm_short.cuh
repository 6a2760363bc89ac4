// A X that is over in a few microseconds, for arrays and rows of X of any alignment: what counts are trips to memory in turn.
//
// They are three: offsets, entries, rows of X. So the grid's first instructions ask for all of the inputs, from memory to L2, and only the
// offsets take a whole trip. A warp has a row of A and 32 columns, with 16 rows of X under way; rows of more than kLongShort entries are
// shared by a block's warps, very long ones by a grid's last blocks, as in msbench_spmm_gather.cuh. Rows that are short need little code,
// which comes from memory, too.
//
// Measured (H100, 2026-11-26, us, CSR still without blocks for very long rows): 15055 entries in 1003 rows times 77 8.45 (bf16 8.61), by
// gather_rows 9.31 (9.54), by naive.cu 9.34 (8.64); skewed 29.6 (36.8), by gather_rows 18.5 (19.4), hence those blocks, not yet measured. ELL
// of 1501 rows of 10 8.00 (8.10), 9.06 (8.96) and 7.90 (7.30). In CSR blocks of 512 threads take 8.86 (9.06), 9.09 (9.28) if
// they don't ask ahead, and 8.64 (9.34) with 32 rows of X under way.
#pragma once

#include "msbench_spmm_gather.cuh"
#include "msbench_spmm_prefetch.cuh"

namespace msbench {

constexpr int kShortThreads = 256, kShortWarps = kShortThreads / 32, kShortFlight = 16;
constexpr int kLongShort = 128;  // entries; longer rows are several warps'

// Entries [begin, end), times this lane's column of X, used if `inside`.
template <typename Rows>
__device__ __forceinline__ float add_short(const Rows& A, const scalar_t* x, bool inside, int64_t K, int begin, int end) {
    float sum = 0;
#pragma unroll 1
    for (int e = begin; e < end; e += 32) {
        const int at = e + int(threadIdx.x) % 32;
        Entry entry = at < end ? A.entry(at) : Entry{-1, 0.0f};
        if (entry.column < 0) entry.value = 0;
        const int count = __popc(__ballot_sync(~0u, entry.column >= 0));  // padding comes last
#pragma unroll 1
        for (int t = 0; t < count; t += kShortFlight) {
            float part[kShortFlight];
#pragma unroll
            for (int u = 0; u < kShortFlight; ++u) {
                const int column = __shfl_sync(~0u, entry.column, t + u);
                part[u] = t + u < count && inside ? to_float(__ldg(x + column * K)) : 0.0f;
            }
#pragma unroll
            for (int u = 0; u < kShortFlight; ++u) sum = fmaf(__shfl_sync(~0u, entry.value, t + u), part[u], sum);
        }
    }
    return sum;
}

// `partial`: of very long rows, those of `share` entries and more.
template <typename Rows>
__global__ void __launch_bounds__(kShortThreads, Rows::kUneven ? 4 : 5)
    multiply_short(const __grid_constant__ Rows A, const scalar_t* __restrict__ X, scalar_t* Y, int64_t K, unsigned row_blocks, int share,
                   float* partial) {
    __shared__ float sums[kShortWarps][32];
    __shared__ int long_rows[kShortWarps];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t column = int64_t(blockIdx.y) * 32 + lane;
    const bool inside = column < K, has_rows = blockIdx.x < row_blocks;
    const int row = blockIdx.x + row_blocks * warp;  // neighbours in different blocks
    const bool is_row = has_rows && row < A.rows;
    int begin = 0, end = 0;
    if (is_row) {
        begin = A.begin(row);
        end = A.end(row);
    }
    const int thread = (blockIdx.y * gridDim.x + blockIdx.x) * kShortThreads + threadIdx.x;
    const int threads = gridDim.x * gridDim.y * kShortThreads;
    prefetch_share(A.columns, A.total, thread, threads);
    prefetch_share(A.values, A.total, thread, threads);
    if (A.cols <= A.total) prefetch_share(X, A.cols * K, thread, threads);  // or most of its rows may not be needed
    const bool is_long = end - begin > kLongShort;
    if (is_row && !is_long) {
        const float sum = add_short(A, X + column, inside, K, begin, end);
        if (inside) Y[row * K + column] = from_float<scalar_t>(sum);
    }

    if constexpr (Rows::kUneven) {
        if (!has_rows) {
            add_share<1, 32, kShortFlight, kShortThreads>(A, X, Y, column, K, int(blockIdx.x - row_blocks), share, partial, sums);
            return;
        }
    }
    const bool is_shared = Rows::kUneven && end - begin >= share;
    if (lane == 0) long_rows[warp] = is_long && !is_shared ? row : -1;
    if (!__syncthreads_or(is_long)) return;
    for (int i = 0; i < kShortWarps; ++i) {
        if (long_rows[i] < 0) continue;
        const int from = A.begin(long_rows[i]), to = A.end(long_rows[i]), each = (to - from + kShortWarps - 1) / kShortWarps;
        float sum[1] = {add_short(A, X + column, inside, K, min(from + warp * each, to), min(from + (warp + 1) * each, to))};
        sum_groups<1, 32, kShortWarps>(sum, sums);
        if (warp == 0 && inside) Y[long_rows[i] * K + column] = from_float<scalar_t>(sum[0]);
    }
}

// Entries times columns up to which a product is over so soon.
constexpr int64_t kMostShort = 1 << 22;

// One launch, not early. `workspace`: gather_bytes(K), for rows that may be uneven.
template <typename Rows>
cudaError_t multiply_shortly(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const unsigned blocks = unsigned(ceil_div(A.rows, kShortWarps));
    const int share = int(std::max<int64_t>(ceil_div(A.total, kMostShares), 512));
    const unsigned shares = Rows::kUneven && A.total >= share ? unsigned(ceil_div(A.total, share)) : 0;
    return Launch(dim3(blocks + shares, unsigned(ceil_div(K, 32))), kShortThreads, stream)(multiply_short<Rows>, A, X, Y, K, blocks, share,
                                                                                          static_cast<float*>(workspace));
}

}  // namespace msbench
