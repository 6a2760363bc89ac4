// The correlation of a short signal with a filter by FFMA, for sizes that are bound by latency: a thread has four outputs in sliding
// registers, and a block's warps share the filter, whose sums meet in shared memory.
#pragma once

#include "msbench.cuh"

namespace msbench {

constexpr int kShortWarps = 8, kShortThreads = 32 * kShortWarps, kShortTile = 128;

inline size_t short_signal_bytes(int64_t K) {
    return (kShortWarps * kShortTile + (K + 3) / 4 * 4 + kShortTile + K + 3) * sizeof(float);
}

template <typename T>
__global__ void __launch_bounds__(kShortThreads)
    correlate_short(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int N, int K) {
    extern __shared__ __align__(16) float shared_floats[];
    float* const sums = shared_floats;
    float* const taps = sums + kShortWarps * kShortTile;
    float* const samples = taps + (K + 3) / 4 * 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * kShortTile, needed = kShortTile + K + 3;
    constexpr int kHeld = 3;
    for (int start = threadIdx.x; start < needed; start += kHeld * kShortThreads) {
        T a[kHeld], b[kHeld];
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const int k = start + n * kShortThreads;
            a[n] = first + k < N && k < needed ? x[first + k] : from_float<T>(0.0f);
            if (k < K) b[n] = w[k];
        }
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const int k = start + n * kShortThreads;
            if (k < needed) samples[k] = to_float(a[n]);
            if (k < K) taps[k] = to_float(b[n]);
        }
    }
    __syncthreads();
    const int groups = K / 4, from = groups * warp / kShortWarps, to = groups * (warp + 1) / kShortWarps;
    const float* const mine = samples + lane * 4;
    const auto load = [](const float* p, float* v) { *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(p); };
    float sum[4] = {};
    alignas(16) float v[8], f[4];
    load(mine + from * 4, v);
#pragma unroll 2
    for (int g = from; g < to; ++g) {
        load(mine + g * 4 + 4, v + 4);
        load(taps + g * 4, f);
#pragma unroll
        for (int t = 0; t < 4; ++t)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = fmaf(f[t], v[e + t], sum[e]);
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = v[e + 4];
    }
    if (warp == kShortWarps - 1)
        for (int k = groups * 4; k < K; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = fmaf(taps[k], mine[k + e], sum[e]);
    *reinterpret_cast<float4*>(sums + warp * kShortTile + lane * 4) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();
    const int i = first + int(threadIdx.x);
    if (threadIdx.x < kShortTile && i < N - K + 1) {
        float total = 0;
#pragma unroll
        for (int s = 0; s < kShortWarps; ++s) total += sums[s * kShortTile + threadIdx.x];
        y[i] = from_float<T>(total);
    }
}

// One launch; any size, but meant for few outputs.
template <typename T>
cudaError_t correlate_short_signal(const T* x, const T* w, T* y, int64_t N, int64_t K, cudaStream_t stream) {
    correlate_short<<<unsigned(ceil_div(N - K + 1, kShortTile)), kShortThreads, short_signal_bytes(K), stream>>>(x, w, y, int(N), int(K));
    return cudaGetLastError();
}

}  // namespace msbench
