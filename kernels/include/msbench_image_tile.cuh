// What blocks that correlate tiles of an image with a filter do with their sums: outputs go to y, and doubtful ones are looked at again.
//
// B, one of Bands and WideBands, says how: a lane has four outputs of each of kRows rows, in kPairs pairs beside each other (every 32nd of
// a row) and the rest kRows below.
#pragma once

#include "msbench.cuh"

#include <type_traits>

namespace msbench {

// Two outputs beside each other, and the pair that begins with their second if `odd`.
struct FloatPair {
    float2 v;
    __device__ __forceinline__ FloatPair(float a, float b) : v{a, b} {}
    __device__ __forceinline__ float2 shifted(float next, bool odd) const { return odd ? make_float2(v.y, next) : v; }
    __device__ __forceinline__ float first() const { return v.x; }
    __device__ __forceinline__ float second() const { return v.y; }
    __device__ __forceinline__ float sent() const { return v.x; }  // what the lane before needs
};
#ifndef MSBENCH_WITHOUT_BF16
struct Bf16Pair {
    unsigned v;
    __device__ __forceinline__ Bf16Pair(float a, float b) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
        v = reinterpret_cast<const unsigned&>(pair);
    }
    __device__ __forceinline__ unsigned shifted(unsigned next, bool odd) const { return __byte_perm(v, next, odd ? 0x5432 : 0x3210); }
    __device__ __forceinline__ __nv_bfloat16 first() const { return __ushort_as_bfloat16(static_cast<unsigned short>(v)); }
    __device__ __forceinline__ __nv_bfloat16 second() const { return __ushort_as_bfloat16(static_cast<unsigned short>(v >> 16)); }
    __device__ __forceinline__ unsigned sent() const { return v; }
};
__device__ __forceinline__ Bf16Pair pair_of(const __nv_bfloat16*, float a, float b) { return {a, b}; }
#endif
__device__ __forceinline__ FloatPair pair_of(const float*, float a, float b) { return {a, b}; }

// Stores 64 kPairs outputs beside each other; a lane has every 32nd pair. Rows of y start anywhere: where pairs would be misaligned, they
// shift by one element, over the lanes.
template <int kPairs, typename T>
__device__ __forceinline__ void store_columns(T* y, const float* v) {
    const int lane = threadIdx.x % 32;
    const bool odd = reinterpret_cast<uintptr_t>(y) & sizeof(T);
    T* const at = y + 2 * lane + odd;
    const auto head = pair_of(y, v[0], v[1]), tail = pair_of(y, v[2 * kPairs - 2], v[2 * kPairs - 1]);
    if constexpr (kPairs == 2) {
        const auto next = __shfl_sync(0xffffffffu, lane == 0 ? tail.sent() : head.sent(), (lane + 1) % 32);
        const auto shifted = head.shifted(next, odd);
        *reinterpret_cast<std::remove_const_t<decltype(shifted)>*>(at) = shifted;
    }
    const auto next = __shfl_sync(0xffffffffu, tail.sent(), (lane + 1) % 32);
    const auto shifted = tail.shifted(next, odd);
    if (!odd || lane < 31) *reinterpret_cast<std::remove_const_t<decltype(shifted)>*>(at + 64 * (kPairs - 1)) = shifted;
    if (odd && (lane == 0 || lane == 31)) y[lane == 0 ? 0 : 64 * kPairs - 1] = lane == 0 ? head.first() : tail.second();
}

struct ImageShape {
    int H, W, KH, KW;
    int64_t rows, columns;  // of outputs
};

// Output (i, j) by the definition.
template <typename T>
__device__ __noinline__ float exact_output(const T* x, const T* w, const ImageShape& s, int64_t i, int64_t j) {
    float sum = 0;
    for (int a = 0; a < s.KH; ++a)
        for (int b = 0; b < s.KW; ++b) sum = fmaf(to_float(w[a * s.KW + b]), to_float(x[(i + a) * s.W + j + b]), sum);
    return sum;
}

// Stores a warp's outputs, which begin at (row, column). Those that are not finite, because zeros of a band met an infinity, or below
// `least`, because two parts may not be exact enough, are computed again by the definition.
template <class B, typename T>
__device__ __forceinline__ void finish(const float (&sum)[B::kRows][4], const T* x, const T* w, T* y, const ImageShape& s, int64_t row,
                                       int64_t column, float least) {
    const int lane = threadIdx.x % 32;
    float test = 0;  // NaN if an output is not finite
#pragma unroll
    for (int i = 0; i < B::kRows; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) test = fmaf(sum[i][k], 0.0f, test);
    const bool doubtful = __any_sync(0xffffffffu, least > 0.0f || test != 0.0f);
    constexpr int kPairs = B::kPairs, kColumns = 64 * kPairs;
#pragma unroll
    for (int first = 0; first < 4; first += 2 * kPairs, row += B::kRows) {
        const int left = int(min(s.columns - column, int64_t(kColumns))), below = int(min(s.rows - row, int64_t(B::kRows)));
        T* to = y + row * s.columns + column;
        if (left == kColumns && below == B::kRows) {
#pragma unroll
            for (int i = 0; i < B::kRows; ++i, to += s.columns) store_columns<kPairs>(to, sum[i] + first);
        } else {
#pragma unroll
            for (int i = 0; i < B::kRows; ++i, to += s.columns)
#pragma unroll
                for (int k = 0; k < 2 * kPairs; ++k) {
                    const int at = k / 2 * 64 + 2 * lane + k % 2;
                    if (i < below && at < left) to[at] = from_float<T>(sum[i][first + k]);
                }
        }
        if (!doubtful) continue;
        __syncwarp();
        for (int i = 0; i < below; ++i) {
            for (int j = lane; j < left; j += 32) {
                T* const at = y + (row + i) * s.columns + column + j;
                const float size = fabsf(to_float(*at));
                if (size >= least && size < __builtin_huge_valf()) continue;
                *at = from_float<T>(exact_output(x, w, s, row + i, column + j));
            }
        }
    }
}

}  // namespace msbench
