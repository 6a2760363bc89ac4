// GELU. erfc by Abramowitz and Stegun, 7.1.26 (absolute error 1.5e-7): two special functions and a short polynomial, no branch.
// One launch. Small sizes: one 16-byte packet for each thread, so that all of it is one wave. Large sizes: four 16-byte packets for each
// thread, all loads before the first use, inputs past L1, streaming stores. Odd addresses are peeled where they agree modulo 16.
// Expected: the launch bound for small N, the copy rate (about 90 us) for the large one.

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int64_t kOneWave = 132 * 2048;  // packets that all threads of the device hold at one each
constexpr int kBigThreads = 256;
constexpr int kBigPackets = 4;  // for each thread

__device__ __forceinline__ float low(uint32_t pair) {
    return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

// Rounds both to nearest even.
__device__ __forceinline__ uint32_t pack(float low_half, float high_half) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high_half), "f"(low_half));
    return pair;
}

// x·Φ(x) with Φ(-|x|) = erfc(|x|/√2)/2 = t·(a1 + t·(a2 + ...))/2·exp(-x²/2), t = 1/(1 + p·|x|/√2).
// Infinity: t and the exponential are 0, Φ is 1 or 0, and the product is what the definition gives.
__device__ __forceinline__ float value(float x) {
    float t, e;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(fabsf(x), 0.231641888f, 1.0f)));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * x * -0.721347520444f));
    float p = fmaf(t, 0.5307027145f, -0.7265760135f);
    p = fmaf(t, p, 0.7107068705f);
    p = fmaf(t, p, -0.142248368f);
    p = fmaf(t, p, 0.127414796f);
    const float below = p * t * e;
    const float phi = x < 0 ? below : 1.0f - below;
    return x * phi;
}

__device__ __forceinline__ uint32_t pair_value(uint32_t x) {
    return pack(value(low(x)), value(high(x)));
}

__device__ __forceinline__ uint4 packet_value(uint4 x) {
    return make_uint4(pair_value(x.x), pair_value(x.y), pair_value(x.z), pair_value(x.w));
}

__device__ __forceinline__ uint4 load_stream(const void* array, uint32_t index) {
    uint4 r;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
                 : "l"(static_cast<const uint4*>(array) + index));
    return r;
}

// Blocks of whole packets, kU for each thread, and one block more for the elements before and after them, if there are any.
// Without a packet that every address allows, all blocks take elements.
template <int kU, bool kStream>
__global__ void __launch_bounds__(kBigThreads) packets_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, uint32_t head, uint32_t packets, uint32_t packet_blocks,
                                                              int64_t N) {
    if (blockIdx.x < packet_blocks) {
        const uint32_t first = blockIdx.x * (blockDim.x * kU) + threadIdx.x;
        uint4 in[kU];
        if (kU == 1 || first - threadIdx.x + blockDim.x * kU <= packets) {
            if (kU == 1 && first >= packets) return;
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                in[u] = load_stream(x + head, first + u * blockDim.x);
            }
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                const uint4 result = packet_value(in[u]);
                uint4* to = reinterpret_cast<uint4*>(y + head) + (first + u * blockDim.x);
                if (kStream) {
                    __stcs(to, result);
                } else {
                    *to = result;
                }
            }
        } else {
#pragma unroll
            for (int u = 0; u < kU; ++u) {
                if (first + u * blockDim.x < packets) {
                    in[u] = load_stream(x + head, first + u * blockDim.x);
                    const uint4 result = packet_value(in[u]);
                    reinterpret_cast<uint4*>(y + head)[first + u * blockDim.x] = result;
                }
            }
        }
        return;
    }
    const int64_t inner = static_cast<int64_t>(packets) * kPacket;
    const int64_t rest = N - inner;
    const int64_t threads = static_cast<int64_t>(gridDim.x - packet_blocks) * blockDim.x;
    for (int64_t r = static_cast<int64_t>(blockIdx.x - packet_blocks) * blockDim.x + threadIdx.x; r < rest; r += threads) {
        const int64_t i = r < head ? r : r + inner;
        y[i] = __float2bfloat16_rn(value(__bfloat162float(x[i])));
    }
}

}  // namespace

extern "C" size_t gelu_workspace(int64_t N) {
    return 0;
}

extern "C" cudaError_t gelu(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    int64_t head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(x) % 16) % 16 / sizeof(scalar_t));
    int64_t packets = 0;
    if (head < N && reinterpret_cast<uintptr_t>(y + head) % 16 == 0) {
        packets = (N - head) / kPacket;
    }
    if (packets == 0) head = 0;
    const int64_t rest = N - packets * kPacket;

    const bool big = packets > kOneWave;
    const int threads = packets > 132 * 128 ? kBigThreads : 128;
    const int64_t each = static_cast<int64_t>(threads) * (big ? kBigPackets : 1);
    const int64_t packet_blocks = (packets + each - 1) / each;
    int64_t rest_blocks = (rest + threads - 1) / threads;
    if (rest_blocks > 132 * 64) rest_blocks = 132 * 64;
    const unsigned blocks = static_cast<unsigned>(packet_blocks + rest_blocks);
    if (big) {
        packets_kernel<kBigPackets, true><<<blocks, threads, 0, stream>>>(x, y, static_cast<uint32_t>(head), static_cast<uint32_t>(packets),
                                                                          static_cast<uint32_t>(packet_blocks), N);
    } else {
        packets_kernel<1, false><<<blocks, threads, 0, stream>>>(x, y, static_cast<uint32_t>(head), static_cast<uint32_t>(packets),
                                                                 static_cast<uint32_t>(packet_blocks), N);
    }
    return cudaGetLastError();
}
