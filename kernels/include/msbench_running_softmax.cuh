// Scores to weights without all of a row's scores: those of a tile lie in registers as wgmma leaves them (msbench_wgmma.cuh), and what older tiles
// added up is scaled when a larger score comes.
#pragma once

#include <cuda_runtime.h>

#include "msbench_math.cuh"

namespace msbench {

// What is subtracted from the scaled scores of a thread's two rows, -inf before the first that is not, and this thread's sums of weights, which
// are 2^kTop times what they would be. kSlack: how far, to base 2, a score may exceed what is subtracted.
template <int kSlack, int kTop>
struct RunningSoftmax {
    float shift[2] = {-INFINITY, -INFINITY}, sum[2] = {};

    // Scores to weights, of which `left` count; `factor` is what older sums must be multiplied by. Whether that is not 1.
    template <bool kTail, int kCount>
    __device__ __forceinline__ bool weigh(float (&s)[kCount], float (&factor)[2], const float (&scale)[2], int left, int lane) {
        float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (kTail && i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) s[i] = -INFINITY;
            largest[i / 2 % 2] = fmaxf(largest[i / 2 % 2], s[i]);
        }
        bool moves = false;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 1));
            largest[h] = fmaxf(largest[h], __shfl_xor_sync(0xffffffffu, largest[h], 2)) * scale[h];
            factor[h] = 1.0f;
            if (largest[h] > shift[h] + float(kSlack)) {
                factor[h] = exp2_fast(shift[h] - largest[h]);
                shift[h] = largest[h];
                moves = true;
            }
        }
        const float origin[2] = {(shift[0] == -INFINITY ? 0.0f : shift[0]) - float(kTop), (shift[1] == -INFINITY ? 0.0f : shift[1]) - float(kTop)};
        float sums[2][2] = {};
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            s[i] = exp2_fast(fmaf(s[i], scale[i / 2 % 2], -origin[i / 2 % 2]));
            sums[i / 2 % 2][i % 2] += s[i];
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) sum[h] = fmaf(sum[h], factor[h], sums[h][0] + sums[h][1]);
        return moves;
    }
};

}  // namespace msbench
