// __nv_bfloat16: conversions over all bit patterns, arithmetic against double, pairs.
#include "testing.cuh"

#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// Round to nearest even by the definition: the nearer neighbour, and the even one of two that are equally near.
static float nearest(double x) {
    if (x == 0 || x != x || std::isinf(x)) return float(x);
    int exponent = std::max(std::ilogb(x), -126);
    double unit = std::ldexp(1.0, exponent - 7);
    double rounded = std::nearbyint(x / unit) * unit;
    return std::fabs(rounded) >= std::ldexp(1.0, 128) ? std::copysign(INFINITY, x) : float(rounded);
}

TEST(every_bf16_converts_exactly) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
        bf16 b = __ushort_as_bfloat16(bits);
        float f = __bfloat162float(b);
        if (f != f) {
            EXPECT(__hisnan(b));
            continue;
        }
        EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(f)), bits);
        EXPECT_EQ(__bfloat16_as_ushort(__double2bfloat16(f)), bits);
        EXPECT_EQ(int(__hisinf(b)), std::isinf(f) ? (f > 0 ? 1 : -1) : 0);
    }
}

TEST(rounding) {
    unsigned state = 12345;
    for (int i = 0; i < 200000; ++i) {
        state = state * 1664525u + 1013904223u;
        float x = __uint_as_float(i % 4 ? state : (state & 0xffff0000u) | 0x8000u);  // often a tie
        if (x != x) continue;
        float down = __bfloat162float(__float2bfloat16_rd(x)), up = __bfloat162float(__float2bfloat16_ru(x));
        float zero = __bfloat162float(__float2bfloat16_rz(x)), rn = __bfloat162float(__float2bfloat16(x));
        EXPECT_EQ(rn, nearest(x));
        EXPECT(down <= x && x <= up && (down == up) == (down == x));
        EXPECT_EQ(zero, x > 0 ? down : up);
        double between = double(x) * (1 + 1e-12);  // rounding to float first would lose this
        if (std::isfinite(x) && std::fabs(x) > 1e-30f) EXPECT_EQ(__bfloat162float(__double2bfloat16(between)), nearest(between));
    }
    EXPECT_EQ(__bfloat16_as_ushort(__float2bfloat16_rn(NAN)), 0x7fff);
}

TEST(arithmetic_rounds_once) {
    unsigned state = 99;
    for (int i = 0; i < 100000; ++i) {
        state = state * 1664525u + 1013904223u;
        bf16 a = __float2bfloat16(float(int(state >> 8 & 0xffff) - 32768) / 256), b = __float2bfloat16(float(int(state >> 16) - 32768) / 1024);
        bf16 c = __float2bfloat16(float(int(state & 0xffff) - 32768));
        double x = __bfloat162float(a), y = __bfloat162float(b), z = __bfloat162float(c);
        EXPECT_EQ(__bfloat162float(a + b), nearest(x + y));
        EXPECT_EQ(__bfloat162float(__hsub(a, b)), nearest(x - y));
        EXPECT_EQ(__bfloat162float(a * b), nearest(x * y));
        if (y != 0) EXPECT_EQ(__bfloat162float(__hdiv(a, b)), nearest(x / y));
        EXPECT_EQ(__bfloat162float(__hfma(a, b, c)), nearest(x * y + z));
        EXPECT_EQ(__bfloat162float(__hmax(a, b)), float(std::max(x, y)));
        EXPECT_EQ(__bfloat162float(__hmin(a, b)), float(std::min(x, y)));
        EXPECT_EQ(__hlt(a, b), x < y);
        EXPECT_EQ(__bfloat162int_rz(a), int(x));
        EXPECT_EQ(__bfloat162int_rn(b), int(std::nearbyint(y)));
    }
}

