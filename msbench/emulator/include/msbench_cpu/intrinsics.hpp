// Integer and bit intrinsics, conversions with a stated rounding, reinterpretations.
#ifndef MSBENCH_CPU_INTRINSICS_HPP
#define MSBENCH_CPU_INTRINSICS_HPP

#include <algorithm>
#include <bit>

#include <limits>

#include "language.hpp"

// ------------------------------------------------------------------ bits

MSBENCH_CPU_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
MSBENCH_CPU_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
MSBENCH_CPU_INLINE int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
MSBENCH_CPU_INLINE int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
MSBENCH_CPU_INLINE int __ffs(int x) { return __builtin_ffs(x); }
MSBENCH_CPU_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
MSBENCH_CPU_INLINE unsigned __brev(unsigned x) {
    x = (x & 0x55555555u) << 1 | (x >> 1 & 0x55555555u);
    x = (x & 0x33333333u) << 2 | (x >> 2 & 0x33333333u);
    x = (x & 0x0f0f0f0fu) << 4 | (x >> 4 & 0x0f0f0f0fu);
    return __builtin_bswap32(x);
}
MSBENCH_CPU_INLINE unsigned long long __brevll(unsigned long long x) {
    return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
           __brev(static_cast<unsigned>(x >> 32));
}
/// The position of the n-th set bit from `base` upwards (n > 0) or downwards (n < 0), or 0xffffffff (PTX fns.b32).
MSBENCH_CPU_INLINE unsigned __fns(unsigned mask, unsigned base, int offset) {
    if (offset == 0) return mask >> base & 1 ? base : 0xffffffffu;
    int step = offset > 0 ? 1 : -1, left = offset * step;
    for (int i = static_cast<int>(base); i >= 0 && i < 32; i += step)
        if ((mask >> i & 1) && --left == 0) return static_cast<unsigned>(i);
    return 0xffffffffu;
}
/// Byte i of the result is byte (selector >> 4 i) & 7 of the eight bytes y:x; bit 3 replicates that byte's sign.
MSBENCH_CPU_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = static_cast<unsigned long long>(y) << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned s = selector >> (4 * i) & 0xf;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (s & 7))) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
MSBENCH_CPU_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
MSBENCH_CPU_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
MSBENCH_CPU_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
MSBENCH_CPU_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}

// ------------------------------------------------------------------ integer arithmetic

MSBENCH_CPU_INLINE int __mulhi(int a, int b) { return static_cast<int>(static_cast<int64_t>(a) * b >> 32); }
MSBENCH_CPU_INLINE unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
MSBENCH_CPU_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
MSBENCH_CPU_INLINE long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
MSBENCH_CPU_INLINE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
MSBENCH_CPU_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
MSBENCH_CPU_INLINE int __hadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b) >> 1); }
MSBENCH_CPU_INLINE int __rhadd(int a, int b) { return static_cast<int>((static_cast<int64_t>(a) + b + 1) >> 1); }
MSBENCH_CPU_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a > b ? a - b : b - a) + c; }
MSBENCH_CPU_INLINE unsigned __sad(int a, int b, unsigned c) {
    return static_cast<unsigned>(a > b ? static_cast<int64_t>(a) - b : static_cast<int64_t>(b) - a) + c;
}
MSBENCH_CPU_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += static_cast<signed char>(a >> i) * static_cast<signed char>(b >> i);
    return c;
}
MSBENCH_CPU_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}

MSBENCH_CPU_INLINE int __viaddmax_s32(int a, int b, int c) { return std::max(a + b, c); }
MSBENCH_CPU_INLINE int __viaddmin_s32(int a, int b, int c) { return std::min(a + b, c); }
MSBENCH_CPU_INLINE unsigned __viaddmax_u32(unsigned a, unsigned b, unsigned c) { return std::max(a + b, c); }
MSBENCH_CPU_INLINE unsigned __viaddmin_u32(unsigned a, unsigned b, unsigned c) { return std::min(a + b, c); }

// Each byte, or each half, for itself: no carry passes from one to the next.
MSBENCH_CPU_INLINE unsigned __vadd4(unsigned a, unsigned b) {
    return ((a & 0x7f7f7f7fu) + (b & 0x7f7f7f7fu)) ^ ((a ^ b) & 0x80808080u);
}
MSBENCH_CPU_INLINE unsigned __vsub4(unsigned a, unsigned b) {
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}
MSBENCH_CPU_INLINE unsigned __vadd2(unsigned a, unsigned b) {
    return ((a & 0x7fff7fffu) + (b & 0x7fff7fffu)) ^ ((a ^ b) & 0x80008000u);
}
MSBENCH_CPU_INLINE unsigned __vsub2(unsigned a, unsigned b) {
    return ((a | 0x80008000u) - (b & 0x7fff7fffu)) ^ ((a ^ ~b) & 0x80008000u);
}

namespace msbench_cpu {

/// `of` for each byte or half of a and b, of type T.
template <class T, class Of>
MSBENCH_CPU_INLINE unsigned of_parts(unsigned a, unsigned b, Of of) {
    constexpr unsigned width = 8 * sizeof(T), all = (1u << width) - 1;
    unsigned result = 0;
    for (unsigned at = 0; at < 32; at += width)
        result |= (static_cast<unsigned>(of(static_cast<T>(a >> at), static_cast<T>(b >> at))) & all) << at;
    return result;
}

}  // namespace msbench_cpu

