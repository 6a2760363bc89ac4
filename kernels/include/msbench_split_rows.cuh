// Rows of A in a thread's registers, in two scaled fp16 parts a number, and outputs of such rows: for msbench_split_stream.cuh.
//
// A thread has eight packets of two rows, 64 k that four threads share, with a scale of their own. What numbers lose in the split is added up where
// any is small; outputs that may notice, or are not finite, are computed again by the definition.
#pragma once

#include "msbench_split_columns.cuh"
#include "msbench_tile_split.cuh"

namespace msbench::split_stream {

constexpr float kNoticed = 0x1p24f, kLargestScaled = 0x1p15f;

// A thread's 64 k of two rows in parts, and what they have lost.
struct Chunk {
    unsigned high[kChunkSteps][4], low[kChunkSteps][4];
    float unscale[2];

    __device__ __forceinline__ void hold_parts() {
#pragma unroll
        for (int s = 0; s < kChunkSteps; ++s) hold(high[s]), hold(low[s]);
    }
};

struct RowState {
    float largest, lost;
    bool odd;  // not finite, or too large or small
};

__device__ __forceinline__ void split_rows(Chunk& chunk, RowState (&state)[2], const float4 (&x)[2][kChunkSteps]) {
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        float top = 0;
#pragma unroll
        for (int s = 0; s < kChunkSteps; ++s) {
            top = fmaxf(top, fmaxf(fmaxf(fabsf(x[h][s].x), fabsf(x[h][s].y)), fmaxf(fabsf(x[h][s].z), fabsf(x[h][s].w))));
        }
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const int exponent = int(__float_as_uint(top) >> 23);
        const bool far = exponent > 127 + kMostExponent || exponent < 127 - kMostExponent;
        state[h].odd |= far && top != 0.0f;
        chunk.unscale[h] = far ? 1.0f : __uint_as_float((exponent - kTopExponent) << 23);
        scale[h] = scale_of(chunk.unscale[h]);
        if (top != 0.0f) state[h].largest = fmaxf(state[h].largest, chunk.unscale[h] * kLargestScaled);
    }
    LeastHigh least;
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            split_pair(x[h][s].x * scale[h], x[h][s].y * scale[h], chunk.high[s][h], chunk.low[s][h]);
            split_pair(x[h][s].z * scale[h], x[h][s].w * scale[h], chunk.high[s][2 + h], chunk.low[s][2 + h]);
            least.note(chunk.high[s][h]);
            least.note(chunk.high[s][2 + h]);
        }
    }
    if (least.suspicious()) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float all = 0;
#pragma unroll
            for (int s = 0; s < kChunkSteps; ++s) all += loss_of(x[h][s], scale[h]);
            state[h].lost += all * chunk.unscale[h];
            state[h].odd |= all > 0.0f && all * chunk.unscale[h] == 0.0f;
        }
    }
}

// A thread's outputs of a tile. What is not exact is computed again afterwards, one by one.
template <int kTileN>
__device__ __forceinline__ void store_tile(float (&sums)[kTileN / 2], RowState (&state)[2], const Factor32& A, const Factor32& B, float* C,
                                           const Columns<kTileN>& columns, int row0, int column0, bool pairs) {
    const int q = threadIdx.x % 4;
    unsigned again[2] = {};
    float finite = 0;  // or NaN
    bool far = columns.any_odd;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2) {  // a row's threads
            state[h].lost += __shfl_xor_sync(0xffffffffu, state[h].lost, distance);
            state[h].odd |= __shfl_xor_sync(0xffffffffu, int(state[h].odd), distance) != 0;
        }
        far |= state[h].lost > 0.0f || state[h].odd;
    }
#pragma unroll
    for (int j = 0; j < kTileN / 2; ++j) finite = fmaf(sums[j], 0.0f, finite);
    if (far || finite != 0.0f) {
#pragma unroll
        for (int j = 0; j < kTileN / 2; ++j) {
            const int h = j / 2 % 2, column = j / 4 * 8 + 2 * q + j % 2;
            const float unscale = columns.unscales[column];
            const bool exact = fabsf(sums[j]) >= kNoticed * (kLargestScaled * state[h].lost + state[h].largest * columns.losses[column]);
            if (!exact || state[h].odd || unscale != unscale || !(fabsf(sums[j] * unscale) < INFINITY)) again[h] |= 1u << (j / 4 * 2 + j % 2);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = row0 + 8 * h;
        if (row >= A.count) continue;
        float* const to = C + int64_t(row) * B.count + column0;
#pragma unroll
        for (int j = 0; j < kTileN / 8; ++j) {
            const int column = 8 * j + 2 * q;
            const float2 unscale = *reinterpret_cast<const float2*>(columns.unscales + column);
            const float2 out = make_float2(sums[4 * j + 2 * h] * fabsf(unscale.x), sums[4 * j + 2 * h + 1] * fabsf(unscale.y));
            if (column0 + column >= B.count) continue;
            if (pairs) {
                *reinterpret_cast<float2*>(to + column) = out;
            } else {
                to[column] = out.x;
                if (column0 + column + 1 < B.count) to[column + 1] = out.y;
            }
        }
        for (unsigned left = again[h]; left != 0; left &= left - 1) {
            const int bit = __ffs(int(left)) - 1, column = bit / 2 * 8 + 2 * q + bit % 2;
            if (column0 + column < B.count) to[column] = product_by_definition(A, B, row, column0 + column);
        }
    }
}

}  // namespace msbench::split_stream
