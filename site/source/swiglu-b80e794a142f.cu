// SwiGLU, bf16. 6 bytes an element are moved; about 11 instructions an element, two of them on the special function unit, stay below that.
// 16-byte packets: one a thread in one wave for small arrays (bound by the launch, 3.8 us), four of each input in flight for large ones
// (bound by the memory, about 130 us for 67108864 elements).

namespace {

constexpr int kLanes = 16 / sizeof(scalar_t);  // elements of a packet
constexpr int kThreads = 256;                  // of a block of the kernel for large arrays
constexpr int kUnroll = 4;                     // packets of each input in flight of a thread there
constexpr int kTile = kThreads * kUnroll;
constexpr int64_t kOneWave = 132 * 2048;       // threads that the device holds at once

constexpr float kFarLeft = -87.0f;  // 1 + exp(87) < 2^126, of which the fast reciprocal is still a normal number

__device__ __forceinline__ float fast_swiglu(float x, float v, float scaled) {
    float e, r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(scaled * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
    return x * r * v;
}

// Far left the logistic function is the exponential. It is never zero, so that an infinite v stays infinite beside a finite x.
__device__ __forceinline__ float far_swiglu(float x, float v, float scaled) {
    if (isinf(v) && !isinf(x)) return x * v;
    return x * expf(scaled) * v;
}

__device__ __forceinline__ uint4 apply(uint4 gate, uint4 value, float beta) {
    const unsigned g[4] = {gate.x, gate.y, gate.z, gate.w};
    const unsigned h[4] = {value.x, value.y, value.z, value.w};
    float x[8], v[8], s[8];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        x[2 * k] = __uint_as_float(g[k] << 16);
        x[2 * k + 1] = __uint_as_float(g[k] & 0xffff0000u);
        v[2 * k] = __uint_as_float(h[k] << 16);
        v[2 * k + 1] = __uint_as_float(h[k] & 0xffff0000u);
    }
    float least = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        s[k] = fast_swiglu(x[k], v[k], beta * x[k]);
        least = fminf(least, beta * x[k]);
    }
    if (least < kFarLeft) {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            if (beta * x[k] < kFarLeft) s[k] = far_swiglu(x[k], v[k], beta * x[k]);
        }
    }
    unsigned out[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out[k]) : "f"(s[2 * k + 1]), "f"(s[2 * k]));
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
}

__device__ __forceinline__ scalar_t apply_one(scalar_t gate, scalar_t value, float beta) {
    const float x = __bfloat162float(gate);
    const float v = __bfloat162float(value);
    const float scaled = beta * x;
    return __float2bfloat16_rn(scaled < kFarLeft ? far_swiglu(x, v, scaled) : fast_swiglu(x, v, scaled));
}

// One packet a thread, then one thread for each element of the rest.
__global__ void __launch_bounds__(256) one_packet(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                  scalar_t* __restrict__ c, float beta, int packets, int rest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < packets) {
        const uint4 left = __ldg(reinterpret_cast<const uint4*>(a) + i);
        const uint4 right = __ldg(reinterpret_cast<const uint4*>(b) + i);
        reinterpret_cast<uint4*>(c)[i] = apply(left, right, beta);
    } else if (i - packets < rest) {
        const int64_t k = static_cast<int64_t>(packets) * kLanes + (i - packets);
        c[k] = apply_one(a[k], b[k], beta);
    }
}

// A tile of kTile packets a block; the last block has what is left of packets and elements.
__global__ void __launch_bounds__(kThreads) tiles(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                  scalar_t* __restrict__ c, float beta, int packets, int rest) {
    const uint4* from_a = reinterpret_cast<const uint4*>(a);
    const uint4* from_b = reinterpret_cast<const uint4*>(b);
    uint4* to = reinterpret_cast<uint4*>(c);
    const int first = blockIdx.x * kTile + threadIdx.x;
    if (blockIdx.x + 1 < gridDim.x) {
        uint4 left[kUnroll], right[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            left[u] = __ldcs(from_a + first + u * kThreads);
            right[u] = __ldcs(from_b + first + u * kThreads);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) __stcs(to + first + u * kThreads, apply(left[u], right[u], beta));
    } else {
        for (int i = first; i < packets; i += kThreads) __stcs(to + i, apply(__ldcs(from_a + i), __ldcs(from_b + i), beta));
        if (threadIdx.x < rest) {
            const int64_t k = static_cast<int64_t>(packets) * kLanes + threadIdx.x;
            c[k] = apply_one(a[k], b[k], beta);
        }
    }
}

// For addresses that allow no packets.
__global__ void __launch_bounds__(kThreads) elements(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                     scalar_t* __restrict__ c, float beta, int64_t N) {
    const int64_t first = blockIdx.x * static_cast<int64_t>(kTile) + threadIdx.x;
    scalar_t left[kUnroll], right[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < N) {
            left[u] = a[first + u * kThreads];
            right[u] = b[first + u * kThreads];
        }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < N) c[first + u * kThreads] = apply_one(left[u], right[u], beta);
    }
}

}  // namespace

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(gate) | reinterpret_cast<uintptr_t>(value) | reinterpret_cast<uintptr_t>(out);
    if ((address & 15) == 0) {
        const int packets = static_cast<int>(N / kLanes);  // at most 2^28
        const int rest = static_cast<int>(N % kLanes);
        if (packets + rest <= kOneWave) {
            const int threads = packets <= 132 * 256 ? 128 : 256;
            one_packet<<<(packets + rest + threads - 1) / threads, threads, 0, stream>>>(gate, value, out, beta, packets, rest);
        } else {
            tiles<<<packets / kTile + 1, kThreads, 0, stream>>>(gate, value, out, beta, packets, rest);
        }
    } else {
        elements<<<static_cast<unsigned>((N + kTile - 1) / kTile), kThreads, 0, stream>>>(gate, value, out, beta, N);
    }
    return cudaGetLastError();
}
