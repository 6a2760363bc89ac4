// float2, int4, dim3 …: the built-in vector types with the alignments that CUDA gives them (programming guide, table
// "Alignment Requirements"), so that a misaligned float4 access is one here as well.
#ifndef MSBENCH_CPU_VECTOR_TYPES_HPP
#define MSBENCH_CPU_VECTOR_TYPES_HPP

#include "language.hpp"

#define MSBENCH_CPU_VECTORS(T, name, align1, align2, align4)                            \
    struct alignas(align1) name##1 { T x; };                                            \
    struct alignas(align2) name##2 { T x, y; };                                         \
    struct alignas(align1) name##3 { T x, y, z; };                                      \
    struct alignas(align4) name##4 { T x, y, z, w; };                                   \
    static inline constexpr name##1 make_##name##1(T x) { return {x}; }                 \
    static inline constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    static inline constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    static inline constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

MSBENCH_CPU_VECTORS(signed char, char, 1, 2, 4)
MSBENCH_CPU_VECTORS(unsigned char, uchar, 1, 2, 4)
MSBENCH_CPU_VECTORS(short, short, 2, 4, 8)
MSBENCH_CPU_VECTORS(unsigned short, ushort, 2, 4, 8)
MSBENCH_CPU_VECTORS(int, int, 4, 8, 16)
MSBENCH_CPU_VECTORS(unsigned int, uint, 4, 8, 16)
MSBENCH_CPU_VECTORS(long, long, 8, 16, 16)
MSBENCH_CPU_VECTORS(unsigned long, ulong, 8, 16, 16)
MSBENCH_CPU_VECTORS(long long, longlong, 8, 16, 16)
MSBENCH_CPU_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
MSBENCH_CPU_VECTORS(float, float, 4, 8, 16)
MSBENCH_CPU_VECTORS(double, double, 8, 16, 16)
#undef MSBENCH_CPU_VECTORS

/// Extents of a grid or a block; what is left out is 1.
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};

#endif
