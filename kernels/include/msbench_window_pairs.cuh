// The largest numbers of windows along a row, two neighbours at a time. Maxima keep NaN.
//
// Two bf16 are one word, and one instruction finds both maxima; two floats are what a load brings together.
#pragma once

#include "msbench.cuh"

namespace msbench {

#if MSBENCH_FP32
__device__ __forceinline__ float larger(float a, float b) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
struct alignas(8) Pair {
    float x, y;
};
__device__ __forceinline__ Pair both(float a) { return {a, a}; }
__device__ __forceinline__ Pair low(Pair a, Pair b) { return {a.x, b.x}; }
__device__ __forceinline__ Pair high(Pair a, Pair b) { return {a.y, b.y}; }
__device__ __forceinline__ Pair between(Pair a, Pair b) { return {a.y, b.x}; }
__device__ __forceinline__ Pair swapped(Pair a) { return {a.y, a.x}; }
__device__ __forceinline__ Pair larger(Pair a, Pair b) { return {larger(a.x, b.x), larger(a.y, b.y)}; }
__device__ __forceinline__ float first(Pair a) { return a.x; }
__device__ __forceinline__ float second(Pair a) { return a.y; }
#else
__device__ __forceinline__ __nv_bfloat16 larger(__nv_bfloat16 a, __nv_bfloat16 b) { return __hmax_nan(a, b); }
using Pair = unsigned;
__device__ __forceinline__ Pair both(__nv_bfloat16 a) { return __bfloat16_as_ushort(a) * 0x10001u; }
__device__ __forceinline__ Pair low(Pair a, Pair b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ Pair high(Pair a, Pair b) { return __byte_perm(a, b, 0x7632); }
__device__ __forceinline__ Pair between(Pair a, Pair b) { return __byte_perm(a, b, 0x5432); }
__device__ __forceinline__ Pair swapped(Pair a) { return __byte_perm(a, a, 0x1032); }
__device__ __forceinline__ Pair larger(Pair a, Pair b) {
    const __nv_bfloat162 c =
        __hmax2_nan(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const Pair&>(c);
}
__device__ __forceinline__ __nv_bfloat16 first(Pair a) { return __ushort_as_bfloat16(static_cast<unsigned short>(a)); }
__device__ __forceinline__ __nv_bfloat16 second(Pair a) { return first(a >> 16); }
#endif

// What neighbouring lanes of the warp have: of the pair before the second number counts, of the pair behind the first, or both.
__device__ __forceinline__ Pair from_lane_before(Pair last) {
#if MSBENCH_FP32
    return both(__shfl_up_sync(0xffffffffu, last.y, 1));
#else
    return __shfl_up_sync(0xffffffffu, last, 1);
#endif
}
template <bool kBoth>
__device__ __forceinline__ Pair from_lane_behind(Pair first) {
#if MSBENCH_FP32
    const float x = __shfl_down_sync(0xffffffffu, first.x, 1);
    return {x, kBoth ? __shfl_down_sync(0xffffffffu, first.y, 1) : x};
#else
    return __shfl_down_sync(0xffffffffu, first, 1);
#endif
}

// The largest of each window of a row: V outputs from the pairs w[1] to w[V S / 2], and their neighbours w[0] and w[V S / 2 + 1].
template <int K, int S, int P, int V>
__device__ __forceinline__ void across(const Pair (&w)[V * S / 2 + 2], Pair (&out)[V / 2]) {
#pragma unroll
    for (int i = 0; i < V / 2; ++i) {
        if constexpr (S == 1) {
            const Pair a = P ? between(w[i], w[i + 1]) : w[i + 1], b = P ? w[i + 1] : between(w[i + 1], w[i + 2]);
            out[i] = larger(a, b);
            if constexpr (K == 3) out[i] = larger(out[i], P ? between(w[i + 1], w[i + 2]) : w[i + 2]);
        } else {
            const Pair before = w[2 * i], a = w[2 * i + 1], b = w[2 * i + 2], after = w[2 * i + 3];
            if constexpr (P == 0) {
                out[i] = larger(larger(low(a, b), high(a, b)), low(b, after));
                if constexpr (K == 4) out[i] = larger(out[i], high(b, after));
            } else if constexpr (K == 3) {
                out[i] = larger(larger(high(before, a), low(a, b)), high(a, b));
            } else {
                const Pair middle = between(a, b);  // in both windows
                out[i] = larger(larger(between(before, after), low(a, swapped(b))), larger(middle, swapped(middle)));
            }
        }
    }
}

}  // namespace msbench
