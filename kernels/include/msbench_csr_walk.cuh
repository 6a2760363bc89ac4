// A x with A in CSR, large and of rows of similar length, by one block a multiprocessor, whose warps walk over rows.
//
// What limits such a product is how many gathers L2 answers, so the blocks of a cluster hold part of x (msbench_held_vector.cuh). Half a
// warp has a row; its entries are loaded by fours, wherever it begins, while those before are multiplied, and so are the offsets of rows behind.
#pragma once

#include "msbench_csr_rows.cuh"
#include "msbench_held_vector.cuh"

namespace msbench {

constexpr int kWalkThreads = 1024, kWalkWarps = kWalkThreads / 32;
constexpr int kWalkLanes = 16, kWalkStep = 4 * kWalkLanes, kMostWalked = 512;  // longer rows are put aside

// Rows in runs of at most 32, `rounds` for each warp of the grid: run i begins at row i·each + min(i, more).
struct WalkRuns {
    int rounds, each, more;

    __device__ int begin(int run) const { return run * each + min(run, more); }
};

struct WalkFour {
    int32_t column[4];
    float value[4];
};

// Columns of entries that don't exist are valid, their values 0, if any of the four exists.
__device__ __forceinline__ void load_walk_four(const CsrMatrix& A, int at, int end, WalkFour& four) {
    if (at >= end) return;
    if (at + 4 <= A.total) {
        load_four_once(A.columns + at, four.column);
        load_four_once(A.values + at, four.value);
    } else {  // the array's last ones
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const bool exists = at + j < A.total;
            four.column[j] = exists ? A.columns[at + j] : 0;
            four.value[j] = exists ? to_float(A.values[at + j]) : 0.0f;
        }
    }
}

template <int kCluster>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walk_csr(const __grid_constant__ CsrMatrix A, const __grid_constant__ WalkRuns runs, const scalar_t* x_global, scalar_t* y,
             float* partial, int held) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ union {
        LongLines<kWalkThreads, kMostVeryLong> very_long;
        RowsAside<kWalkThreads, kWalkThreads> aside;
    } shared;
    const HeldVector<kCluster> x(x_global, held, reinterpret_cast<scalar_t*>(raw));
    multiply_very_long<kWalkThreads>(A, x_global, y, partial, shared.very_long, gridDim.x);
    x.finish();

    // Half 0 of a warp has even rows of a run, half 1 the odd ones.
    const int lane = threadIdx.x % 32, half = lane / kWalkLanes, place = lane % kWalkLanes * 4;
    const int warps = int(gridDim.x) * kWalkWarps, own = threadIdx.x / 32 * int(gridDim.x) + int(blockIdx.x);
    const auto offsets_of = [&](int run, int (&offset)[2]) {
        const int row = runs.begin(run) + lane;
        offset[0] = A.offsets[min(row, A.rows)], offset[1] = A.offsets[min(row + 1, A.rows)];
    };
    int ahead[2];
    offsets_of(own, ahead);
    bool put_aside = false;
#pragma unroll 1
    for (int round = 0; round < runs.rounds; ++round) {
        const int run = own + round * warps, base = runs.begin(run), count = runs.begin(run + 1) - base;
        const int begins = ahead[0], ends = ahead[1];
        offsets_of(run + warps, ahead);
        int begin, end;  // of a row put aside end < begin
        WalkFour next[2];
        const auto load_row = [&](int i) {
            begin = __shfl_sync(~0u, begins, i + half), end = __shfl_sync(~0u, ends, i + half);
            if (i + half >= count) end = begin - 1;
            else if (end - begin > kMostWalked) put_aside = true, end = begin - 1;
#pragma unroll
            for (int f = 0; f < 2; ++f) load_walk_four(A, begin / 4 * 4 + place + f * kWalkStep, end, next[f]);
        };
        const auto multiply = [&](const WalkFour& four, int at, int from, int to) {
            float sum = 0, factor[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (at + j >= from && at + j < to) factor[j] = x(four.column[j]);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (at + j >= from && at + j < to) sum = fmaf(four.value[j], factor[j], sum);
            }
            return sum;
        };
        load_row(0);
#pragma unroll 1
        for (int i = 0; i < count; i += 2) {
            const int from = begin, to = end, at = from / 4 * 4 + place;
            const WalkFour now[2] = {next[0], next[1]};
            if (i + 2 < count) load_row(i + 2);
            float sum = multiply(now[0], at, from, to) + multiply(now[1], at + kWalkStep, from, to);
#pragma unroll 1
            for (int k = at + 2 * kWalkStep; k < to; k += kWalkStep) {
                WalkFour more;
                load_walk_four(A, k, to, more);
                sum += multiply(more, k, from, to);
            }
#pragma unroll
            for (int distance = kWalkLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            if (lane % kWalkLanes == 0 && to >= from) y[base + i + half] = from_float<scalar_t>(sum);
        }
    }
    x.leave();
    if (!__syncthreads_or(put_aside)) return;
    for (int round = 0; round < runs.rounds; ++round) {  // each thread looks at a row
        if (threadIdx.x == 0) shared.aside.count = 0;
        __syncthreads();
        const int run = own + round * warps, row = runs.begin(run) + lane;
        if (row < runs.begin(run + 1)) {
            const int length = A.offsets[row + 1] - A.offsets[row];
            if (length > kMostWalked && length < A.very_long) shared.aside.rows[atomicAdd(&shared.aside.count, 1)] = row;
        }
        __syncthreads();
        if (shared.aside.count > 0) shared.aside.multiply(A, x_global, y);
        __syncthreads();
    }
}

// For aligned entries. `partial`: kMostRowParts floats.
template <int kCluster>
cudaError_t multiply_by_walking(const CsrMatrix& A, const scalar_t* x, scalar_t* y, int64_t cols, float* partial, cudaStream_t stream,
                                int64_t held_bytes = kHeldBytes) {
    const HeldShape shape = held_shape<kCluster>(walk_csr<kCluster>, cols, kWalkThreads, held_bytes);
    const int64_t warps = int64_t(shape.blocks) * kWalkWarps, rounds = ceil_div(A.rows, 32 * warps), all = rounds * warps;
    const WalkRuns runs = {int(rounds), int(A.rows / all), int(A.rows % all)};
    return launch_held<kCluster>(shape, kWalkThreads, stream, walk_csr<kCluster>, A, runs, x, y, partial);
}

}  // namespace msbench
