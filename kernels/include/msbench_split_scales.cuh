// fp32 numbers as two scaled fp16 ones, x = (high + low / 2048) * unscale: the planes they are kept in, and a line's scale.
//
// A power of two brings each line's largest element into [2^14, 2^15), and because the low part is scaled up by itself, elements down to
// 2^-27 of the largest keep 22 bits. Smaller ones keep what is a multiple of 2^-35: whether that is all of them, and what all
// together have lost, is kept besides, so that a product can tell whether it matters (msbench_split_tiles.cuh).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace msbench {

// ---------------------------------------------------------------- planes

constexpr int kPanelK = 32, kPanelRowBytes = kPanelK * 2, kPlanes = 2;
constexpr float kLowScale = 2048.0f;

// Panels of 32 k: [panel][plane][eight lines][four chunks][line], a chunk being 8 elements of a line: cores as wgmma reads them, so that
// plain bulk copies bring them. `lines` and panels are rounded up with zeros; see split_layout.
//
// Of unscales the size is a power of two. Negative: the line has elements below 2^-27 of its largest, which have lost something. NaN,
// negative as well: it has others that are not finite, or beyond 2^±80; the last eight bits are the largest one's exponent. Of negative
// lines `losses`, unless it is null, says how much all elements together have lost, scaled, or NaN.
struct Planes {
    unsigned char* panels;
    float* unscales;
    int lines;
    float* losses;

    __device__ __forceinline__ unsigned char* panel(int panel, int plane, int line) const {
        return panels + (int64_t(panel * kPlanes + plane) * lines + line) * kPanelRowBytes;
    }
};

// Two scaled numbers as two fp16 parts each.
__device__ __forceinline__ void split_pair(float a, float b, unsigned& high, unsigned& low) {
    const __half2 pair = __floats2half2_rn(a, b);
    const float2 back = __half22float2(pair);
    const __half2 rest = __floats2half2_rn((a - back.x) * kLowScale, (b - back.y) * kLowScale);
    high = reinterpret_cast<const unsigned&>(pair), low = reinterpret_cast<const unsigned&>(rest);
}

__device__ __forceinline__ void store_split(const float (&x)[8], float scale, const Planes& to, int panel, int line, int chunk) {
    uint4 high, low;
    unsigned *h = reinterpret_cast<unsigned*>(&high), *l = reinterpret_cast<unsigned*>(&low);
#pragma unroll
    for (int i = 0; i < 4; ++i) split_pair(x[2 * i] * scale, x[2 * i + 1] * scale, h[i], l[i]);
    const int at = chunk * 128 + line % 8 * 16;
    *reinterpret_cast<uint4*>(to.panel(panel, 0, line / 8 * 8) + at) = high;
    *reinterpret_cast<uint4*>(to.panel(panel, 1, line / 8 * 8) + at) = low;
}

// ---------------------------------------------------------------- scales

constexpr int kTopExponent = 14;          // of a line's largest element after scaling; fp16 ends at 2^16
constexpr float kSmallest = 0x1p-13f;     // from here on, both parts together hold 22 bits at least
constexpr int kMostExponent = 80;         // of unscaled elements and their inverses, so that no product of scales overflows

struct Extremes {
    unsigned largest = 0, smallest = 0x7f800000;  // magnitudes as bits; the smallest that is not zero

    __device__ __forceinline__ void look(float x) {
        const unsigned bits = __float_as_uint(x) & 0x7fffffff;
        join(bits, bits ? bits : 0x7f800000);
    }
    __device__ __forceinline__ void join(unsigned other_largest, unsigned other_smallest) {
        largest = max(largest, other_largest);
        smallest = min(smallest, other_smallest);
    }
    __device__ __forceinline__ float unscale() const {
        if (largest == 0) return 1.0f;
        const int exponent = int(largest >> 23);
        if (exponent > 127 + kMostExponent || exponent < 127 - kMostExponent) return __uint_as_float(0xffffff00 | exponent);
        const float unscale = __uint_as_float((exponent - kTopExponent) << 23);
        return __uint_as_float(smallest) < kSmallest * unscale ? -unscale : unscale;
    }
};

// 1 / |unscale|, which is a power of two.
__device__ __forceinline__ float scale_of(float unscale) {
    return __uint_as_float((254u << 23) - (__float_as_uint(unscale) & 0x7f800000));
}

// What both parts of a small scaled number leave of it: nothing where it has few bits.
__device__ __forceinline__ float loss(float x) {
    const float rest = x - __half2float(__float2half_rn(x));
    return fabsf(x) < kSmallest ? fabsf(rest - __half2float(__float2half_rn(rest * kLowScale)) / kLowScale) : 0.0f;
}

// What a number loses by being scaled and split; all of it, where scaling leaves nothing.
__device__ __forceinline__ float loss_of(float x, float scale) {
    const float scaled = x * scale;
    return scaled == 0.0f && x != 0.0f ? 0x1p-149f : loss(scaled);
}

}  // namespace msbench
