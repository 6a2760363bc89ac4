// __nv_bfloat162: two bfloat16 in one 32-bit word, and everything of bf16_math.hpp on both halves.
#ifndef MSBENCH_CPU_BF162_HPP
#define MSBENCH_CPU_BF162_HPP

#include "bf16_math.hpp"

struct alignas(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    constexpr __nv_bfloat162(const __nv_bfloat16& a, const __nv_bfloat16& b) : x(a), y(b) {}
    __nv_bfloat162(const __nv_bfloat162_raw& raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    operator __nv_bfloat162_raw() const { return {x.__x, y.__x}; }
};
typedef __nv_bfloat162 nv_bfloat162;

// ------------------------------------------------------------------ making and taking apart

MSBENCH_CPU_INLINE __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __float2bfloat162_rn(float v) { return {__nv_bfloat16(v), __nv_bfloat16(v)}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
MSBENCH_CPU_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
MSBENCH_CPU_INLINE float2 __bfloat1622float2(__nv_bfloat162 a) {
    return {__bfloat162float(a.x), __bfloat162float(a.y)};
}
MSBENCH_CPU_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
MSBENCH_CPU_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
MSBENCH_CPU_INLINE float __low2float(__nv_bfloat162 a) { return __bfloat162float(a.x); }
MSBENCH_CPU_INLINE float __high2float(__nv_bfloat162 a) { return __bfloat162float(a.y); }
MSBENCH_CPU_INLINE __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return {a.x, a.x}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return {a.y, a.y}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __lows2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.x, b.x}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __highs2bfloat162(__nv_bfloat162 a, __nv_bfloat162 b) { return {a.y, b.y}; }
MSBENCH_CPU_INLINE __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 a) { return {a.y, a.x}; }

// ------------------------------------------------------------------ arithmetic on both halves

#define MSBENCH_CPU_BF162_UNARY(name, half) \
    MSBENCH_CPU_INLINE __nv_bfloat162 name(__nv_bfloat162 a) { return {half(a.x), half(a.y)}; }
#define MSBENCH_CPU_BF162_BINARY(name, half)                                     \
    MSBENCH_CPU_INLINE __nv_bfloat162 name(__nv_bfloat162 a, __nv_bfloat162 b) { \
        return {half(a.x, b.x), half(a.y, b.y)};                                 \
    }
#define MSBENCH_CPU_BF162_TERNARY(name, half)                                                      \
    MSBENCH_CPU_INLINE __nv_bfloat162 name(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { \
        return {half(a.x, b.x, c.x), half(a.y, b.y, c.y)};                                         \
    }
#define MSBENCH_CPU_BF162_OPERATOR(op, half)                                                           \
    MSBENCH_CPU_BF162_BINARY(operator op, half)                                                        \
    MSBENCH_CPU_INLINE __nv_bfloat162& operator op## = (__nv_bfloat162 & a, const __nv_bfloat162& b) { \
        return a = a op b;                                                                             \
    }

MSBENCH_CPU_BF162_BINARY(__hadd2, __hadd)
MSBENCH_CPU_BF162_BINARY(__hsub2, __hsub)
MSBENCH_CPU_BF162_BINARY(__hmul2, __hmul)
MSBENCH_CPU_BF162_BINARY(__h2div, __hdiv)
MSBENCH_CPU_BF162_BINARY(__hadd2_rn, __hadd)
MSBENCH_CPU_BF162_BINARY(__hsub2_rn, __hsub)
MSBENCH_CPU_BF162_BINARY(__hmul2_rn, __hmul)
MSBENCH_CPU_BF162_BINARY(__hadd2_sat, __hadd_sat)
MSBENCH_CPU_BF162_BINARY(__hsub2_sat, __hsub_sat)
MSBENCH_CPU_BF162_BINARY(__hmul2_sat, __hmul_sat)
MSBENCH_CPU_BF162_BINARY(__hmax2, __hmax)
MSBENCH_CPU_BF162_BINARY(__hmin2, __hmin)
MSBENCH_CPU_BF162_BINARY(__hmax2_nan, __hmax_nan)
MSBENCH_CPU_BF162_BINARY(__hmin2_nan, __hmin_nan)
MSBENCH_CPU_BF162_TERNARY(__hfma2, __hfma)
MSBENCH_CPU_BF162_TERNARY(__hfma2_sat, __hfma_sat)
MSBENCH_CPU_BF162_TERNARY(__hfma2_relu, __hfma_relu)
MSBENCH_CPU_BF162_UNARY(__hneg2, __hneg)
MSBENCH_CPU_BF162_UNARY(__habs2, __habs)
MSBENCH_CPU_BF162_UNARY(operator-, __hneg)
MSBENCH_CPU_BF162_OPERATOR(+, __hadd)
MSBENCH_CPU_BF162_OPERATOR(-, __hsub)
MSBENCH_CPU_BF162_OPERATOR(*, __hmul)
MSBENCH_CPU_BF162_OPERATOR(/, __hdiv)

