// Loads of sparse matrices' entries: each is read once, so they pass L1 and leave it to what is gathered.
#pragma once

#include "msbench.cuh"

namespace msbench {

__device__ inline int32_t load_once(const int32_t* p) {
    int32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

__device__ inline float load_once(const float* p) {
    float v;
    asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(p));
    return v;
}

#ifndef MSBENCH_WITHOUT_BF16
__device__ inline __nv_bfloat16 load_once(const __nv_bfloat16* p) {
    unsigned short v;
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
    return __ushort_as_bfloat16(v);
}
#endif

// Four neighbours, by one load. The address is a multiple of four elements.
__device__ inline void load_four_once(const int32_t* p, int32_t (&out)[4]) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "l"(p));
}

__device__ inline void load_four_once(const float* p, float (&out)[4]) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3])
                 : "l"(p));
}

#ifndef MSBENCH_WITHOUT_BF16
__device__ inline void load_four_once(const __nv_bfloat16* p, float (&out)[4]) {
    unsigned low, high;
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "l"(p));
    out[0] = __uint_as_float(low << 16);
    out[1] = __uint_as_float(low & 0xffff0000u);
    out[2] = __uint_as_float(high << 16);
    out[3] = __uint_as_float(high & 0xffff0000u);
}
#endif

// Whether fours of elements may be loaded from these arrays.
template <typename T>
inline bool fours_allowed(const int32_t* indices, const T* values) {
    return reinterpret_cast<uintptr_t>(indices) % 16 == 0 && reinterpret_cast<uintptr_t>(values) % (4 * sizeof(T)) == 0;
}

}  // namespace msbench
