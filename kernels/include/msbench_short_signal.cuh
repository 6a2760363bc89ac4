// The correlation of a short signal with a filter by FFMA, for sizes that are bound by latency: a thread has four outputs in sliding
// registers. Where there are few threads otherwise, the warps of a block share the filter, and their sums meet in shared memory.
#pragma once

#include "msbench.cuh"

namespace msbench {

// kShares of a block's kWarps share the filter.
template <int kWarps_, int kShares_>
struct ShortPlan {
    static constexpr int kWarps = kWarps_, kShares = kShares_, kThreads = 32 * kWarps;
    static constexpr int kWarpOutputs = 128, kTile = kWarpOutputs * (kWarps / kShares);  // of a block
};

template <typename T, class Plan>
__global__ void __launch_bounds__(Plan::kThreads)
    correlate_short(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int N, int K) {
    constexpr int kThreads = Plan::kThreads, kShares = Plan::kShares, kTile = Plan::kTile;
    extern __shared__ __align__(16) float shared_floats[];
    float* const sums = shared_floats;  // [share][output]
    float* const taps = sums + (kShares > 1 ? kShares * kTile : 0);
    float* const samples = taps + (K + 3) / 4 * 4;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * kTile, needed = kTile + K + 3, outputs = N - K + 1;
    constexpr int kHeld = kTile / kThreads + 1 > 3 ? kTile / kThreads + 1 : 3;
    for (int start = threadIdx.x; start < needed; start += kHeld * kThreads) {
        T a[kHeld], b[kHeld];
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const int k = start + n * kThreads;
            a[n] = first + k < N && k < needed ? x[first + k] : from_float<T>(0.0f);
            if (k < K) b[n] = w[k];
        }
#pragma unroll
        for (int n = 0; n < kHeld; ++n) {
            const int k = start + n * kThreads;
            if (k < needed) samples[k] = to_float(a[n]);
            if (k < K) taps[k] = to_float(b[n]);
        }
    }
    __syncthreads();
    const int share = warp % kShares, place = warp / kShares * Plan::kWarpOutputs + lane * 4;
    const int groups = K / 4, from = groups * share / kShares, to = groups * (share + 1) / kShares;
    const float* const mine = samples + place;
    const auto load = [](const float* p, float* v) { *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(p); };
    alignas(16) float sum[4] = {}, v[8], f[4];
    load(mine + from * 4, v);
#pragma unroll(kShares == 1 ? 4 : 2)
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
    if (share == kShares - 1)
        for (int k = groups * 4; k < K; ++k)
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] = fmaf(taps[k], mine[k + e], sum[e]);
    if constexpr (kShares == 1) {
        const int i = first + place;
        struct alignas(4 * sizeof(T)) Four {
            T lane[4];
        } r;
#pragma unroll
        for (int e = 0; e < 4; ++e) r.lane[e] = from_float<T>(sum[e]);
        if (reinterpret_cast<uintptr_t>(y) % sizeof(r) == 0 && i + 4 <= outputs) *reinterpret_cast<Four*>(y + i) = r;
        else
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (i + e < outputs) y[i + e] = r.lane[e];
    } else {
        load(sum, sums + share * kTile + place);
        __syncthreads();
#pragma unroll
        for (int at = threadIdx.x; at < kTile; at += kThreads) {
            if (first + at >= outputs) continue;
            float total = 0;
#pragma unroll
            for (int s = 0; s < kShares; ++s) total += sums[s * kTile + at];
            y[first + at] = from_float<T>(total);
        }
    }
}

template <class Plan, typename T>
cudaError_t correlate_by(const T* x, const T* w, T* y, int64_t N, int64_t K, cudaStream_t stream) {
    const size_t floats = (Plan::kShares > 1 ? Plan::kShares * Plan::kTile : 0) + (K + 3) / 4 * 4 + Plan::kTile + K + 3;
    const unsigned blocks = unsigned(ceil_div(N - K + 1, Plan::kTile));
    correlate_short<T, Plan><<<blocks, Plan::kThreads, floats * sizeof(float), stream>>>(x, w, y, int(N), int(K));
    return cudaGetLastError();
}

// One launch; any size, but meant for few outputs. Measured (H200, 2026-11-26): all warps share the filter for 2^14 outputs, or if it has
// 256 taps. For 2^16 four do, and none if it has 32; for 2^17 none either if it has 64.
template <typename T>
cudaError_t correlate_short_signal(const T* x, const T* w, T* y, int64_t N, int64_t K, cudaStream_t stream) {
    const int64_t outputs = N - K + 1;
    if (outputs <= 1 << 15 || K > 192) return correlate_by<ShortPlan<8, 8>>(x, w, y, N, K, stream);
    if (K <= 40 || (K <= 64 && outputs > 100000)) return correlate_by<ShortPlan<4, 1>>(x, w, y, N, K, stream);
    return correlate_by<ShortPlan<4, 4>>(x, w, y, N, K, stream);
}

}  // namespace msbench
