// SwiGLU, fp32: two reads and a write per element, bound by memory (266 us for 768 MiB) or by launch latency.
//
// A thread takes one 16-byte packet of each array (two where the work exceeds one wave: four loads in flight), blocks of a
// contiguous tile, no loop. The logistic function is one ex2 and one rcp. Streaming loads and stores.
// Arrays that are all off a 16-byte boundary by as much: the last block's threads do the elements before and after the
// packets. Arrays that are off by different amounts: one element per thread. Expected near the copy ceiling when large.

__device__ __forceinline__ float swiglu_of(float x, float v, float factor) {  // factor = -beta·log2(e)
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * factor));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + e));
    return x * s * v;
}

__device__ __forceinline__ float4 swiglu_of(float4 x, float4 v, float factor) {
    return make_float4(swiglu_of(x.x, v.x, factor), swiglu_of(x.y, v.y, factor), swiglu_of(x.z, v.z, factor),
                       swiglu_of(x.w, v.w, factor));
}

template <int kThreads, int kPackets>
__global__ void __launch_bounds__(kThreads) swiglu_packets(const float* __restrict__ gate, const float* __restrict__ value,
                                                           float* __restrict__ out, float factor, uint32_t packets,
                                                           uint32_t head, uint32_t tail) {
    const float4* g = reinterpret_cast<const float4*>(gate + head);
    const float4* v = reinterpret_cast<const float4*>(value + head);
    float4* o = reinterpret_cast<float4*>(out + head);
    const uint32_t first = blockIdx.x * (kThreads * kPackets) + threadIdx.x;  // at most 2^28 packets
    if (first + (kPackets - 1) * kThreads < packets) {
        float4 a[kPackets], b[kPackets];
#pragma unroll
        for (int i = 0; i < kPackets; ++i) {
            a[i] = __ldcs(g + first + i * kThreads);
            b[i] = __ldcs(v + first + i * kThreads);
        }
#pragma unroll
        for (int i = 0; i < kPackets; ++i) __stcs(o + first + i * kThreads, swiglu_of(a[i], b[i], factor));
    } else {
        for (uint32_t p = first; p < packets; p += kThreads) {
            __stcs(o + p, swiglu_of(__ldcs(g + p), __ldcs(v + p), factor));
        }
    }
    // At most three elements before the packets and three after them.
    if (blockIdx.x == gridDim.x - 1) {
        const uint32_t t = kThreads - 1 - threadIdx.x;
        if (t < head + tail) {
            const size_t i = t < head ? t : static_cast<size_t>(packets) * 4 + t;
            out[i] = swiglu_of(gate[i], value[i], factor);
        }
    }
}

__global__ void __launch_bounds__(256) swiglu_elements(const float* __restrict__ gate, const float* __restrict__ value,
                                                       float* __restrict__ out, float factor, int64_t N) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (i < N) __stcs(out + i, swiglu_of(__ldcs(gate + i), __ldcs(value + i), factor));
}

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const float factor = static_cast<float>(-1.4426950408889634 * static_cast<double>(beta));
    const uintptr_t g = reinterpret_cast<uintptr_t>(gate);
    const uintptr_t v = reinterpret_cast<uintptr_t>(value);
    const uintptr_t o = reinterpret_cast<uintptr_t>(out);
    if ((((g ^ v) | (g ^ o)) & 15) == 0) {
        int64_t head = static_cast<int64_t>((16 - (g & 15)) & 15) / 4;
        if (head > N) head = N;
        const uint32_t packets = static_cast<uint32_t>((N - head) / 4);
        const uint32_t tail = static_cast<uint32_t>(N - head - 4 * static_cast<int64_t>(packets));
        const uint32_t before = static_cast<uint32_t>(head);
        if (packets > 132u * 2048u) {
            swiglu_packets<256, 2><<<(packets + 511) / 512, 256, 0, stream>>>(gate, value, out, factor, packets, before, tail);
        } else {
            const uint32_t blocks = packets == 0 ? 1 : (packets + 127) / 128;
            swiglu_packets<128, 1><<<blocks, 128, 0, stream>>>(gate, value, out, factor, packets, before, tail);
        }
    } else {
        swiglu_elements<<<static_cast<unsigned>((N + 255) / 256), 256, 0, stream>>>(gate, value, out, factor, N);
    }
    return cudaGetLastError();
}
