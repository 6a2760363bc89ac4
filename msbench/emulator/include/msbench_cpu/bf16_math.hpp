// Arithmetic, comparisons and functions of one bfloat16. Each result is rounded once, as the GPU's instructions do:
// fp32 holds a product of two 8-bit significands exactly, and fp64 a product plus a third operand in all but extreme
// ranges.
#ifndef MSBENCH_CPU_BF16_MATH_HPP
#define MSBENCH_CPU_BF16_MATH_HPP

#include "bf16.hpp"

namespace msbench_cpu {

MSBENCH_CPU_INLINE float clamp01(float v) { return v > 0.0f ? (v < 1.0f ? v : 1.0f) : 0.0f; }
MSBENCH_CPU_INLINE double fused(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return static_cast<double>(__bfloat162float(a)) * __bfloat162float(b) + __bfloat162float(c);
}
MSBENCH_CPU_INLINE bool is_nan(__nv_bfloat16 a) { return (a.__x & 0x7fff) > 0x7f80; }

}  // namespace msbench_cpu

// ------------------------------------------------------------------ arithmetic

#define MSBENCH_CPU_BF16_ARITHMETIC(name, op)                                                       \
    MSBENCH_CPU_INLINE __nv_bfloat16 name(__nv_bfloat16 a, __nv_bfloat16 b) {                       \
        return __bfloat162float(a) op __bfloat162float(b);                                          \
    }                                                                                               \
    MSBENCH_CPU_INLINE __nv_bfloat16 operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) {  \
        return name(a, b);                                                                          \
    }                                                                                               \
    MSBENCH_CPU_INLINE __nv_bfloat16& operator op## = (__nv_bfloat16 & a, const __nv_bfloat16& b) { \
        return a = name(a, b);                                                                      \
    }
MSBENCH_CPU_BF16_ARITHMETIC(__hadd, +)
MSBENCH_CPU_BF16_ARITHMETIC(__hsub, -)
MSBENCH_CPU_BF16_ARITHMETIC(__hmul, *)
MSBENCH_CPU_BF16_ARITHMETIC(__hdiv, /)
#undef MSBENCH_CPU_BF16_ARITHMETIC

#define MSBENCH_CPU_BF16_VARIANTS(name, op)                                                             \
    MSBENCH_CPU_INLINE __nv_bfloat16 name##_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return name(a, b); } \
    MSBENCH_CPU_INLINE __nv_bfloat16 name##_sat(__nv_bfloat16 a, __nv_bfloat16 b) {                     \
        return msbench_cpu::clamp01(__bfloat162float(a) op __bfloat162float(b));                        \
    }
MSBENCH_CPU_BF16_VARIANTS(__hadd, +)
MSBENCH_CPU_BF16_VARIANTS(__hsub, -)
MSBENCH_CPU_BF16_VARIANTS(__hmul, *)
#undef MSBENCH_CPU_BF16_VARIANTS