#define MSBENCH_CPU_BF162_FUNCTION(suffix, expression) MSBENCH_CPU_BF162_UNARY(h2##suffix, h##suffix)
MSBENCH_CPU_BF16_FUNCTIONS(MSBENCH_CPU_BF162_FUNCTION)

/// The complex product a * b + c of numbers whose real part is x.
MSBENCH_CPU_INLINE __nv_bfloat162 __hcmadd(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    __nv_bfloat16 real = __hfma(a.x, b.x, c.x), imaginary = __hfma(a.x, b.y, c.y);
    return {__hfma(__hneg(a.y), b.y, real), __hfma(a.y, b.x, imaginary)};
}

// ------------------------------------------------------------------ comparisons: as 1.0 or 0.0, as a mask, of both

#define MSBENCH_CPU_BF162_COMPARE(name, half)                                            \
    MSBENCH_CPU_INLINE __nv_bfloat162 __h##name##2(__nv_bfloat162 a, __nv_bfloat162 b) { \
        return __floats2bfloat162_rn(half(a.x, b.x), half(a.y, b.y));                    \
    }                                                                                    \
    MSBENCH_CPU_INLINE unsigned __h##name##2_mask(__nv_bfloat162 a, __nv_bfloat162 b) {  \
        return (half(a.x, b.x) ? 0xffffu : 0u) | (half(a.y, b.y) ? 0xffff0000u : 0u);    \
    }                                                                                    \
    MSBENCH_CPU_INLINE bool __hb##name##2(__nv_bfloat162 a, __nv_bfloat162 b) {          \
        return half(a.x, b.x) && half(a.y, b.y);                                         \
    }
#define MSBENCH_CPU_BF162_COMPARES(name) \
    MSBENCH_CPU_BF162_COMPARE(name, __h##name) MSBENCH_CPU_BF162_COMPARE(name##u, __h##name##u)
MSBENCH_CPU_BF162_COMPARES(eq)
MSBENCH_CPU_BF162_COMPARES(ne)
MSBENCH_CPU_BF162_COMPARES(lt)
MSBENCH_CPU_BF162_COMPARES(le)
MSBENCH_CPU_BF162_COMPARES(gt)
MSBENCH_CPU_BF162_COMPARES(ge)
MSBENCH_CPU_INLINE __nv_bfloat162 __hisnan2(__nv_bfloat162 a) {
    return __floats2bfloat162_rn(__hisnan(a.x), __hisnan(a.y));
}
MSBENCH_CPU_INLINE bool operator==(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hbeq2(a, b); }
MSBENCH_CPU_INLINE bool operator!=(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hbneu2(a, b); }
MSBENCH_CPU_INLINE bool operator<(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hblt2(a, b); }
MSBENCH_CPU_INLINE bool operator<=(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hble2(a, b); }
MSBENCH_CPU_INLINE bool operator>(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hbgt2(a, b); }
MSBENCH_CPU_INLINE bool operator>=(const __nv_bfloat162& a, const __nv_bfloat162& b) { return __hbge2(a, b); }

MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicAdd, __nv_bfloat162, __hadd2(old, value))

template <>
inline constexpr bool msbench_cpu::can_shuffle<__nv_bfloat162> = true;

#undef MSBENCH_CPU_BF162_UNARY
#undef MSBENCH_CPU_BF162_BINARY
#undef MSBENCH_CPU_BF162_TERNARY
#undef MSBENCH_CPU_BF162_OPERATOR
#undef MSBENCH_CPU_BF162_FUNCTION
#undef MSBENCH_CPU_BF162_COMPARE
#undef MSBENCH_CPU_BF162_COMPARES

#endif
