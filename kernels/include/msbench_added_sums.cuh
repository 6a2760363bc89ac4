// Sums of slices that are added up in memory, in fp32: additions are 16 bytes wide and wait for nothing.
#pragma once

#include "msbench_slice_product.cuh"

namespace msbench {

// What a lane has of the rows of a tile.
struct AddedSums {
    static constexpr int kOwn = OwnPieces<1>::kOwn;
    float* total;  // row 0
    int64_t K, column;
    int first, rows;  // the number of row 0, and rows from there on
    OwnPieces<1> pieces;
    float sum[kOwn][kPiece];

    __device__ void add(float* to, float4 x) const {
#ifdef __NVCC__
        asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
#else
        atomicAdd(to, x.x), atomicAdd(to + 1, x.y), atomicAdd(to + 2, x.z), atomicAdd(to + 3, x.w);
#endif
    }
    __device__ void store(int number) const {
        const int row = number - first;
        if (row >= rows) return;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const int64_t at = column + pieces[i] * kPiece;
            if (at >= K) continue;
#pragma unroll
            for (int k = 0; k < kPiece; k += 4)
                add(total + row * K + at + k, make_float4(sum[i][k], sum[i][k + 1], sum[i][k + 2], sum[i][k + 3]));
        }
    }
};

}  // namespace msbench
