// Rows of a softmax over the channels of a head, each by its own: what a thread needs of a channel, and a row by its maximum, for any scores.
#pragma once

#include "msbench.cuh"
#include "msbench_math.cuh"

namespace msbench {

// Where a head's channel begins, and what the kernel needs of its shape.
struct Channel {
    const scalar_t *q, *k, *v;
    scalar_t* y;
    int S, D;
    float scale;  // of q, so that exponentials are to base 2

    __device__ float query(int row) const { return to_float(q[int64_t(row) * D]) * scale; }
    __device__ float key(int row) const { return to_float(k[int64_t(row) * D]); }
    __device__ float value(int row) const { return to_float(v[int64_t(row) * D]); }
    __device__ void store(int row, float result) const { y[int64_t(row) * D] = from_float<scalar_t>(result); }
};

// A row by its maximum: two passes, for any scores. `counts(j)`: whether the entry of that key does. Eight loads are under way at once.
template <typename Counts>
__device__ float with_maximum(const Channel& c, int row, Counts counts) {
    const float query = c.query(row);
    float largest = -INFINITY, sum = 0, weighted = 0;
    bool empty = true;
#pragma unroll 8
    for (int j = 0; j <= row; ++j) {
        const float score = __fmul_rn(query, c.key(j));
        if (counts(j)) empty = false, largest = fmaxf(largest, score);
    }
#pragma unroll 8
    for (int j = 0; j <= row; ++j) {
        const float score = __fmul_rn(query, c.key(j)), value = c.value(j);  // no fma: the largest weight is 1
        if (!counts(j)) continue;
        const float weight = exp2_fast(score - largest);
        sum += weight;
        weighted = fmaf(weight, value, weighted);
    }
    return empty ? 0.0f : weighted / sum;
}

}  // namespace msbench
