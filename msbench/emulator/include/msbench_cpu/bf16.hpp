// __nv_bfloat16: the type and its conversions, as cuda_bf16.h declares them. Rounding is to nearest, ties to even.
#ifndef MSBENCH_CPU_BF16_HPP
#define MSBENCH_CPU_BF16_HPP

#include "all.hpp"

namespace msbench_cpu {

/// The 16 upper bits after rounding; every NaN becomes 0x7fff, as cvt.rn.bf16.f32 does.
MSBENCH_CPU_INLINE unsigned short bf16_bits(float value) {
    unsigned bits = std::bit_cast<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// One rounding from double: to float by "round to odd" first, which keeps what the second rounding needs
/// (Boldo and Melquiond 2008, "Emulation of FMA and correctly rounded sums").
inline unsigned short bf16_bits(double value) {
    auto near = static_cast<float>(value);
    if (static_cast<double>(near) == value || !std::isfinite(near)) return bf16_bits(near);
    unsigned bits = std::bit_cast<unsigned>(near);
    if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
    return bf16_bits(std::bit_cast<float>(bits | 1u));
}

enum class Round { nearest, zero, down, up };

/// The other directions: cut off, then one step further from zero where the direction asks for it.
inline unsigned short bf16_bits(float value, Round round) {
    if (round == Round::nearest || value != value) return bf16_bits(value);
    unsigned bits = std::bit_cast<unsigned>(value);
    auto cut = static_cast<unsigned short>(bits >> 16);
    bool inexact = (bits & 0xffffu) != 0, negative = (bits >> 31) != 0;
    bool away = (round == Round::up && !negative) || (round == Round::down && negative);
    return static_cast<unsigned short>(cut + (inexact && away));
}

MSBENCH_CPU_INLINE float bf16_value(unsigned short bits) {
    return std::bit_cast<float>(static_cast<unsigned>(bits) << 16);
}

}  // namespace msbench_cpu

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
    __nv_bfloat16(float v) : __x(msbench_cpu::bf16_bits(v)) {}
    __nv_bfloat16(double v) : __x(msbench_cpu::bf16_bits(v)) {}
    __nv_bfloat16(short v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(unsigned short v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(int v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(unsigned v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(long v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(unsigned long v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(long long v) : __nv_bfloat16(static_cast<double>(v)) {}
    __nv_bfloat16(unsigned long long v) : __nv_bfloat16(static_cast<double>(v)) {}

    operator __nv_bfloat16_raw() const { return {__x}; }
    operator float() const { return msbench_cpu::bf16_value(__x); }
    operator bool() const { return (__x & 0x7fff) != 0; }
    operator signed char() const { return integer<signed char>(); }
    operator unsigned char() const { return integer<unsigned char>(); }
    operator char() const { return integer<char>(); }
    operator short() const { return integer<short>(); }
    operator unsigned short() const { return integer<unsigned short>(); }
    operator int() const { return integer<int>(); }
    operator unsigned() const { return integer<unsigned>(); }
    operator long() const { return integer<long>(); }
    operator unsigned long() const { return integer<unsigned long>(); }
    operator long long() const { return integer<long long>(); }
    operator unsigned long long() const { return integer<unsigned long long>(); }

    __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) { return __x = raw.x, *this; }
    __nv_bfloat16& operator=(float v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(double v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(short v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(unsigned short v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(int v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(unsigned v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(long long v) { return *this = __nv_bfloat16(v); }
    __nv_bfloat16& operator=(unsigned long long v) { return *this = __nv_bfloat16(v); }

private:
    template <class T>
    T integer() const {
        return msbench_cpu::saturate<T>(std::trunc(msbench_cpu::bf16_value(__x)));
    }
};
typedef __nv_bfloat16 nv_bfloat16;

// ------------------------------------------------------------------ conversions

MSBENCH_CPU_INLINE float __bfloat162float(__nv_bfloat16 a) { return msbench_cpu::bf16_value(a.__x); }
MSBENCH_CPU_INLINE __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16_raw{bits}; }
MSBENCH_CPU_INLINE __nv_bfloat16 __short_as_bfloat16(short bits) {
    return __nv_bfloat16_raw{static_cast<unsigned short>(bits)};
}
MSBENCH_CPU_INLINE unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.__x; }
MSBENCH_CPU_INLINE short __bfloat16_as_short(__nv_bfloat16 a) { return static_cast<short>(a.__x); }

MSBENCH_CPU_INLINE __nv_bfloat16 __float2bfloat16(float v) { return v; }
MSBENCH_CPU_INLINE __nv_bfloat16 __float2bfloat16_rn(float v) { return v; }
MSBENCH_CPU_INLINE __nv_bfloat16 __float2bfloat16_rz(float v) {
    return __ushort_as_bfloat16(msbench_cpu::bf16_bits(v, msbench_cpu::Round::zero));
}
MSBENCH_CPU_INLINE __nv_bfloat16 __float2bfloat16_rd(float v) {
    return __ushort_as_bfloat16(msbench_cpu::bf16_bits(v, msbench_cpu::Round::down));
}
MSBENCH_CPU_INLINE __nv_bfloat16 __float2bfloat16_ru(float v) {
    return __ushort_as_bfloat16(msbench_cpu::bf16_bits(v, msbench_cpu::Round::up));
}
MSBENCH_CPU_INLINE __nv_bfloat16 __double2bfloat16(double v) { return v; }

// The bfloat16 value as an integer in all four directions, and an integer rounded to nearest as a bfloat16.
#define MSBENCH_CPU_BF16_INTEGER(name, T)                                      \
    MSBENCH_CPU_INLINE __nv_bfloat16 __##name##2bfloat16_rn(T v) { return v; } \
    MSBENCH_CPU_INLINE T __bfloat162##name##_rn(__nv_bfloat16 a) {             \
        return msbench_cpu::saturate<T>(std::nearbyint(__bfloat162float(a)));  \
    }                                                                          \
    MSBENCH_CPU_INLINE T __bfloat162##name##_rz(__nv_bfloat16 a) {             \
        return msbench_cpu::saturate<T>(std::trunc(__bfloat162float(a)));      \
    }                                                                          \
    MSBENCH_CPU_INLINE T __bfloat162##name##_rd(__nv_bfloat16 a) {             \
        return msbench_cpu::saturate<T>(std::floor(__bfloat162float(a)));      \
    }                                                                          \
    MSBENCH_CPU_INLINE T __bfloat162##name##_ru(__nv_bfloat16 a) {             \
        return msbench_cpu::saturate<T>(std::ceil(__bfloat162float(a)));       \
    }
MSBENCH_CPU_BF16_INTEGER(short, short)
MSBENCH_CPU_BF16_INTEGER(ushort, unsigned short)
MSBENCH_CPU_BF16_INTEGER(int, int)
MSBENCH_CPU_BF16_INTEGER(uint, unsigned)
MSBENCH_CPU_BF16_INTEGER(ll, long long)
MSBENCH_CPU_BF16_INTEGER(ull, unsigned long long)
#undef MSBENCH_CPU_BF16_INTEGER
MSBENCH_CPU_INLINE signed char __bfloat162char_rz(__nv_bfloat16 a) { return a; }
MSBENCH_CPU_INLINE unsigned char __bfloat162uchar_rz(__nv_bfloat16 a) { return a; }

#endif
