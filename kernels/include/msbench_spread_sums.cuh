// Sums of products by row in global memory, for up to 32768 rows, with nothing to clear first: they are zero between calls.
//
// Atomic additions in L2 run at 41·10⁹ a second in an array of 32 KiB and at 101·10⁹ in one of 1 MiB (measured on an
// H200): so each sum has a sector of its own, and rows that are few have several sums, which their blocks take in turn.
#pragma once

#include <cooperative_groups.h>

#include "msbench_add_by_row.cuh"

namespace msbench {

constexpr int kSpreadRows = 32768, kSpacing = 8, kMostReplicas = 16;

// All zero between calls, which share it if they overlap: one stream at a time.
static __device__ float spread[kSpreadRows * kSpacing];

struct SpreadSums {
    int replicas;  // of each row's sum: a power of two

    explicit SpreadSums(int64_t rows) : replicas(1) {
        while (replicas < kMostReplicas && 2 * replicas * rows <= kSpreadRows) replicas *= 2;
    }
    // Called by whole warps; lanes with a row below 0 have nothing.
    __device__ void add(int row, float product) const {
        if (combine_rows(row, product)) add_combined(row, product);
    }
    // Called by any lane that has a row.
    __device__ void add_combined(int row, float product) const {
        const int place = row * replicas + int(blockIdx.x & unsigned(replicas - 1));
        atomicAdd(spread + place * kSpacing, product);
    }
    // By a cooperative grid, when all is added: calls finish(row, sum) once a row, and sets all sums back to zero.
    template <typename Finish>
    __device__ void collect(int rows, Finish finish) const {
        cooperative_groups::this_grid().sync();
        const int stride = gridDim.x * blockDim.x;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i - int(threadIdx.x % 32) < rows * replicas; i += stride) {
            float sum = 0;
            if (i < rows * replicas) {
                sum = __ldcg(spread + i * kSpacing);
                spread[i * kSpacing] = 0;
            }
            for (int distance = replicas / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
            if (i < rows * replicas && i % replicas == 0) finish(i / replicas, sum);
        }
    }
};

}  // namespace msbench
