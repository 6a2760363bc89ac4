// Device math functions that the host's <cmath> lacks, and the fast-math intrinsics.
//
// The intrinsics follow the formulas of the CUDA C++ Programming Guide (section "Intrinsic Functions"): __expf(x) is
// exp2(x * log2 e) in fp32, so its error grows with |x| here as it does on a GPU. What the GPU's ex2/lg2/sin units add
// in the last bits is not modelled.
#ifndef MSBENCH_CPU_MATH_HPP
#define MSBENCH_CPU_MATH_HPP

#include "language.hpp"

// ------------------------------------------------------------------ min and max, CUDA's overloads

#define MSBENCH_CPU_MIN_MAX(A, B, R)                                                          \
    MSBENCH_CPU_INLINE constexpr R min(A a, B b) {                                            \
        return static_cast<R>(a) < static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); \
    }                                                                                         \
    MSBENCH_CPU_INLINE constexpr R max(A a, B b) {                                            \
        return static_cast<R>(a) > static_cast<R>(b) ? static_cast<R>(a) : static_cast<R>(b); \
    }
MSBENCH_CPU_MIN_MAX(int, int, int)
MSBENCH_CPU_MIN_MAX(unsigned, unsigned, unsigned)
MSBENCH_CPU_MIN_MAX(int, unsigned, unsigned)
MSBENCH_CPU_MIN_MAX(unsigned, int, unsigned)
MSBENCH_CPU_MIN_MAX(long, long, long)
MSBENCH_CPU_MIN_MAX(unsigned long, unsigned long, unsigned long)
MSBENCH_CPU_MIN_MAX(long, unsigned long, unsigned long)
MSBENCH_CPU_MIN_MAX(unsigned long, long, unsigned long)
MSBENCH_CPU_MIN_MAX(long long, long long, long long)
MSBENCH_CPU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
MSBENCH_CPU_MIN_MAX(long long, unsigned long long, unsigned long long)
MSBENCH_CPU_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef MSBENCH_CPU_MIN_MAX

// A NaN loses, as in fminf and in PTX's min.f32.
MSBENCH_CPU_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
MSBENCH_CPU_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
MSBENCH_CPU_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
MSBENCH_CPU_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }
MSBENCH_CPU_INLINE double min(float a, double b) { return __builtin_fmin(a, b); }
MSBENCH_CPU_INLINE double max(float a, double b) { return __builtin_fmax(a, b); }
MSBENCH_CPU_INLINE double min(double a, float b) { return __builtin_fmin(a, b); }
MSBENCH_CPU_INLINE double max(double a, float b) { return __builtin_fmax(a, b); }
MSBENCH_CPU_INLINE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
MSBENCH_CPU_INLINE unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }
MSBENCH_CPU_INLINE long long llmin(long long a, long long b) { return a < b ? a : b; }
MSBENCH_CPU_INLINE long long llmax(long long a, long long b) { return a > b ? a : b; }

// ------------------------------------------------------------------ functions that C lacks

MSBENCH_CPU_INLINE float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
MSBENCH_CPU_INLINE double rsqrt(double x) { return 1.0 / std::sqrt(x); }
MSBENCH_CPU_INLINE float rsqrt(float x) { return rsqrtf(x); }
MSBENCH_CPU_INLINE float rcbrtf(float x) { return static_cast<float>(1.0 / std::cbrt(static_cast<double>(x))); }
MSBENCH_CPU_INLINE double rcbrt(double x) { return 1.0 / std::cbrt(x); }
MSBENCH_CPU_INLINE float rhypotf(float x, float y) { return 1.0f / hypotf(x, y); }
MSBENCH_CPU_INLINE float norm3df(float x, float y, float z) { return std::hypot(x, y, z); }
MSBENCH_CPU_INLINE float rnorm3df(float x, float y, float z) { return 1.0f / std::hypot(x, y, z); }
MSBENCH_CPU_INLINE double rnorm3d(double x, double y, double z) { return 1.0 / std::hypot(x, y, z); }
MSBENCH_CPU_INLINE float norm4df(float a, float b, float c, float d) { return std::hypot(std::hypot(a, b), std::hypot(c, d)); }
MSBENCH_CPU_INLINE float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
MSBENCH_CPU_INLINE float fdividef(float x, float y) { return x / y; }
MSBENCH_CPU_INLINE double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
MSBENCH_CPU_INLINE float normcdff(float x) { return static_cast<float>(normcdf(x)); }
MSBENCH_CPU_INLINE double sinpi(double x) { return std::sin(M_PI * std::remainder(x, 2.0)); }
MSBENCH_CPU_INLINE double cospi(double x) { return std::cos(M_PI * std::remainder(x, 2.0)); }
MSBENCH_CPU_INLINE float sinpif(float x) { return static_cast<float>(sinpi(x)); }
MSBENCH_CPU_INLINE float cospif(float x) { return static_cast<float>(cospi(x)); }
MSBENCH_CPU_INLINE void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
MSBENCH_CPU_INLINE void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }

