// A x with A in ELL, large and narrow, by one block a multiprocessor, whose warps walk over rows.
//
// What limits such a product is how many gathers L2 answers, so the blocks of a cluster hold part of x (msbench_held_vector.cuh). kLanes
// threads share a row, by one four of entries each; a warp has two such sets of rows at a time, and the next two under way.
#pragma once

#include "msbench_entries.cuh"
#include "msbench_held_vector.cuh"

namespace msbench {

struct EllMatrix {
    const scalar_t* values;
    const int32_t* columns;
    int rows, w;
};

constexpr int kEllWalkThreads = 1024;

template <int kLanes, int kCluster>
__global__ void __launch_bounds__(kEllWalkThreads, 1)
    walk_ell(const __grid_constant__ EllMatrix A, const scalar_t* x_global, scalar_t* y, int held) {
    constexpr int kFlight = 2, kRows = 32 / kLanes;  // rows of a warp
    extern __shared__ __align__(16) unsigned char raw[];
    const HeldVector<kCluster> x(x_global, held, reinterpret_cast<scalar_t*>(raw));
    const int place = threadIdx.x % kLanes * 4, warps = int(gridDim.x) * kEllWalkThreads / 32;
    const int stride = warps * kFlight * kRows, within = threadIdx.x % 32 / kLanes;
    int row = (int(threadIdx.x) / 32 * int(gridDim.x) + int(blockIdx.x)) * kFlight * kRows + within;
    int32_t next_column[kFlight][4];
    float next_value[kFlight][4];
    const auto load = [&](int from) {
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (from + i * kRows < A.rows && place < A.w) {
                const int64_t at = int64_t(from + i * kRows) * A.w + place;
                load_four_once(A.columns + at, next_column[i]);
                load_four_once(A.values + at, next_value[i]);
            } else {
                next_column[i][0] = next_column[i][1] = next_column[i][2] = next_column[i][3] = -1;
            }
        }
    };
    load(row);
    x.finish();
    for (; row - within < A.rows; row += stride) {
        int32_t column[kFlight][4];
        float value[kFlight][4], factor[kFlight][4];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) column[i][j] = next_column[i][j], value[i][j] = next_value[i][j];
        }
        load(row + stride);
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (column[i][j] >= 0) factor[i][j] = x(column[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            float sum = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (column[i][j] >= 0) sum = fmaf(value[i][j], factor[i][j], sum);
            }
#pragma unroll
            for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            if (row + i * kRows < A.rows && place == 0) y[row + i * kRows] = from_float<scalar_t>(sum);
        }
    }
    x.leave();
}

// For rows of at most 4·kLanes entries, a multiple of four, and aligned arrays.
template <int kLanes, int kCluster>
cudaError_t multiply_by_walking(const EllMatrix& A, const scalar_t* x, scalar_t* y, int64_t cols, cudaStream_t stream,
                                int64_t held_bytes = kHeldBytes) {
    const HeldShape shape = held_shape<kCluster>(walk_ell<kLanes, kCluster>, cols, kEllWalkThreads, held_bytes);
    return launch_held<kCluster>(shape, kEllWalkThreads, stream, walk_ell<kLanes, kCluster>, A, x, y);
}

}  // namespace msbench
