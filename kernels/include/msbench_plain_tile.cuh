// A tile of A B on the ordinary units, for numbers that no tensor core holds: not finite ones, or those of a line too far apart.
//
// Lines are staged k by k in shared memory, so that neighbouring threads' reads are neighbours or the same. A thread adds up what wgmma
// would give it of 128 columns, two rows and 32 columns, for which it reads 34 numbers of each k.
//
// Bound: 128 x 128 x K multiply-adds by one multiprocessor's 128 units, 8192 K cycles for 64; reads of shared memory take as long.
#pragma once

#include "msbench.cuh"

namespace msbench {

namespace plain_tile {

constexpr int kLines = 128, kDepth = 32;  // of a stage
constexpr int kStageFloats = 2 * kLines * kDepth, kBytes = 2 * kStageFloats * sizeof(float);

// Two groups of 128 threads: thread `own` of group 0 has row `own` of A, of group 1 column `own` of B. `load(x, k)` puts the line's next
// kDepth numbers into x, zeros behind `end`. `meet` is a barrier of both. Sums are in the order in which wgmma gives 64 rows to a group.
template <class Load, class Meet>
__device__ __forceinline__ void multiply(float (&sums)[kLines / 2], float* stages, int group, int own, int from, int end, const Load& load,
                                         const Meet& meet) {
    float x[kDepth];
    const int at_row = group * 64 + own / 32 * 16 + own % 32 / 4, at_column = own % 4 * 2;
    const auto put = [&](int stage) {
        float* to = stages + stage * kStageFloats + group * kLines * kDepth + own;
#pragma unroll
        for (int i = 0; i < kDepth; ++i) to[i * kLines] = x[i];
    };
#pragma unroll
    for (int j = 0; j < kLines / 2; ++j) sums[j] = 0.0f;
    // Begins two stages early, so that there is one copy of the code that loads.
    for (int k = from - 2 * kDepth, stage = 0; k < end; k += kDepth, stage ^= 1) {
        if (k + kDepth >= from && k + kDepth < end) put(stage ^ 1);
        load(x, k + 2 * kDepth);
        const float *a = stages + stage * kStageFloats + at_row, *b = stages + stage * kStageFloats + kLines * kDepth + at_column;
#pragma unroll 2
        for (int i = k < from ? kDepth : 0; i < kDepth; ++i, a += kLines, b += kLines) {
            const float above = a[0], below = a[8];
#pragma unroll
            for (int j = 0; j < kLines / 8; ++j) {
                const float2 of_b = *reinterpret_cast<const float2*>(b + 8 * j);
                sums[4 * j] = fmaf(above, of_b.x, sums[4 * j]);
                sums[4 * j + 1] = fmaf(above, of_b.y, sums[4 * j + 1]);
                sums[4 * j + 2] = fmaf(below, of_b.x, sums[4 * j + 2]);
                sums[4 * j + 3] = fmaf(below, of_b.y, sums[4 * j + 3]);
            }
        }
        meet();
    }
}

}  // namespace plain_tile

}  // namespace msbench