MSBENCH_CPU_INLINE __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return msbench_cpu::fused(a, b, c);
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hfma_sat(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    double v = msbench_cpu::fused(a, b, c);
    return v > 0.0 ? (v < 1.0 ? v : 1.0) : 0.0;
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hfma_relu(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    double v = msbench_cpu::fused(a, b, c);
    return v < 0.0 ? 0.0 : v;
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hneg(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.__x ^ 0x8000); }
MSBENCH_CPU_INLINE __nv_bfloat16 __habs(__nv_bfloat16 a) { return __ushort_as_bfloat16(a.__x & 0x7fff); }
MSBENCH_CPU_INLINE __nv_bfloat16 operator-(const __nv_bfloat16& a) { return __hneg(a); }
MSBENCH_CPU_INLINE __nv_bfloat16 operator+(const __nv_bfloat16& a) { return a; }
MSBENCH_CPU_INLINE __nv_bfloat16& operator++(__nv_bfloat16& a) { return a = a + __nv_bfloat16(1.0f); }
MSBENCH_CPU_INLINE __nv_bfloat16& operator--(__nv_bfloat16& a) { return a = a - __nv_bfloat16(1.0f); }
MSBENCH_CPU_INLINE __nv_bfloat16 operator++(__nv_bfloat16& a, int) { return std::exchange(a, a + __nv_bfloat16(1.0f)); }
MSBENCH_CPU_INLINE __nv_bfloat16 operator--(__nv_bfloat16& a, int) { return std::exchange(a, a - __nv_bfloat16(1.0f)); }

// Signed zeros are ordered, which C leaves open: max(-0, +0) is +0.
MSBENCH_CPU_INLINE __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) {
    float x = a, y = b;
    return x == y ? __ushort_as_bfloat16(a.__x & b.__x) : __nv_bfloat16(fmaxf(x, y));
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) {
    float x = a, y = b;
    return x == y ? __ushort_as_bfloat16(a.__x | b.__x) : __nv_bfloat16(fminf(x, y));
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hmax_nan(__nv_bfloat16 a, __nv_bfloat16 b) {
    return msbench_cpu::is_nan(a) || msbench_cpu::is_nan(b) ? __ushort_as_bfloat16(0x7fff) : __hmax(a, b);
}
MSBENCH_CPU_INLINE __nv_bfloat16 __hmin_nan(__nv_bfloat16 a, __nv_bfloat16 b) {
    return msbench_cpu::is_nan(a) || msbench_cpu::is_nan(b) ? __ushort_as_bfloat16(0x7fff) : __hmin(a, b);
}

// ------------------------------------------------------------------ comparisons; the form with u is true if unordered

#define MSBENCH_CPU_BF16_COMPARE(name, op)                                                                       \
    MSBENCH_CPU_INLINE bool name(__nv_bfloat16 a, __nv_bfloat16 b) {                                             \
        return !msbench_cpu::is_nan(a) && !msbench_cpu::is_nan(b) && __bfloat162float(a) op __bfloat162float(b); \
    }                                                                                                            \
    MSBENCH_CPU_INLINE bool name##u(__nv_bfloat16 a, __nv_bfloat16 b) {                                          \
        return msbench_cpu::is_nan(a) || msbench_cpu::is_nan(b) || __bfloat162float(a) op __bfloat162float(b);   \
    }                                                                                                            \
    MSBENCH_CPU_INLINE bool operator op(const __nv_bfloat16& a, const __nv_bfloat16& b) {                        \
        return __bfloat162float(a) op __bfloat162float(b);                                                       \
    }
MSBENCH_CPU_BF16_COMPARE(__heq, ==)
MSBENCH_CPU_BF16_COMPARE(__hne, !=)
MSBENCH_CPU_BF16_COMPARE(__hlt, <)
MSBENCH_CPU_BF16_COMPARE(__hle, <=)
MSBENCH_CPU_BF16_COMPARE(__hgt, >)
MSBENCH_CPU_BF16_COMPARE(__hge, >=)
#undef MSBENCH_CPU_BF16_COMPARE

MSBENCH_CPU_INLINE bool __hisnan(__nv_bfloat16 a) { return msbench_cpu::is_nan(a); }
MSBENCH_CPU_INLINE int __hisinf(__nv_bfloat16 a) { return a.__x == 0x7f80 ? 1 : a.__x == 0xff80 ? -1 : 0; }

// ------------------------------------------------------------------ functions

// The functions of one argument, applied in fp32: X(suffix, expression in x)
#define MSBENCH_CPU_BF16_FUNCTIONS(X)                                                                             \
    X(exp, expf(x))                                                                                               \
    X(exp2, exp2f(x)) X(exp10, exp10f(x)) X(log, logf(x)) X(log2, log2f(x)) X(log10, log10f(x)) X(sqrt, sqrtf(x)) \
        X(rsqrt, rsqrtf(x)) X(rcp, 1.0f / x) X(sin, sinf(x)) X(cos, cosf(x)) X(tanh, tanhf(x))                    \
            X(tanh_approx, tanhf(x)) X(floor, floorf(x)) X(ceil, ceilf(x)) X(rint, rintf(x)) X(trunc, truncf(x))
#define MSBENCH_CPU_BF16_FUNCTION(suffix, expression)             \
    MSBENCH_CPU_INLINE __nv_bfloat16 h##suffix(__nv_bfloat16 a) { \
        float x = __bfloat162float(a);                            \
        return __nv_bfloat16(expression);                         \
    }
MSBENCH_CPU_BF16_FUNCTIONS(MSBENCH_CPU_BF16_FUNCTION)
#undef MSBENCH_CPU_BF16_FUNCTION

MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicAdd, __nv_bfloat16, __hadd(old, value))

template <>
inline constexpr bool msbench_cpu::can_shuffle<__nv_bfloat16> = true;

#endif
