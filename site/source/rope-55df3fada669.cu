// Rotary position embedding in 16-byte packets of four pairs. The frequency base^(-2p/D) is one fast exp2 of p times a
// factor from the host, and a large input keeps it for four rows per thread, whose loads are all in flight at once. Sine and
// cosine: one three-step reduction by pi/2 (angles stay below 16384, so that no slow path is needed) and two short
// polynomials, about 25 instructions a pair, hidden behind memory. Bound: launch (small), 3.02 TB/s of copying (large).

#include <cmath>

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kOneWave = 132 * 2048;           // threads that the device holds at once

// Quotients of n < 2^31 by a divisor fixed at launch.
struct Divisor {
    unsigned divisor, factor, shift;
};

Divisor make_divisor(unsigned d) {
    unsigned shift = 0;
    while ((1ull << shift) < d) ++shift;
    const unsigned factor = static_cast<unsigned>(((1ull << 32) * ((1ull << shift) - d)) / d + 1);
    return {d, factor, shift};
}

__device__ __forceinline__ unsigned divide(unsigned n, const Divisor& by) {
    return (__umulhi(n, by.factor) + n) >> by.shift;
}

__device__ __forceinline__ float frequency(unsigned pair, float exponent) {
    float f;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(f) : "f"(static_cast<float>(pair) * exponent));
    return f;
}

// For 0 <= angle < 2^20.
__device__ __forceinline__ void sine_cosine(float angle, float& sine, float& cosine) {
    const float shifted = fmaf(angle, 0.636619747f, 12582912.0f);
    const float j = shifted - 12582912.0f;
    const unsigned quadrant = __float_as_uint(shifted);
    float r = fmaf(j, -1.57079601e+00f, angle);
    r = fmaf(j, -3.13916473e-07f, r);
    r = fmaf(j, -5.39030253e-15f, r);
    const float s = r * r;
    float c = 2.44677067e-5f;
    c = fmaf(c, s, -1.38877297e-3f);
    c = fmaf(c, s, 4.16666567e-2f);
    c = fmaf(c, s, -0.5f);
    c = fmaf(c, s, 1.0f);
    float p = 2.86567956e-6f;
    p = fmaf(p, s, -1.98559923e-4f);
    p = fmaf(p, s, 8.33338592e-3f);
    p = fmaf(p, s, -1.66666672e-1f);
    p = fmaf(p, r * s, r);
    const bool swap = quadrant & 1;
    const float first = swap ? c : p;
    const float second = swap ? p : c;
    sine = __uint_as_float(__float_as_uint(first) ^ ((quadrant << 30) & 0x80000000u));
    cosine = __uint_as_float(__float_as_uint(second) ^ (((quadrant + 1) << 30) & 0x80000000u));
}

__device__ __forceinline__ void rotate(float angle, float& first, float& second) {
    float sine, cosine;
    sine_cosine(angle, sine, cosine);
    const float a = first, b = second;
    first = fmaf(a, cosine, -(b * sine));
    second = fmaf(a, sine, b * cosine);
}

__device__ __forceinline__ unsigned rotate_two(unsigned two, float angle) {
    float first = __uint_as_float(two << 16);
    float second = __uint_as_float(two & 0xffff0000u);
    rotate(angle, first, second);
    unsigned result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(second), "f"(first));
    return result;
}

// One column packet in kRows rows per thread. `columns`: packets of a row.
template <unsigned kRows>
__global__ void __launch_bounds__(kThreads) packet_kernel(const uint4* __restrict__ x, uint4* __restrict__ y,
                                                          float exponent, unsigned M, Divisor columns, unsigned items) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    const unsigned group = divide(i, columns);
    const unsigned column = i - group * columns.divisor;
    const unsigned row = group * kRows;
    const unsigned at = row * columns.divisor + column;
    uint4 v[kRows];
#pragma unroll
    for (unsigned k = 0; k < kRows; ++k) {
        if (kRows == 1 || row + k < M) v[k] = __ldcs(x + (at + k * columns.divisor));
    }
    float f[4];
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) f[k] = frequency(4 * column + k, exponent);
#pragma unroll
    for (unsigned k = 0; k < kRows; ++k) {
        if (kRows == 1 || row + k < M) {
            const float m = static_cast<float>(row + k);
            v[k].x = rotate_two(v[k].x, m * f[0]);
            v[k].y = rotate_two(v[k].y, m * f[1]);
            v[k].z = rotate_two(v[k].z, m * f[2]);
            v[k].w = rotate_two(v[k].w, m * f[3]);
            if (kRows == 1) y[at] = v[k];
            else __stcs(y + (at + k * columns.divisor), v[k]);
        }
    }
}

// One pair per thread: rows that are no whole packets, or addresses that forbid them. M * D / 2 < 2^27.
template <bool kWords>
__global__ void __launch_bounds__(kThreads) pair_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y,
                                                        float exponent, Divisor pairs, unsigned items) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items) return;
    unsigned two = 0;
    float first = 0, second = 0;
    if (kWords) {
        two = __ldg(reinterpret_cast<const unsigned*>(x) + i);
    } else {
        first = __bfloat162float(x[2 * i]);
        second = __bfloat162float(x[2 * i + 1]);
    }
    const unsigned row = divide(i, pairs);
    const float angle = static_cast<float>(row) * frequency(i - row * pairs.divisor, exponent);
    if (kWords) {
        reinterpret_cast<unsigned*>(y)[i] = rotate_two(two, angle);
    } else {
        rotate(angle, first, second);
        y[2 * i] = __float2bfloat16_rn(first);
        y[2 * i + 1] = __float2bfloat16_rn(second);
    }
}

}  // namespace

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const float exponent = static_cast<float>(-2.0 * std::log2(static_cast<double>(base)) / static_cast<double>(D));
    const uintptr_t address = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    const unsigned rows = static_cast<unsigned>(M);
    if (D % 8 == 0 && address % 16 == 0) {
        const Divisor columns = make_divisor(static_cast<unsigned>(D / 8));
        const uint4* from = reinterpret_cast<const uint4*>(x);
        uint4* to = reinterpret_cast<uint4*>(y);
        const int64_t packets = M * (D / 8);
        if (packets <= 2 * kOneWave) {
            const unsigned threads = packets <= 65536 ? 128 : kThreads;
            packet_kernel<1><<<static_cast<unsigned>((packets + threads - 1) / threads), threads, 0, stream>>>(
                from, to, exponent, rows, columns, static_cast<unsigned>(packets));
        } else {
            const int64_t items = (M + 3) / 4 * (D / 8);
            packet_kernel<4><<<static_cast<unsigned>((items + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
                from, to, exponent, rows, columns, static_cast<unsigned>(items));
        }
        return cudaGetLastError();
    }
    const Divisor pairs = make_divisor(static_cast<unsigned>(D / 2));
    const int64_t items = M * (D / 2);
    const unsigned threads = items <= 65536 ? 128 : kThreads;
    const unsigned blocks = static_cast<unsigned>((items + threads - 1) / threads);
    if (address % 4 == 0) {
        pair_kernel<true><<<blocks, threads, 0, stream>>>(x, y, exponent, pairs, static_cast<unsigned>(items));
    } else {
        pair_kernel<false><<<blocks, threads, 0, stream>>>(x, y, exponent, pairs, static_cast<unsigned>(items));
    }
    return cudaGetLastError();
}