#define MSBENCH_CPU_OF_PARTS(name, type, expression)                        \
    MSBENCH_CPU_INLINE unsigned name(unsigned a, unsigned b) {              \
        return msbench_cpu::of_parts<type>(a, b, [](type x, type y) -> int { \
            return expression;                                              \
        });                                                                 \
    }
MSBENCH_CPU_OF_PARTS(__vmaxu2, uint16_t, std::max(x, y))
MSBENCH_CPU_OF_PARTS(__vmaxu4, uint8_t, std::max(x, y))
MSBENCH_CPU_OF_PARTS(__vmaxs2, int16_t, std::max(x, y))
MSBENCH_CPU_OF_PARTS(__vmaxs4, int8_t, std::max(x, y))
MSBENCH_CPU_OF_PARTS(__vminu2, uint16_t, std::min(x, y))
MSBENCH_CPU_OF_PARTS(__vminu4, uint8_t, std::min(x, y))
MSBENCH_CPU_OF_PARTS(__vmins2, int16_t, std::min(x, y))
MSBENCH_CPU_OF_PARTS(__vmins4, int8_t, std::min(x, y))
MSBENCH_CPU_OF_PARTS(__vabsdiffu2, uint16_t, x > y ? x - y : y - x)
MSBENCH_CPU_OF_PARTS(__vabsdiffu4, uint8_t, x > y ? x - y : y - x)
MSBENCH_CPU_OF_PARTS(__vcmpeq2, uint16_t, x == y ? -1 : 0)
MSBENCH_CPU_OF_PARTS(__vcmpeq4, uint8_t, x == y ? -1 : 0)
MSBENCH_CPU_OF_PARTS(__vcmpgtu2, uint16_t, x > y ? -1 : 0)
MSBENCH_CPU_OF_PARTS(__vcmpgtu4, uint8_t, x > y ? -1 : 0)
MSBENCH_CPU_OF_PARTS(__vcmpgts2, int16_t, x > y ? -1 : 0)
MSBENCH_CPU_OF_PARTS(__vcmpgts4, int8_t, x > y ? -1 : 0)
#undef MSBENCH_CPU_OF_PARTS

// ------------------------------------------------------------------ reinterpretation

MSBENCH_CPU_INLINE int __float_as_int(float x) { return std::bit_cast<int>(x); }
MSBENCH_CPU_INLINE unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
MSBENCH_CPU_INLINE float __int_as_float(int x) { return std::bit_cast<float>(x); }
MSBENCH_CPU_INLINE float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
MSBENCH_CPU_INLINE long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
MSBENCH_CPU_INLINE double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
MSBENCH_CPU_INLINE int __double2hiint(double x) { return static_cast<int>(std::bit_cast<long long>(x) >> 32); }
MSBENCH_CPU_INLINE int __double2loint(double x) { return static_cast<int>(std::bit_cast<long long>(x)); }
MSBENCH_CPU_INLINE double __hiloint2double(int high, int low) {
    return std::bit_cast<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                                 static_cast<unsigned>(low));
}

// ------------------------------------------------------------------ conversions

namespace msbench_cpu {

/// To an integer that may be too small for it: saturated, and NaN becomes 0 (PTX cvt).
template <class To, class From>
MSBENCH_CPU_INLINE To saturate(From x) {
    using Limits = std::numeric_limits<To>;
    if (x != x) return 0;
    if (x >= std::ldexp(static_cast<From>(1), Limits::digits)) return Limits::max();
    if (x <= static_cast<From>(Limits::min())) return Limits::min();
    return static_cast<To>(x);
}

}  // namespace msbench_cpu

#define MSBENCH_CPU_TO_INTEGER(from, to, From, To)                                                              \
    MSBENCH_CPU_INLINE To __##from##2##to##_rn(From x) { return msbench_cpu::saturate<To>(std::nearbyint(x)); } \
    MSBENCH_CPU_INLINE To __##from##2##to##_rz(From x) { return msbench_cpu::saturate<To>(std::trunc(x)); }     \
    MSBENCH_CPU_INLINE To __##from##2##to##_rd(From x) { return msbench_cpu::saturate<To>(std::floor(x)); }     \
    MSBENCH_CPU_INLINE To __##from##2##to##_ru(From x) { return msbench_cpu::saturate<To>(std::ceil(x)); }
MSBENCH_CPU_TO_INTEGER(float, int, float, int)
MSBENCH_CPU_TO_INTEGER(float, uint, float, unsigned)
MSBENCH_CPU_TO_INTEGER(float, ll, float, long long)
MSBENCH_CPU_TO_INTEGER(float, ull, float, unsigned long long)
MSBENCH_CPU_TO_INTEGER(double, int, double, int)
MSBENCH_CPU_TO_INTEGER(double, uint, double, unsigned)
MSBENCH_CPU_TO_INTEGER(double, ll, double, long long)
MSBENCH_CPU_TO_INTEGER(double, ull, double, unsigned long long)
#undef MSBENCH_CPU_TO_INTEGER

MSBENCH_CPU_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
MSBENCH_CPU_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
MSBENCH_CPU_INLINE float __ll2float_rn(long long x) { return static_cast<float>(x); }
MSBENCH_CPU_INLINE float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
MSBENCH_CPU_INLINE double __int2double_rn(int x) { return x; }
MSBENCH_CPU_INLINE double __uint2double_rn(unsigned x) { return x; }
MSBENCH_CPU_INLINE double __ll2double_rn(long long x) { return static_cast<double>(x); }
MSBENCH_CPU_INLINE float __double2float_rn(double x) { return static_cast<float>(x); }

#endif
