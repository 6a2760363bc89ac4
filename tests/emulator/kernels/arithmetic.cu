// Math functions, fast-math intrinsics, integer intrinsics, vector types, PTX that means something simple.
#include "testing.cuh"

#include <cuda/functional>
#include <cuda/std/limits>

TEST(bit_intrinsics) {
    EXPECT_EQ(__popc(0xf0f0u), 8);
    EXPECT_EQ(__popcll(~0ull), 64);
    EXPECT_EQ(__clz(1), 31);
    EXPECT_EQ(__clz(0), 32);
    EXPECT_EQ(__clzll(0), 64);
    EXPECT_EQ(__ffs(0), 0);
    EXPECT_EQ(__ffs(8), 4);
    EXPECT_EQ(__brev(1u), 0x80000000u);
    EXPECT_EQ(__brev(0x12345678u), 0x1e6a2c48u);
    EXPECT_EQ(__brevll(1ull), 1ull << 63);
    EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x6420u), 0x66442200u);
    EXPECT_EQ(__byte_perm(0x80u, 0u, 0x8888u), 0xffffffffu);
    EXPECT_EQ(__funnelshift_l(0x80000000u, 1u, 1u), 3u);
    EXPECT_EQ(__funnelshift_r(0x80000000u, 1u, 1u), 0xc0000000u);
    EXPECT_EQ(__funnelshift_rc(1u, 2u, 40u), 2u);
    EXPECT_EQ(__fns(0xb0u, 0, 2), 5u);
    EXPECT_EQ(__fns(0xb0u, 7, -2), 5u);
    EXPECT_EQ(__fns(0u, 0, 1), 0xffffffffu);
}

TEST(integer_arithmetic) {
    EXPECT_EQ(__umulhi(0xffffffffu, 2u), 1u);
    EXPECT_EQ(__mulhi(-1, 1), -1);
    EXPECT_EQ(__umul64hi(1ull << 63, 4), 2ull);
    EXPECT_EQ(__mul24(0xffffff, 2), -2);
    EXPECT_EQ(__dp4a(0x01020304, 0x01010101, 5), 15);
    EXPECT_EQ(__dp4a(-1, -1, 0), 4);
    EXPECT_EQ(__vmaxu2(0x00018000, 0x00020001), 0x00028000u);
    EXPECT_EQ(__vminu2(0x00018000, 0x00020001), 0x00010001u);
    EXPECT_EQ(__vmaxs2(0x00018000, 0x00020001), 0x00020001u);
    EXPECT_EQ(__vmins2(0x00018000, 0x00020001), 0x00018000u);
    EXPECT_EQ(__vmaxu4(0x01ff8003, 0x02017f03), 0x02ff8003u);
    EXPECT_EQ(__vmins4(0x01ff8003, 0x02017f03), 0x01ff8003u);
    EXPECT_EQ(__vabsdiffu4(0x01ff8003, 0x02017f05), 0x01fe0102u);
    EXPECT_EQ(__vcmpeq2(0x00018000, 0x00018001), 0xffff0000u);
    EXPECT_EQ(__vcmpgts4(0x01ff8003, 0x00017f05), 0xff000000u);
    EXPECT_EQ(__vcmpgtu4(0x01ff8003, 0x00017f05), 0xffffff00u);
    EXPECT_EQ(__sad(-3, 4, 1u), 8u);
    EXPECT_EQ(min(3, 5u), 3u);
    EXPECT_EQ(max(-1, 5u), 0xffffffffu);
    EXPECT_EQ(min(2ll, 3ll), 2ll);
    EXPECT_EQ(min(NAN, 2.0f), 2.0f);
    EXPECT_EQ(max(1.0f, 2.0), 2.0);
}

TEST(conversions) {
    EXPECT_EQ(__float2int_rn(2.5f), 2);
    EXPECT_EQ(__float2int_rn(3.5f), 4);
    EXPECT_EQ(__float2int_rz(-2.7f), -2);
    EXPECT_EQ(__float2int_rd(-2.1f), -3);
    EXPECT_EQ(__float2int_ru(2.1f), 3);
    EXPECT_EQ(__float2int_rz(1e20f), 2147483647);
    EXPECT_EQ(__float2int_rz(-1e20f), -2147483647 - 1);
    EXPECT_EQ(__float2int_rz(NAN), 0);
    EXPECT_EQ(__float2uint_rz(-1.0f), 0u);
    EXPECT_EQ(__double2ll_rn(1e30), 9223372036854775807ll);
    EXPECT_EQ(__float_as_uint(1.0f), 0x3f800000u);
    EXPECT_EQ(__hiloint2double(0x3ff00000, 0), 1.0);
}