TEST(special_values) {
    bf16 nan = __ushort_as_bfloat16(0x7fff), one = 1.0f, zero = 0.0f, minus = __ushort_as_bfloat16(0x8000);
    EXPECT(!__heq(nan, nan) && __hequ(nan, one) && __hneu(nan, nan) && !__hne(nan, one) && !__hlt(nan, one) && __hgeu(nan, one));
    EXPECT_EQ(float(__hmax(nan, one)), 1.0f);
    EXPECT(__hisnan(__hmax_nan(nan, one)) && __hisnan(__hmin_nan(one, nan)));
    EXPECT_EQ(__bfloat16_as_ushort(__hmax(minus, zero)), 0);
    EXPECT_EQ(__bfloat16_as_ushort(__hmin(minus, zero)), 0x8000);
    EXPECT_EQ(__bfloat16_as_ushort(-zero), 0x8000);
    EXPECT_EQ(__bfloat16_as_ushort(__habs(minus)), 0);
    EXPECT_EQ(float(__hfma_relu(one, __hneg(one), zero)), 0.0f);
    EXPECT_EQ(float(__hfma_sat(one, bf16(3.0f), zero)), 1.0f);
    EXPECT_EQ(float(__hadd_sat(one, one)), 1.0f);
    EXPECT_EQ(float(hexp(zero)), 1.0f);
    EXPECT_EQ(float(hrcp(bf16(4.0f))), 0.25f);
    EXPECT_EQ(float(hsqrt(bf16(9.0f))), 3.0f);
    EXPECT_EQ(int(bf16(300.7f)), 300);
    one += one;
    EXPECT_EQ(float(one++), 2.0f);
    EXPECT_EQ(float(one), 3.0f);
}

__global__ void pairs(__nv_bfloat162* out, const __nv_bfloat162* a, const __nv_bfloat162* b) {
    int i = threadIdx.x;
    __nv_bfloat162 x = __ldg(a + i), y = b[i];
    __nv_bfloat162* o = out + i * 8;
    o[0] = __hadd2(x, y), o[1] = __hmul2(x, y), o[2] = __hfma2(x, y, x), o[3] = __lowhigh2highlow(x), o[4] = __hmax2(x, y);
    o[5] = __floats2bfloat162_rn(__low2float(x) * 2, __high2float(x) * 4);
    o[6] = __hcmadd(x, y, __float2bfloat162_rn(1.0f));
    o[7] = __shfl_xor_sync(0xffffffffu, x, 1);
}
TEST(pairs_of_bf16) {
    Device<__nv_bfloat162> a(32), b(32), out(256);
    for (int i = 0; i < 32; ++i) a[i] = __floats2bfloat162_rn(i, i + 1), b[i] = __floats2bfloat162_rn(2, -i);
    pairs<<<1, 32>>>(out, a, b);
    EXPECT_OK();
    for (int i = 0; i < 32; ++i) {
        float x = i, y = i + 1, p = 2, q = -i;
        auto is = [&](int k, float low, float high) { return __low2float(out[i * 8 + k]) == nearest(low) && __high2float(out[i * 8 + k]) == nearest(high); };
        EXPECT(is(0, x + p, y + q) && is(1, x * p, y * q) && is(2, x * p + x, y * q + y) && is(3, y, x));
        EXPECT(is(4, std::max(x, p), std::max(y, q)) && is(5, 2 * x, 4 * y) && is(7, i ^ 1, (i ^ 1) + 1));
        EXPECT_EQ(__low2float(out[i * 8 + 6]), nearest(nearest(x * p + 1) - y * q));
    }
    EXPECT(__hbeq2(a[3], a[3]) && !__hbeq2(a[3], a[4]) && __hble2(a[3], a[4]));
    EXPECT_EQ(__hgt2_mask(make_bfloat162(bf16(2.0f), bf16(0.0f)), make_bfloat162(bf16(1.0f), bf16(1.0f))), 0xffffu);
}

__global__ void sums(bf16* one, __nv_bfloat162* two) {
    atomicAdd(one, bf16(1.0f));
    atomicAdd(two, __floats2bfloat162_rn(1.0f, 2.0f));
}
TEST(atomics_of_bf16) {
    Device<bf16> one(1, bf16(0.0f));
    Device<__nv_bfloat162> two(1, __float2bfloat162_rn(0.0f));
    sums<<<4, 32>>>(one, two);
    EXPECT_EQ(float(one[0]), 128.0f);
    EXPECT_EQ(__low2float(two[0]), 128.0f);
    EXPECT_EQ(__high2float(two[0]), 256.0f);
}
