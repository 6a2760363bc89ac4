// Sums of slices that are added up in memory, in fp32: additions are 16 bytes wide and wait for nothing.
#pragma once

#include "msbench_slice_product.cuh"

namespace msbench {

// What a lane has of the rows of a tile: one piece.
struct AddedSums {
    float* total;  // this lane's piece in row 0
    int64_t K;
    int first, rows;  // the number of row 0, and rows from there on
    bool inside;
    float sum[kPiece];

    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < kPiece; ++k) sum[k] = 0;
    }
    __device__ void add(int row, int k, float4 x) const {
        float* const to = total + row * K + k;
#ifdef __NVCC__
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
#else
        atomicAdd(to, x.x), atomicAdd(to + 1, x.y), atomicAdd(to + 2, x.z), atomicAdd(to + 3, x.w);
#endif
    }
    __device__ void store(int number) const {
        const int row = number - first;
        if (row >= rows || !inside) return;
#pragma unroll
        for (int k = 0; k < kPiece; k += 4) add(row, k, make_float4(sum[k], sum[k + 1], sum[k + 2], sum[k + 3]));
    }
};

}  // namespace msbench