// ------------------------------------------------------------------ fast-math intrinsics

// Not in msbench_cpu: the macros below put these names into a kernel's own text, which may not hold that one.
namespace msbench_fast {

MSBENCH_CPU_INLINE float exp(float x) { return exp2f(x * 1.4426950408889634f); }
MSBENCH_CPU_INLINE float exp10(float x) { return exp2f(x * 3.3219280948873623f); }
MSBENCH_CPU_INLINE float log(float x) { return log2f(x) * 0.6931471805599453f; }
MSBENCH_CPU_INLINE float log10(float x) { return log2f(x) * 0.3010299956639812f; }
MSBENCH_CPU_INLINE float pow(float x, float y) { return exp2f(y * log2f(x)); }

/// The unit takes turns: an angle is divided by 2π in fp32 first, which costs large ones their digits.
MSBENCH_CPU_INLINE double turned(float x) {
    const float turns = x * 0.15915494309189535f;
    return 2 * M_PI * (turns - rintf(turns));
}
MSBENCH_CPU_INLINE float sin(float x) { return static_cast<float>(std::sin(turned(x))); }
MSBENCH_CPU_INLINE float cos(float x) { return static_cast<float>(std::cos(turned(x))); }
MSBENCH_CPU_INLINE void sincos(float x, float* s, float* c) { *s = sin(x), *c = cos(x); }
MSBENCH_CPU_INLINE float tan(float x) { return sin(x) / cos(x); }

/// Eleven significant bits: its relative error is up to 2^-11 (PTX ISA, tanh.approx.f32).
MSBENCH_CPU_INLINE float tanh(float x) {
    const float exact = tanhf(x);
    if (exact != exact) return exact;
    uint32_t bits;
    std::memcpy(&bits, &exact, sizeof bits);
    bits = (bits + 0x1000u) & ~0x1fffu;
    float rounded;
    std::memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

}  // namespace msbench_fast

// Macros, because glibc declares functions of these names for its own use.
#define __exp2f(x) exp2f(x)
#define __expf(x) ::msbench_fast::exp(x)
#define __exp10f(x) ::msbench_fast::exp10(x)
#define __log2f(x) log2f(x)
#define __logf(x) ::msbench_fast::log(x)
#define __log10f(x) ::msbench_fast::log10(x)
#define __powf(x, y) ::msbench_fast::pow(x, y)
#define __sinf(x) ::msbench_fast::sin(x)
#define __cosf(x) ::msbench_fast::cos(x)
#define __tanf(x) ::msbench_fast::tan(x)
#define __tanhf(x) ::msbench_fast::tanh(x)
#define __sincosf(x, s, c) ::msbench_fast::sincos(x, s, c)

/// For 2^126 < |y| < 2^128 the quotient is 0, as the guide says.
MSBENCH_CPU_INLINE float __fdividef(float x, float y) {
    bool flushed = std::fabs(y) > 0x1p126f && std::isfinite(y) && std::isfinite(x);
    return flushed ? std::copysign(0.0f, x) * std::copysign(1.0f, y) : x / y;
}
MSBENCH_CPU_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
MSBENCH_CPU_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }

// ------------------------------------------------------------------ arithmetic with a stated rounding

MSBENCH_CPU_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
MSBENCH_CPU_INLINE float __fadd_rn(float a, float b) { return a + b; }
MSBENCH_CPU_INLINE float __fsub_rn(float a, float b) { return a - b; }
MSBENCH_CPU_INLINE float __fmul_rn(float a, float b) { return a * b; }
MSBENCH_CPU_INLINE float __fdiv_rn(float a, float b) { return a / b; }
MSBENCH_CPU_INLINE float __frcp_rn(float a) { return 1.0f / a; }
MSBENCH_CPU_INLINE float __fsqrt_rn(float a) { return std::sqrt(a); }
MSBENCH_CPU_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
MSBENCH_CPU_INLINE double __dadd_rn(double a, double b) { return a + b; }
MSBENCH_CPU_INLINE double __dsub_rn(double a, double b) { return a - b; }
MSBENCH_CPU_INLINE double __dmul_rn(double a, double b) { return a * b; }
MSBENCH_CPU_INLINE double __ddiv_rn(double a, double b) { return a / b; }
MSBENCH_CPU_INLINE double __drcp_rn(double a) { return 1.0 / a; }
MSBENCH_CPU_INLINE double __dsqrt_rn(double a) { return std::sqrt(a); }

#endif
