// Loads with a condition for many at a time: the compiler makes a branch of each condition, and one after the other may cost more than the
// loads. Here a condition is the load's predicate.
#pragma once

#include "msbench.cuh"

namespace msbench {

// An element as it is loaded: 32 bits, or 16 whose conversion waits until it is used.
template <typename T>
struct Loaded;

template <>
struct Loaded<float> {
    float x;

    // Leaves x undefined if not `condition`.
    __device__ __forceinline__ void load_if(bool condition, const float* p) {
#ifdef __NVCC__
        asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %1, 0;\n@q ld.global.nc.f32 %0, [%2];\n}" : "=f"(x) : "r"(unsigned(condition)), "l"(p));
#else  // the processor's executor has no predicates
        if (condition) x = *p;
#endif
    }
    __device__ __forceinline__ float value() const { return x; }
};

#ifndef MSBENCH_WITHOUT_BF16
template <>
struct Loaded<__nv_bfloat16> {
    unsigned short x;

    __device__ __forceinline__ void load_if(bool condition, const __nv_bfloat16* p) {
#ifdef __NVCC__
        asm volatile("{\n.reg .pred q;\nsetp.ne.u32 q, %1, 0;\n@q ld.global.nc.u16 %0, [%2];\n}" : "=h"(x) : "r"(unsigned(condition)), "l"(p));
#else
        if (condition) x = __bfloat16_as_ushort(*p);
#endif
    }
    __device__ __forceinline__ float value() const { return __uint_as_float(unsigned(x) << 16); }
};
#endif

}  // namespace msbench