TEST(functions) {
    EXPECT_EQ(rsqrtf(4.0f), 0.5f);
    EXPECT_EQ(__fdividef(6.0f, 3.0f), 2.0f);
    EXPECT_EQ(__fdividef(1.0f, 0x1p127f), 0.0f);
    EXPECT_EQ(__saturatef(1.5f), 1.0f);
    EXPECT_EQ(__saturatef(NAN), 0.0f);
    EXPECT_EQ(sinpif(0.5f), 1.0f);
    EXPECT_EQ(cospif(1.0f), -1.0f);
    EXPECT_EQ(normcdff(0.0f), 0.5f);
    EXPECT(std::fabs(__expf(1.0f) - 2.7182818f) < 1e-6f);
    // Two function units are off by more than the last bits, and differently from 0.5 to 1000.
    float widest = 0.0f;
    for (float x = 0.5f; x < 1.0f; x += 0.001f) widest = std::fmax(widest, std::fabs(__tanhf(x) / tanhf(x) - 1.0f));
    EXPECT(widest > 0x1p-13f && widest <= 0x1p-11f);
    EXPECT(__tanhf(0.0f) == 0.0f && __tanhf(INFINITY) == 1.0f && std::isnan(__tanhf(NAN)));
    EXPECT(std::fabs(__sinf(0.5f) - sinf(0.5f)) < 1e-6f && std::fabs(__cosf(0.5f) - cosf(0.5f)) < 1e-6f);
    EXPECT(std::fabs(__sinf(10000.0f) - sinf(10000.0f)) > 1e-6f);
    EXPECT(std::fabs(__logf(10.0f) - 2.3025851f) < 1e-6f);
    EXPECT(std::fabs(__powf(2.0f, 10.0f) - 1024) < 1e-3f);
    float s, c;
    sincosf(0.5f, &s, &c);
    EXPECT_EQ(s, sinf(0.5f));
    __sincosf(0.5f, &s, &c);
    EXPECT(std::fabs(c - cosf(0.5f)) < 1e-6f);
    EXPECT_EQ(fmaf(0x1.001p0f, 0x1.001p0f, -1.0f), 0x1.0008p-11f);
    EXPECT_EQ(cuda::maximum<>{}(3, 4), 4);
    EXPECT_EQ(cuda::std::numeric_limits<float>::max(), 3.402823466e+38f);
}

// Nothing is fused that the source does not fuse.
__global__ void separate(float* out, float a, float b, float c) { *out = a * b + c; }
TEST(no_contraction) {
    Device<float> out(1);
    separate<<<1, 1>>>(out, 0x1.001p0f, 0x1.001p0f, -1.0f);
    EXPECT_EQ(out[0], 0x1p-11f);
}

static_assert(sizeof(float3) == 12 && alignof(float4) == 16 && alignof(int2) == 8 && alignof(double2) == 16 && alignof(uchar4) == 4, "");

__global__ void vectors(const float4* in, float4* out, double2* d) {
    float4 v = __ldg(in + threadIdx.x);
    v.x += 1, v.w = __ldcs(&in[threadIdx.x].y);
    __stcs(out + threadIdx.x, v);
    d[threadIdx.x] = make_double2(v.x, v.y);
    uint2 packed = *reinterpret_cast<const uint2*>(in);
    if (packed.x != __float_as_uint(in->x)) __trap();
}
TEST(vector_access) {
    Device<float4> in(32, make_float4(1, 2, 3, 4)), out(32);
    Device<double2> d(32);
    vectors<<<1, 32>>>(in, out, d);
    EXPECT_OK();
    EXPECT_EQ(out[31].x, 2.0f);
    EXPECT_EQ(out[31].z, 3.0f);
    EXPECT_EQ(out[31].w, 2.0f);
    EXPECT_EQ(d[5].y, 2.0);
}

// PTX helpers that no kernel reaches do no harm.
__device__ inline void never_called(unsigned long long descriptor) {
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    asm volatile("cp.async.bulk.commit_group;" : : "l"(descriptor));
}

__device__ inline float4 load_streaming(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
__global__ void ptx(const float4* in, float* out, unsigned* lanes) {
    extern __shared__ float4 tile[];
    unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + threadIdx.x));
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2;\n" : : "r"(to), "l"(in + threadIdx.x), "n"(16));
    asm volatile("cp.async.commit_group;\n" ::);
    asm volatile("cp.async.wait_group %0;\n" ::"n"(0));
    __syncthreads();
    float4 direct = load_streaming(in + threadIdx.x);
    float power, y = tile[threadIdx.x ^ 1].y + direct.z;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(direct.x));
    asm volatile("st.global.cs.f32 [%0+0], %1;" : : "l"(out + threadIdx.x), "f"(y + power) : "memory");
    unsigned lane, below;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm("mov.u32 %0, %%lanemask_lt;\n\t" : "=r"(below));
    lanes[threadIdx.x] = lane + __popc(below);
}
TEST(simple_ptx) {
    Device<float4> in(64);
    Device<float> out(64);
    Device<unsigned> lanes(64);
    for (int i = 0; i < 64; ++i) in[i] = make_float4(3, i, 100, 0);
    ptx<<<1, 64, 1024>>>(in, out, lanes);
    EXPECT_OK();
    for (int i = 0; i < 64; ++i) {
        EXPECT_EQ(out[i], (i ^ 1) + 108.0f);
        EXPECT_EQ(lanes[i], 2u * (i % 32));
    }
}
