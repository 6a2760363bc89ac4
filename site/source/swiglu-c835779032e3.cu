// SwiGLU, bf16. Memory-bound: 6 bytes an element; two special-function operations an element fit below that.
// z = x * beta * log2(e), t = 2^-|z| in (0, 1], sigma = (z >= 0 ? 1 : t) / (1 + t), out = x * sigma * v, rounded once.
// Small N: one 16-byte packet of each input per thread, one wave. Large N: 2 of each in flight, evict-first. Bound: 133 us at N = 2^26.
namespace {

using Element = uint16_t;
constexpr int kLanes = 16 / sizeof(Element);  // elements in a packet of 16 bytes
constexpr int kThreads = 256;
constexpr int kUnroll = 2;             // packets in flight per thread and input, for large arrays

__device__ __forceinline__ float low_half(uint32_t v) {
    return __uint_as_float(v << 16);
}

__device__ __forceinline__ float high_half(uint32_t v) {
    return __uint_as_float(v & 0xffff0000u);
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

__device__ __forceinline__ float gated(float x, float v, float scale) {
    const float z = x * scale;
    float t, r;
    asm("ex2.approx.f32 %0, %1;" : "=f"(t) : "f"(-fabsf(z)));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(t + 1.0f));
    return x * ((z >= 0.0f ? 1.0f : t) * r) * v;
}

__device__ __forceinline__ uint32_t pair_op(uint32_t x, uint32_t v, float scale) {
    return pack(gated(low_half(x), low_half(v), scale), gated(high_half(x), high_half(v), scale));
}

__device__ __forceinline__ uint4 packet_op(uint4 x, uint4 v, float scale) {
    return make_uint4(pair_op(x.x, v.x, scale), pair_op(x.y, v.y, scale), pair_op(x.z, v.z, scale),
                      pair_op(x.w, v.w, scale));
}

__device__ __forceinline__ Element element_op(Element x, Element v, float scale) {
    return static_cast<Element>(pair_op(x, v, scale));
}

// Elements outside the whole packets: first the `head` in front of the aligned part, then those behind the packets.
// The pointers point to the aligned part. `j` numbers these elements.
__device__ __forceinline__ int64_t loose_element(uint32_t j, uint32_t head, uint32_t packets) {
    int64_t e = static_cast<int64_t>(j) - static_cast<int64_t>(head);
    if (j >= head) e += static_cast<int64_t>(packets) * kLanes;
    return e;
}

// Small arrays: a packet (or one loose element) per thread, everything in one wave.
__global__ void __launch_bounds__(kThreads)
one_packet(const Element* g, const Element* v, Element* o, float scale, uint32_t packets, uint32_t head, uint32_t total) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < packets) {
        const uint4 gv = __ldg(reinterpret_cast<const uint4*>(g) + i);
        const uint4 vv = __ldg(reinterpret_cast<const uint4*>(v) + i);
        reinterpret_cast<uint4*>(o)[i] = packet_op(gv, vv, scale);
    } else if (i < total) {
        const int64_t e = loose_element(i - packets, head, packets);
        o[e] = element_op(g[e], v[e], scale);
    }
}

// Large arrays: kUnroll packets per thread, all loads issued before the first store, streaming hints both ways.
__global__ void __launch_bounds__(kThreads)
many_packets(const Element* g, const Element* v, Element* o, float scale, uint32_t packets, uint32_t head, uint32_t total) {
    const uint32_t first = blockIdx.x * (kThreads * kUnroll) + threadIdx.x;
    if ((blockIdx.x + 1) * (kThreads * kUnroll) <= packets) {
        uint4 gv[kUnroll], vv[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            gv[u] = __ldcs(reinterpret_cast<const uint4*>(g) + first + u * kThreads);
            vv[u] = __ldcs(reinterpret_cast<const uint4*>(v) + first + u * kThreads);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            __stcs(reinterpret_cast<uint4*>(o) + first + u * kThreads, packet_op(gv[u], vv[u], scale));
        }
    } else {
#pragma unroll 1
        for (int u = 0; u < kUnroll; ++u) {
            const uint32_t i = first + u * kThreads;
            if (i < packets) {
                const uint4 gv = __ldg(reinterpret_cast<const uint4*>(g) + i);
                const uint4 vv = __ldg(reinterpret_cast<const uint4*>(v) + i);
                reinterpret_cast<uint4*>(o)[i] = packet_op(gv, vv, scale);
            } else if (i < total) {
                const int64_t e = loose_element(i - packets, head, packets);
                o[e] = element_op(g[e], v[e], scale);
            }
        }
    }
}

}  // namespace

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N, void* workspace,
                       size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    if (N <= 0) return cudaSuccess;
    const Element* g = reinterpret_cast<const Element*>(gate);
    const Element* v = reinterpret_cast<const Element*>(value);
    Element* o = reinterpret_cast<Element*>(out);
    const float scale = static_cast<float>(static_cast<double>(beta) * 1.4426950408889634);
    // Packets need one common offset to a multiple of 16 bytes. Otherwise every element is a loose one.
    const uintptr_t offset = reinterpret_cast<uintptr_t>(o) & 15;
    int64_t head = N;
    if ((reinterpret_cast<uintptr_t>(g) & 15) == offset && (reinterpret_cast<uintptr_t>(v) & 15) == offset) {
        head = static_cast<int64_t>(((16 - offset) & 15) / sizeof(Element));
        if (head > N) head = N;
    }
    const int64_t packets = (N - head) / kLanes;
    const int64_t total = packets + (N - packets * kLanes);
    g += head;
    v += head;
    o += head;
    if (total <= 132 * 2048) {
        const int threads = total > 32768 ? 256 : 128;
        const unsigned blocks = static_cast<unsigned>((total + threads - 1) / threads);
        one_packet<<<blocks, threads, 0, stream>>>(g, v, o, scale, static_cast<uint32_t>(packets),
                                                   static_cast<uint32_t>(head), static_cast<uint32_t>(total));
    } else {
        const int64_t per_block = kThreads * kUnroll;
        const unsigned blocks = static_cast<unsigned>((total + per_block - 1) / per_block);
        many_packets<<<blocks, kThreads, 0, stream>>>(g, v, o, scale, static_cast<uint32_t>(packets),
                                                      static_cast<uint32_t>(head), static_cast<uint32_t>(total));
    }
    return cudaGetLastError();
}
