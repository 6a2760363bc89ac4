// A X that is over in a few microseconds, for arrays and rows of X of any alignment: what counts are trips to memory in turn, and instructions.
//
// The trips are three: offsets, entries, rows of X. So the grid's first instructions ask for all of the inputs, from memory to L2, and only the
// offsets take a whole trip. A warp has a row of A and up to 96 columns, so that what it takes to find an entry is done once for all of them:
// 5 instructions an entry and column. Rows of more than kLongShort entries are shared by a block's warps, very long ones by the grid's first
// blocks (msbench_spmm_long_rows.cuh).
//
// Bound: a launch and one trip to memory and two to L2. Measured (H200, 2026-11-26, own program, us, bf16 and fp32; an empty call takes 4.5):
// 15055 entries in 1003 rows times 77 7.2 and 7.4, by naive.cu 8.9 and 9.3, by 32 columns a warp with a branch for each load 9.6 and 9.5. ELL of
// 1501 rows of 10 6.6 and 7.0, 7.7 and 8.0, 8.3 and 8.1. Of 7.2 launching these blocks takes 5.4, offsets 0.3 and entries 0.5. Lost: not
// asking ahead 7.5 and 7.7, asking by bulk copies 7.4 and 7.6, by loads 7.5 and 7.5; 64 columns a warp 7.6 and 7.7, 32 7.7 and 7.7; a thread for
// each element of Y 8.0 and 8.3; blocks of 256 threads 7.7 and 7.7; 32 rows of X under way 7.5 and 7.5 (ELL 7.2 and 7.4).
#pragma once

#include <climits>

#include "msbench_launch.cuh"
#include "msbench_prefetch.cuh"
#include "msbench_spmm_long_rows.cuh"

namespace msbench {

constexpr int kShortThreads = 128, kShortWarps = kShortThreads / 32, kShortFlight = 16;
constexpr int kLongShort = 128;  // entries; longer rows are several warps'

// By a block's warps, of which each has a row of entries [begin, end): the long ones that are not very long.
template <int kWide, typename Rows>
__device__ __forceinline__ void multiply_long(const Rows& A, const scalar_t* X, scalar_t* Y, int K, int row, int begin, int end, int least) {
    constexpr int kColumns = kWide * 32;
    struct Row {
        int number, begin, end;
    };
    __shared__ Row rows[kShortWarps];
    const int first = blockIdx.y * kColumns;
    if (threadIdx.x % 32 == 0) rows[threadIdx.x / 32] = {end - begin > kLongShort && end - begin < least ? row : -1, begin, end};
    __syncthreads();
    for (int i = 0; i < kShortWarps; ++i) {
        const Row own = rows[i];
        if (own.number < 0) continue;
        scalar_t* const y = Y + (int64_t(own.number) * K + first);
        add_row_by_block<kShortThreads, kWide, kShortFlight>(A, X, first, K, own.begin, own.end,
                                                             [&](int k, float sum) { y[k] = from_float<scalar_t>(sum); });
    }
}

// kTight: a block has all columns, and only the last 32 may be fewer.
template <int kWide, bool kTight, typename Rows>
__global__ void __launch_bounds__(kShortThreads, 5)
    multiply_short(const __grid_constant__ Rows A, const scalar_t* __restrict__ X, scalar_t* Y, int K, unsigned row_blocks,
                   const __grid_constant__ VeryLongRows very_long) {
    if constexpr (Rows::kUneven) {
        if (blockIdx.x < very_long.blocks) {
            if (blockIdx.y == 0) multiply_very_long<kShortThreads, kWide, kShortFlight>(A, X, Y, K, very_long);
            return;
        }
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, column = blockIdx.y * kWide * 32 + lane;
    const int block = blockIdx.x - very_long.blocks, row = block + row_blocks * warp;  // neighbours in different blocks
    const bool is_row = row < A.rows;
    int begin = 0, end = 0;
    if (is_row) {
        begin = A.begin(row);
        end = A.end(row);
    }
    const int thread = (blockIdx.y * row_blocks + block) * kShortThreads + threadIdx.x;
    if constexpr (Rows::kUneven) {
        prefetch_sector(A.columns, A.total, thread);
        prefetch_sector(A.values, A.total, thread);
    }
    if (A.cols <= A.total) prefetch_sector(X, int64_t(A.cols) * K, thread);  // or most of its rows may not be needed

    const bool is_long = end - begin > kLongShort;
    scalar_t* const y = Y + (int64_t(row) * K + column);
    float sum[kWide] = {};
    add_row<kWide, kShortFlight, kTight>(A, X + column, K - column, K, begin, is_long ? begin : end, sum);
#pragma unroll
    for (int w = 0; w < kWide; ++w) {
        if (is_row && !is_long && column + w * 32 < K) y[w * 32] = from_float<scalar_t>(sum[w]);
    }
    if (!__syncthreads_or(is_long)) return;
    multiply_long<kWide>(A, X, Y, K, row, begin, end, Rows::kUneven ? very_long.least : INT_MAX);
}

// Entries times columns up to which a product is over so soon.
constexpr int64_t kMostShort = 1 << 22;

// One launch, not early. `workspace`: VeryLongRows::bytes(A.total, K), for rows that may be uneven.
template <typename Rows>
cudaError_t multiply_shortly(const Rows& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const unsigned row_blocks = unsigned(ceil_div(A.rows, kShortWarps));
    const VeryLongRows very_long(Rows::kUneven, A.total, workspace);
    const auto launch = [&](auto* kernel, int wide) {
        return Launch(dim3(row_blocks + very_long.blocks, unsigned(ceil_div(K, 32 * wide))), kShortThreads, stream)(kernel, A, X, Y, int(K),
                                                                                                                   row_blocks, very_long);
    };
    if (K <= 32) return launch(multiply_short<1, true, Rows>, 1);
    if (K <= 64) return launch(multiply_short<2, true, Rows>, 2);
    if (K <= 96) return launch(multiply_short<3, true, Rows>, 3);
    return launch(multiply_short<3, false, Rows>, 3);
}

}  // namespace msbench
