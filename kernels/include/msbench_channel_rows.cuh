// Rows of a softmax over the channels of a head, each by its own: what a thread needs of a channel, and rows by their maxima, for any scores.
//
// Results that are few and lie anywhere in a block's rows and channels are put into a list (`Again`), and all its warps share their keys:
// with a lane for each result, 16 of 1024 of them cost a twentieth of what all do without maxima.
#pragma once

#include "msbench.cuh"

namespace msbench::channel_rows {

constexpr int kChannels = 128, kMaxWords = 2048 / 32;  // channels of a block, words of a row's bits

__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Where a head's channel begins, and what the kernel needs of its shape.
struct Channel {
    const scalar_t *q, *k, *v;
    scalar_t* y;
    int S, D;
    float scale;  // of q, so that exponentials are to base 2

    __device__ float query(int row) const { return msbench::to_float(q[int64_t(row) * D]) * scale; }
    __device__ float key(int row) const { return msbench::to_float(k[int64_t(row) * D]); }
    __device__ float value(int row) const { return msbench::to_float(v[int64_t(row) * D]); }
    __device__ void store(int row, float result) const { y[int64_t(row) * D] = msbench::from_float<scalar_t>(result); }
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
        const float weight = power_of_two(score - largest);
        sum += weight;
        weighted = fmaf(weight, value, weighted);
    }
    return empty ? 0.0f : weighted / sum;
}

// What a block does again: results number r * kChannels + channel.
template <int kRows>
struct Again {
    int count;
    unsigned short results[kRows * kChannels];
    float of_warp[2][kChannels / 32][32];
};

// All threads of a block do results by their maxima, as with_maximum. `c`: its first channel. `counts` has a bit for each entry that counts.
template <int kRows>
__device__ __noinline__ void redo(const Channel& first_channel, const uint32_t (*counts)[kMaxWords + 1], int first, int last, Again<kRows>& again) {
    constexpr int kFlight = 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int begin = 0; begin < again.count; begin += 32) {
        const int result = again.results[min(begin + lane, again.count - 1)], r = result / kChannels, channel = result % kChannels;
        Channel c = first_channel;
        c.q += channel, c.k += channel, c.v += channel, c.y += channel;
        const float query = c.query(first + r);
        float largest = -INFINITY, sum = 0, weighted = 0;
        for (int j = warp * kFlight; j <= last; j += warps * kFlight) {
            const uint32_t bits = counts[r][j / 32] >> j % 32;
            float keys[kFlight];
#pragma unroll
            for (int n = 0; n < kFlight; ++n) keys[n] = c.key(min(j + n, last));
#pragma unroll
            for (int n = 0; n < kFlight; ++n) {
                if (bits >> n & 1) largest = fmaxf(largest, __fmul_rn(query, keys[n]));
            }
        }
        again.of_warp[0][warp][lane] = largest;
        __syncthreads();
        for (int w = 0; w < warps; ++w) largest = fmaxf(largest, again.of_warp[0][w][lane]);
        __syncthreads();
        for (int j = warp * kFlight; j <= last; j += warps * kFlight) {
            const uint32_t bits = counts[r][j / 32] >> j % 32;
            float keys[kFlight], values[kFlight];
#pragma unroll
            for (int n = 0; n < kFlight; ++n) keys[n] = c.key(min(j + n, last)), values[n] = c.value(min(j + n, last));
#pragma unroll
            for (int n = 0; n < kFlight; ++n) {
                if (bits >> n & 1) {
                    const float weight = power_of_two(__fmul_rn(query, keys[n]) - largest);  // no fma: the largest weight is 1
                    sum += weight;
                    weighted = fmaf(weight, values[n], weighted);
                }
            }
        }
        again.of_warp[0][warp][lane] = sum;
        again.of_warp[1][warp][lane] = weighted;
        __syncthreads();
        if (warp == 0 && begin + lane < again.count) {
            for (int w = 1; w < warps; ++w) sum += again.of_warp[0][w][lane], weighted += again.of_warp[1][w][lane];
            c.store(first + r, sum == 0.0f ? 0.0f : weighted / sum);  // 0: no entry counts
        }
        __syncthreads();
    }
}

}  // namespace msbench::channel_rows
