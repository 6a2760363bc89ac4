// Softmaxes of four rows over keys that are sorted by which of them count them (msbench_key_patterns.cuh), a channel a lane.
//
// Nothing is subtracted from scores to base 2 as long as none exceeds kSafe in size, which whoever calls this knows from a window's extreme keys;
// otherwise he has the largest ones looked for first. Masked entries cost nothing.
#pragma once

#include "msbench_key_patterns.cuh"
#include "msbench_math.cuh"

namespace msbench::key_patterns {

constexpr float kSafe = 60.0f;
constexpr int kFewLanes = 4;  // whose largest scores a warp looks for one after another

// A thread's four rows; `origin` is minus what is subtracted from scores.
struct Rows {
    float query[kRows], origin[kRows] = {}, sum[kRows] = {}, weighted[kRows] = {};
};

// What a lane sees of a window: its keys and values, 32 lanes' side by side, and the list of its warp's rows.
template <int kWindow>
struct View {
    const unsigned char* window;
    unsigned lane_offset;
    const List<kWindow>* list;

    // Key and value number `i` of four.
    __device__ __forceinline__ float2 pair(unsigned four, int i) const {
        return *reinterpret_cast<const float2*>(window + __byte_perm(four, lane_offset, 0x5504 | i << 4));
    }
    // A key of any lane's channel.
    __device__ __forceinline__ float key(int key, int lane) const {
        return *reinterpret_cast<const float*>(window + (key * 32 + lane) * sizeof(float2));
    }
};

// Adds a key to the rows of a pattern.
template <int kPattern>
__device__ __forceinline__ void add(Rows& s, float2 pair) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        if (kPattern >> r & 1) {
            const float weight = exp2_fast(fmaf(s.query[r], pair.x, s.origin[r]));
            s.sum[r] += weight;
            s.weighted[r] = fmaf(weight, pair.y, s.weighted[r]);
        }
    }
}

// Adds a window's keys from the pattern on downwards. `counted`: rows that count any.
template <int kPattern, int kWindow>
__device__ __forceinline__ void add_patterns(Rows& s, const View<kWindow>& view, const unsigned char* keys, int& counted) {
    int left = view.list->counts[kPattern];
    if (left > 0) counted |= kPattern;
#pragma unroll 1
    for (; left >= 4; left -= 4, keys += 4) {
        const unsigned four = *reinterpret_cast<const unsigned*>(keys);
        float2 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = view.pair(four, i);
#pragma unroll
        for (int i = 0; i < 4; ++i) add<kPattern>(s, pairs[i]);
    }
    if (left > 0) {
        unsigned four = *reinterpret_cast<const unsigned*>(keys);
        keys += 4;
#pragma unroll 1
        for (; left > 0; --left, four >>= 8) add<kPattern>(s, view.pair(four, 0));
    }
    if constexpr (kPattern > 1) add_patterns<kPattern - 1>(s, view, keys, counted);
}

// The largest score of row r in a window, of each lane's channel.
template <int kWindow>
__device__ __forceinline__ float largest_scores(float query, int r, const View<kWindow>& view) {
    float top = -INFINITY;
    const unsigned char* keys = view.list->keys;
#pragma unroll 1
    for (int pattern = kPatterns - 1; pattern > 0; --pattern) {
        const int fours = (view.list->counts[pattern] + 3) / 4;
        if (pattern >> r & 1) {
#pragma unroll 1
            for (int n = 0; n < fours; ++n) {  // what comes twice does not matter
                const unsigned four = reinterpret_cast<const unsigned*>(keys)[n];
#pragma unroll
                for (int i = 0; i < 4; ++i) top = fmaxf(top, query * view.pair(four, i).x);
            }
        }
        keys += 4 * fours;
    }
    return top;
}

// The same of one lane's channel, whose query all lanes have: a key a lane, all of them under way at once.
template <int kWindow>
__device__ __forceinline__ float largest_score(float query, int of_lane, int r, const View<kWindow>& view) {
    const int lane = threadIdx.x % 32;
    float top = -INFINITY;
#pragma unroll
    for (int w = 0; w < kWindow / 32; ++w) {
        const float score = query * view.key(w * 32 + lane, of_lane);
        if (view.list->counted[r][w] >> lane & 1) top = fmaxf(top, score);
    }
    return warp_reduce(top, Max());
}

// Changes what is subtracted from scores from now on where a window asks for it, whose keys lie between `least` and `largest`. Members of `s` are
// nowhere handed on by address, so that they stay in registers.
template <int kWindow>
__device__ __forceinline__ void move_origins(Rows& s, const View<kWindow>& view, float least, float largest) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const float a = s.query[r] * largest, b = s.query[r] * least;
        const bool none = s.sum[r] == 0.0f;
        unsigned lanes = __ballot_sync(0xffffffffu, !(fmaxf(a, b) <= kSafe - s.origin[r]) || (none && fminf(a, b) < -kSafe));
        if (lanes == 0) continue;
        float top = -INFINITY;
        if (__popc(lanes) > kFewLanes) {
            top = largest_scores(s.query[r], r, view);
        } else {
            for (; lanes; lanes &= lanes - 1) {
                const int lane = __ffs(lanes) - 1;
                const float found = largest_score(__shfl_sync(0xffffffffu, s.query[r], lane), lane, r, view);
                if (int(threadIdx.x % 32) == lane) top = found;
            }
        }
        if (top > kSafe - s.origin[r] || (none && top < -kSafe && top > -INFINITY)) {
            const float factor = exp2_fast(-s.origin[r] - top);
            if (!none) s.sum[r] *= factor, s.weighted[r] *= factor;
            s.origin[r] = -top;
        }
    }
}

}  // namespace msbench::key_patterns
