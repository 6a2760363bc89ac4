// A tile of fp32 numbers in two fp16 parts, high + low / 2048, scaled together, for convolutions on tensor cores.
//
// A tile is multiplied by a power of two that brings its largest finite number into [2^14, 2^15). Because the low part is scaled
// up by itself, numbers down to 2^-27 of the largest keep 22 bits. Of a product high * high + (high * low + low * high) / 2048 the error is then at
// most 8 units of 2^-24. Smaller numbers keep an absolute error of 2^-36: where a tile has any (too_small), an output is exact enough
// if it is at least least_exact, and others are to be computed in fp32. Infinities and NaNs stay what they are, or become NaN.
#pragma once

#include <cuda_fp16.h>

namespace msbench {

// v's size where it is finite: for the largest of a tile.
__device__ __forceinline__ float finite_size(float v) {
    return fabsf(v) < __builtin_huge_valf() ? fabsf(v) : 0.0f;
}

__device__ __forceinline__ float power_of_two(int e) {
    return __int_as_float((e + 127) << 23);
}

struct TileScale {
    float up;      // a power of two
    int exponent;  // 1 / up is 2^exponent

    // Below 2^-112 the largest number no longer reaches 2^14, and more numbers are too small.
    __device__ __forceinline__ explicit TileScale(float largest) {
        exponent = max(int(__float_as_uint(largest) >> 23) - 127 - 14, -126);
        up = power_of_two(-exponent);
    }
    __device__ __forceinline__ bool too_small(float v) const { return v != 0 && fabsf(v * up) < 1.0f / 8192; }
};

// Two neighbours, the first in the lower half.
struct Parts {
    unsigned high, low;

    __device__ __forceinline__ Parts(float a, float b) {
        const __half2 h = __floats2half2_rn(a, b);
        const float2 back = __half22float2(h);
        const __half2 l = __floats2half2_rn((a - back.x) * 2048.0f, (b - back.y) * 2048.0f);
        high = reinterpret_cast<const unsigned&>(h), low = reinterpret_cast<const unsigned&>(l);
    }
};

// The least size among high parts, two at a time: a cheap first look for numbers that are too small. Zeros are suspicious as well.
struct LeastHigh {
    unsigned least = 0x7bff7bff;

    __device__ __forceinline__ void note(unsigned high) {
        const __half2 l = __hmin2(reinterpret_cast<const __half2&>(least), __habs2(reinterpret_cast<const __half2&>(high)));
        least = reinterpret_cast<const unsigned&>(l);
    }
    __device__ __forceinline__ bool suspicious() const { return (least & 0xffff) < 0x0800 || least >> 16 < 0x0800; }  // 2^-13
};

// Takes sums of products of two scaled tiles back, in two steps since the power of two may leave fp32's range.
struct Unscale {
    float f, g;

    __device__ __forceinline__ explicit Unscale(int e) {  // both exponents
        f = power_of_two(e / 2), g = power_of_two(e - e / 2);
    }
    __device__ __forceinline__ float operator()(float sum) const { return sum * f * g; }

    // An output of so many products that is not smaller errs by less than 2^-24 of itself because of numbers that are too small: each
    // product errs by at most 3 * 2^-36 * 2^15.
    __device__ __forceinline__ float least_exact(int products) const { return (*this)(16.0f * float(products)); }
};

}  // namespace msbench
