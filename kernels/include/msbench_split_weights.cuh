// What fp32 attention in one pass (msbench_flash_split.cuh) does with a tile of scores: weights from them, and a row by the definition,
// where two scaled fp16 parts can't hold its numbers.
#pragma once

#include "msbench_math.cuh"
#include "msbench_running_softmax.cuh"
#include "msbench_split.cuh"
#include "msbench_wgmma.cuh"

namespace msbench::flash_split {

constexpr int kQueries = 128, kKeys = 64, kWidth = 128, kStages = 2, kThreads = 3 * kGroupThreads;
constexpr int kPanels = kWidth / kPanelK, kKeyPanels = kKeys / kPanelK;                     // of a query or a key; of a tile's values
constexpr int kQueryBytes = kQueries * kPanelRowBytes, kKeyBytes = kKeys * kPanelRowBytes;  // a plane of a panel
constexpr int kValueBytes = kWidth * kPanelRowBytes;
constexpr int kQ = kPanels * kPlanes * kQueryBytes, kK = kPanels * kPlanes * kKeyBytes, kV = kKeyPanels * kPlanes * kValueBytes;
constexpr int kUnscales = kKeys * 4, kExchange = 17;  // float4 of a thread's row sums, when halves meet
constexpr int kSharedBytes = kQ + kStages * (kK + kV + kUnscales) + kExchange * 16 * kGroupThreads;
constexpr float kHarmless = 0.125f;  // see `matters`
using Softmax = RunningSoftmax<1, 14>;  // weights of up to 2^15 fill fp16

struct Shape {
    int queries, keys, width, columns, splits;  // width of Q and K, columns of V; splits: blocks of a cluster, which share the keys
    float scale;                                // of scores, so that weights are powers of two
    bool pairs;                                 // of y are aligned
};

// An element of a marked line is off by 2^-36 of the line's unscale at most, which the other line's elements, below 2^15 of theirs, enlarge. Whether
// that may be 2^-23 of a score, which is to base 2.
__device__ __forceinline__ bool matters(float a, float b, const Shape& shape) {
    return !(fabsf(a) * fabsf(b) * float(shape.width) * shape.scale < kHarmless);
}

// A warp computes a row by the definition.
__device__ __noinline__ void row_by_definition(const float* q, const float* k, const float* v, float* y, const Shape& shape) {
    const int lane = threadIdx.x % 32;
    const auto score = [&](int key) {
        float total = 0;
        if (key >= shape.keys) return -INFINITY;
        for (int i = 0; i < shape.width; ++i) total = fmaf(q[i], k[int64_t(key) * shape.width + i], total);
        return total * shape.scale;
    };
    float largest = -INFINITY;
    for (int key = lane; key < shape.keys; key += 32) largest = fmaxf(largest, score(key));
    largest = warp_reduce(largest, Max());
    float sum = 0, out[kWidth / 32] = {}, run[kWidth / 32];
    for (int first = 0; first < shape.keys; first += 32) {
        const float weight = first + lane < shape.keys ? exp2_fast(score(first + lane) - largest) : 0.0f;
        sum += weight;
#pragma unroll
        for (int c = 0; c < kWidth / 32; ++c) run[c] = 0;
        for (int i = 0; i < min(32, shape.keys - first); ++i) {
            const float w = __shfl_sync(0xffffffffu, weight, i);
#pragma unroll
            for (int c = 0; c < kWidth / 32; ++c) {
                if (c * 32 + lane < shape.columns) run[c] = fmaf(w, v[int64_t(first + i) * shape.columns + c * 32 + lane], run[c]);
            }
        }
#pragma unroll
        for (int c = 0; c < kWidth / 32; ++c) out[c] += run[c];
    }
    sum = warp_reduce(sum, Sum());
    for (int c = 0; c < kWidth / 32; ++c) {
        if (c * 32 + lane < shape.columns) y[c * 32 + lane] = out[c] / sum;
    }
}

}  // namespace msbench::flash_split
