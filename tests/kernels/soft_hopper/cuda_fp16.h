// fp16 for the emulator: what kernels/include/msbench_split_scales.cuh and msbench_tile_split.cuh use.
#pragma once

#include <cuda_runtime.h>

struct __half {
    _Float16 x;
};
struct __half2 {
    _Float16 x, y;
};
inline __half2 __floats2half2_rn(float a, float b) {
    return {_Float16(a), _Float16(b)};
}
inline float2 __half22float2(__half2 a) {
    return make_float2(float(a.x), float(a.y));
}
inline __half __float2half_rn(float a) {
    return {_Float16(a)};
}
inline float __half2float(__half a) {
    return float(a.x);
}
inline __half2 __hmin2(__half2 a, __half2 b) {
    return {a.x < b.x ? a.x : b.x, a.y < b.y ? a.y : b.y};
}
inline __half2 __habs2(__half2 a) {
    return {a.x < 0 ? -a.x : a.x, a.y < 0 ? -a.y : a.y};
}
