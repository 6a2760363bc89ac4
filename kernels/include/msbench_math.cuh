// Functions that activations share, in a dozen instructions: one exponential, one reciprocal at most, and short polynomials where
// exponentials cancel. Errors are in units of 2^-24 of the result unless it says otherwise; NaN gives NaN. All sides of a choice are
// computed before it: the compiler makes a branch of one that has an exponential on a side only.
#pragma once

#include <cuda_runtime.h>

namespace msbench {

constexpr float kLog2e = 1.44269504f;

// 2^x within 2 ulp; below 2^-126 it is 0.
__device__ inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1/x within 1 ulp; beyond 2^126 it is 0.
__device__ inline float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// e^x - 1 for x <= 0, within 8, also near zero.
__device__ inline float expm1_negative(float x) {
    // Minimax of (e^x - 1 - x)/x^2 on [-1/2, 0], relative to e^x - 1: within 1.5.
    float p = 0.0068076f;
    p = fmaf(p, x, 0.04104248f);
    p = fmaf(p, x, 0.1665636f);
    p = fmaf(p, x, 0.49999463f);
    const float near_zero = fmaf(x * x, p, x), far = exp2_fast(x * kLog2e) - 1.0f;
    return x > -0.5f ? near_zero : far;
}

// gate·value·σ(beta·gate), σ(t) = 1/(1 + e^-t), for factor = -beta·log2(e).
//
// σ is below the normal range from t = -88 on, but not zero before t = -709 in float64: it is held just above 2^-126 in between, so that
// an infinite value gives infinity and not NaN there.
__device__ inline float gated(float gate, float value, float factor) {
    const float t = gate * factor;
    const float power = exp2_fast(t > 125.9998f && t < 1024.0f ? 125.9998f : t);
    return gate * reciprocal_fast(1.0f + power) * value;
}

}  // namespace msbench
