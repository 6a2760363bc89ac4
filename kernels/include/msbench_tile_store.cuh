// Stores tiles of C from the registers that wgmma leaves them in: bf16 in packets of 16 bytes where rows allow it, fp32 in pairs.
#pragma once

#include "msbench.cuh"

namespace msbench::tile_product {

constexpr int kChunk = 8;  // elements of 16 bytes

struct Shape {
    int M, N, K, slice_k, slices;
    int64_t pitch;  // of C
    bool vectors;   // C's rows start on 16 bytes, and padding may be written to
};

__device__ __forceinline__ unsigned pack(float x, float y) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    return reinterpret_cast<const unsigned&>(pair);
}

// Four neighbouring lanes have word number `lane % 4` of four chunks each; afterwards each has one whole chunk, number `lane % 4`.
__device__ __forceinline__ void gather_chunk(unsigned (&w)[4], int lane) {
    const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned got = __shfl_xor_sync(0xffffffffu, odd ? w[i] : w[i + 1], 1);
        w[i] = odd ? got : w[i], w[i + 1] = odd ? w[i + 1] : got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned got = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + 2], 2);
        w[i] = upper ? got : w[i], w[i + 2] = upper ? w[i + 2] : got;
    }
}

// Stores a warp's 16 rows of C, from `row` and `column` on.
template <int kCount>
__device__ __forceinline__ void store_rows(const float (&sums)[kCount], __nv_bfloat16* C, int row, int column, const Shape& s, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int to_row = row + half * 8 + lane / 4;
        __nv_bfloat16* to = C + int64_t(to_row) * s.pitch;
        if (s.vectors) {
#pragma unroll
            for (int j = 0; j < kCount / 4; j += 4) {
                unsigned w[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) w[i] = pack(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
                gather_chunk(w, lane);
                const int to_column = column + (j + lane % 4) * kChunk;
                if (to_row < s.M && to_column < s.N) *reinterpret_cast<uint4*>(to + to_column) = make_uint4(w[0], w[1], w[2], w[3]);
            }
        } else if (to_row < s.M) {
#pragma unroll
            for (int j = 0; j < kCount / 4; ++j) {
                const int to_column = column + j * kChunk + lane % 4 * 2;
                if (to_column < s.N) to[to_column] = __float2bfloat16_rn(sums[4 * j + 2 * half]);
                if (to_column + 1 < s.N) to[to_column + 1] = __float2bfloat16_rn(sums[4 * j + 2 * half + 1]);
            }
        }
    }
}

// The same in fp32, for partial sums, whose pitch is even.
template <int kCount>
__device__ __forceinline__ void store_rows(const float (&sums)[kCount], float* C, int row, int column, const Shape& s, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int to_row = row + half * 8 + lane / 4;
        if (to_row >= s.M) continue;
#pragma unroll
        for (int j = 0; j < kCount / 4; ++j) {
            const int to_column = column + j * kChunk + lane % 4 * 2;
            if (to_column < s.N) {
                *reinterpret_cast<float2*>(C + to_row * s.pitch + to_column) = make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
            }
        }
    }
}

}  // namespace msbench::tile_product
