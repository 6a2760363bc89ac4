// Mean and squared distances from it of parts of a vector, joined as Chan, Golub and LeVeque do, so that no difference of large
// sums is taken; and the map that needs them: y = w·(x - m) / √(v + ε) + b.
#pragma once

#include "msbench_packets.cuh"

namespace msbench {

struct alignas(16) NormPart {  // of some elements: how many, their mean, their squared distances from it
    float count, mean, squares;
};

__device__ inline float norm_sum(float x) { return warp_reduce(x, Sum()); }

// kCentred: the mean counts (layer_norm); otherwise it stays 0, and squares are distances from 0 (rms_norm).
//
// The parts of all lanes of a warp, kCount each, as one.
template <bool kCentred, int kCount>
__device__ NormPart join(const NormPart (&part)[kCount]) {
    NormPart all = {0, 0, 0};
    if constexpr (kCentred) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) all.count += part[i].count, all.mean += part[i].count * part[i].mean;
        all.count = norm_sum(all.count);
        all.mean = norm_sum(all.mean) / fmaxf(all.count, 1.0f);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const float apart = kCentred ? part[i].mean - all.mean : 0.0f;
        all.squares += fmaf(part[i].count * apart, apart, part[i].squares);
    }
    all.squares = norm_sum(all.squares);
    return all;
}

// The same for parts in shared memory, by every warp; by every thread where they are few.
template <bool kCentred, int kParts>
__device__ NormPart join_shared(const NormPart* parts) {
    if constexpr (kParts <= 8) {
        NormPart all = {0, 0, 0};
#pragma unroll
        for (int i = 0; i < kParts; ++i) all.count += parts[i].count, all.mean += parts[i].count * parts[i].mean;
        if constexpr (kCentred) all.mean /= all.count;
#pragma unroll
        for (int i = 0; i < kParts; ++i) {
            const float apart = kCentred ? parts[i].mean - all.mean : 0.0f;
            all.squares += fmaf(parts[i].count * apart, apart, parts[i].squares);
        }
        return all;
    } else {
        constexpr int kEach = (kParts + 31) / 32;
        const int lane = threadIdx.x % 32;
        NormPart own[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) own[i] = i * 32 + lane < kParts ? parts[i * 32 + lane] : NormPart{0, 0, 0};
        return join<kCentred>(own);
    }
}

template <typename T>
struct NormArrays {
    const T *x, *weight, *bias;
    T* y;
    float epsilon, inverse;  // 1 / n
    int64_t n;
};

template <int kWidth, typename T>
__device__ Group<T, kWidth> normalised(const Group<T, kWidth>& x, const Group<T, kWidth>& w, const Group<T, kWidth>& b, NormPart all,
                                       float scale) {
    Group<T, kWidth> y;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
        y.lane[k] = from_float<T>(fmaf(to_float(w.lane[k]), (to_float(x.lane[k]) - all.mean) * scale, to_float(b.lane[k])));
    }
    return y;
}

}  // namespace msbench
