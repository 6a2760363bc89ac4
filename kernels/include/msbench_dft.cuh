// Discrete Fourier transforms of 2 to 16 complex numbers in a thread's registers, with twiddle factors inside.
//
// The polynomial with coefficients v is evaluated at w·ω^k, ω = exp(-2πi/R), level by level: P(z) = E(z²) + z·O(z²), and
// P(-z) = 2·E(z²) - P(z). Six fused operations a pair, no products after it, and one root of unity a transform instead of one an
// element; 1.5 times the rounding errors of butterflies with products.
#pragma once

#include <cuda_runtime.h>

namespace msbench {

__device__ inline float2 operator*(float2 a, float2 b) {
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}
__device__ inline float2 times_minus_i(float2 a) {
    return make_float2(a.y, -a.x);
}

// exp(-2πi·k/n), given 2/n for a power of two n <= 2^24; 0 <= k < n.
__device__ inline float2 root_of_unity(int k, float two_over_n) {
    float sine, cosine;
    sincospif(float(k) * two_over_n, &sine, &cosine);  // the argument is exact
    return make_float2(cosine, -sine);
}

// exp(-2πi·k/16)
template <int k>
__device__ constexpr float2 sixteenth() {
    static_assert(1 <= k && k <= 3);
    constexpr float kCos8 = 0.70710678118654752440f, kCos16 = 0.92387953251128675613f, kSin16 = 0.38268343236508977173f;
    return k == 1 ? float2{kCos16, -kSin16} : k == 2 ? float2{kCos8, -kCos8} : float2{kSin16, -kCos16};
}

// One level: kCount polynomials become half as many, each of twice as many values; u = w^(kCount / 2), which is 1 if kUnit.
template <bool kUnit, int kCount, int R>
__device__ __forceinline__ void dft_level(float2 (&v)[R], float2 u) {
    constexpr int kHalf = kCount / 2, kValues = R / kHalf, kRoots = kValues >= 4 ? kValues / 4 : 1;
    float2 z[kRoots], out[R];
    z[0] = u;
    if constexpr (kValues == 8) z[1] = kUnit ? sixteenth<2>() : u * sixteenth<2>();
    if constexpr (kValues == 16) {
        z[1] = kUnit ? sixteenth<1>() : u * sixteenth<1>();
        z[2] = kUnit ? sixteenth<2>() : u * sixteenth<2>();
        z[3] = kUnit ? sixteenth<3>() : u * sixteenth<3>();
    }
#pragma unroll
    for (int r = 0; r < kHalf; ++r) {
#pragma unroll
        for (int k = 0; k < kValues / 2; ++k) {
            const float2 even = v[r * (kValues / 2) + k], odd = v[(r + kHalf) * (kValues / 2) + k];
            float2 &sum = out[r * kValues + k], &difference = out[r * kValues + k + kValues / 2];
            if (kUnit && k % kRoots == 0) {
                const float2 turned = k == 0 ? odd : times_minus_i(odd);
                sum = make_float2(even.x + turned.x, even.y + turned.y);
                difference = make_float2(even.x - turned.x, even.y - turned.y);
            } else {
                const float2 w = k < kRoots ? z[k % kRoots] : times_minus_i(z[k % kRoots]);
                sum.x = fmaf(w.x, odd.x, fmaf(-w.y, odd.y, even.x));
                sum.y = fmaf(w.x, odd.y, fmaf(w.y, odd.x, even.y));
                difference = make_float2(fmaf(2.0f, even.x, -sum.x), fmaf(2.0f, even.y, -sum.y));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < R; ++i) v[i] = out[i];
}

// v[k] becomes Σⱼ v[j]·(w·ω^k)^j, R = 1, 2, 4, 8 or 16; w = 1 if kUnit.
template <bool kUnit, int R>
__device__ __forceinline__ void dft(float2 (&v)[R], float2 w) {
    const float2 w2 = w * w, w4 = w2 * w2;
    if constexpr (R == 16) dft_level<kUnit, 16>(v, w4 * w4);
    if constexpr (R >= 8) dft_level<kUnit, 8>(v, w4);
    if constexpr (R >= 4) dft_level<kUnit, 4>(v, w2);
    if constexpr (R >= 2) dft_level<kUnit, 2>(v, w);
}

}  // namespace msbench
