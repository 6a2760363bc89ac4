// The correlation of a short signal with a short filter by lanes beside each other: each takes four of the filter's elements, all that
// it loads is on its way before the first product, and the sums of four outputs meet by shuffles. No shared memory and no barrier, which at
// these sizes count.
#pragma once

#include "msbench.cuh"

namespace msbench {

namespace lane_signal {

constexpr int kThreads = 256, kOutputs = 4;  // of a block; of the lanes that share them

template <typename T>
struct alignas(4 * sizeof(T)) Four {
    T lane[4];
};

// Elements at + 0 to at + 3 of `count`; any number beyond.
template <typename T>
__device__ __forceinline__ Four<T> load(const T* x, int at, int count) {
    if (at + 4 <= count) return *reinterpret_cast<const Four<T>*>(x + at);
    Four<T> four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.lane[e] = at + e < count ? x[at + e] : from_float<T>(0.0f);
    return four;
}

// x and w lie on a boundary of four elements; K is a multiple of 4, and at most 4 kShares.
template <typename T, int kShares>
__global__ void __launch_bounds__(kThreads) correlate(const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ y, int N, int K) {
    const int share = threadIdx.x % kShares, i = int(blockIdx.x * kThreads + threadIdx.x) / kShares * kOutputs, outputs = N - K + 1;
    float sum[kOutputs] = {};
    if (const int k = share * 4; k < K) {
        const Four<T> here = load(x, i + k, N), next = load(x, i + k + 4, N), taps = load(w, k, K);
#pragma unroll
        for (int t = 0; t < 4; ++t)
#pragma unroll
            for (int o = 0; o < kOutputs; ++o)
                sum[o] = fmaf(to_float(taps.lane[t]), to_float(t + o < 4 ? here.lane[(t + o) % 4] : next.lane[(t + o) % 4]), sum[o]);
    }
#pragma unroll
    for (int d = 1; d < kShares; d *= 2)
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) sum[o] += __shfl_xor_sync(0xffffffffu, sum[o], d);
    if (share != 0) return;
    Four<T> r;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) r.lane[o] = from_float<T>(sum[o]);
    if (reinterpret_cast<uintptr_t>(y) % sizeof(r) == 0 && i + kOutputs <= outputs) *reinterpret_cast<Four<T>*>(y + i) = r;
    else
#pragma unroll
        for (int o = 0; o < kOutputs; ++o)
            if (i + o < outputs) y[i + o] = r.lane[o];
}

}  // namespace lane_signal

// Whether lanes are the fastest (H200, 2026-11-26): 1 to 4 % for 2^10 to 2^14 samples with up to 64 taps, and for 2^16 with 32; with 128 for 2^12.
template <typename T>
bool suits_lanes(const T* x, const T* w, int64_t N, int64_t K) {
    const bool vectors = ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(w)) % (4 * sizeof(T))) == 0;
    return vectors && K % 4 == 0 && K <= 128 && N - K < (K <= 32 ? 1 << 16 : K <= 64 ? 1 << 15 : 1 << 13);
}

template <typename T>
cudaError_t correlate_by_lanes(const T* x, const T* w, T* y, int64_t N, int64_t K, cudaStream_t stream) {
    const int shares = K <= 32 ? 8 : K <= 64 ? 16 : 32;
    const auto kernel = shares == 8 ? lane_signal::correlate<T, 8> : shares == 16 ? lane_signal::correlate<T, 16> : lane_signal::correlate<T, 32>;
    const unsigned blocks = unsigned(ceil_div(N - K + 1, lane_signal::kThreads / shares * lane_signal::kOutputs));
    kernel<<<blocks, lane_signal::kThreads, 0, stream>>>(x, w, y, int(N), int(K));
    return cudaGetLastError();
}

}  // namespace msbench
