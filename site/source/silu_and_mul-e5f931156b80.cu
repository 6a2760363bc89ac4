// SiLU and multiply, bf16: two reads and a write per element, bound by memory (100 us for 288 MiB) or by launch latency.
//
// A thread takes one 16-byte packet of the gate and the one of the value at the same columns (two of each where the work
// exceeds one wave), with rows in blockIdx.y so that nothing is divided. The logistic function is one ex2 and one rcp.
// Streaming loads and stores. Expected near the copy ceiling when large, near an empty launch when small.
// Columns that are no multiple of 8 and unaligned arrays: one element per thread.

__device__ __forceinline__ float silu_times(float g, float v) {
    float e, s;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(g * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(1.0f + e));
    return g * s * v;
}

__device__ __forceinline__ uint32_t silu_times_pair(uint32_t g, uint32_t v) {
    const float low = silu_times(__uint_as_float(g << 16), __uint_as_float(v << 16));
    const float high = silu_times(__uint_as_float(g & 0xffff0000u), __uint_as_float(v & 0xffff0000u));
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&both);
}

__device__ __forceinline__ uint4 silu_times_packet(uint4 g, uint4 v) {
    return make_uint4(silu_times_pair(g.x, v.x), silu_times_pair(g.y, v.y), silu_times_pair(g.z, v.z),
                      silu_times_pair(g.w, v.w));
}

template <int kThreads, int kPackets>
__global__ void __launch_bounds__(kThreads) silu_packets(const uint4* __restrict__ x, uint4* __restrict__ y,
                                                         uint32_t row_packets) {
    const uint32_t row = blockIdx.y;
    const uint32_t column = blockIdx.x * (kThreads * kPackets) + threadIdx.x;
    const uint4* gate = x + row * 2 * row_packets;  // at most 2^26 packets
    const uint4* value = gate + row_packets;
    uint4* result = y + row * row_packets;
    if (kPackets == 1) {
        if (column >= row_packets) return;
        const uint4 g = __ldcs(gate + column);
        const uint4 v = __ldcs(value + column);
        __stcs(result + column, silu_times_packet(g, v));
    } else if (column + (kPackets - 1) * kThreads < row_packets) {
        uint4 g[kPackets], v[kPackets];
#pragma unroll
        for (int i = 0; i < kPackets; ++i) {
            g[i] = __ldcs(gate + column + i * kThreads);
            v[i] = __ldcs(value + column + i * kThreads);
        }
#pragma unroll
        for (int i = 0; i < kPackets; ++i) __stcs(result + column + i * kThreads, silu_times_packet(g[i], v[i]));
    } else {
        for (uint32_t c = column; c < row_packets; c += kThreads) {
            __stcs(result + c, silu_times_packet(__ldcs(gate + c), __ldcs(value + c)));
        }
    }
}

// Any number of columns and any alignment; packets by flat number where rows are short.
__global__ void __launch_bounds__(256) silu_short_rows(const uint4* __restrict__ x, uint4* __restrict__ y, uint32_t total,
                                                       uint32_t row_packets) {
    const uint32_t index = blockIdx.x * 256u + threadIdx.x;
    if (index >= total) return;
    const uint32_t gate = index + index / row_packets * row_packets;
    __stcs(y + index, silu_times_packet(__ldcs(x + gate), __ldcs(x + gate + row_packets)));
}

__global__ void __launch_bounds__(256) silu_elements(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y,
                                                     uint32_t total, uint32_t D) {
    const uint32_t index = blockIdx.x * 256u + threadIdx.x;  // at most 2^28 elements
    if (index >= total) return;
    const uint32_t gate = index + index / D * D;
    y[index] = __float2bfloat16_rn(silu_times(__bfloat162float(x[gate]), __bfloat162float(x[gate + D])));
}

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    if (D % 8 == 0 && addresses % 16 == 0) {
        const uint4* from = reinterpret_cast<const uint4*>(x);
        uint4* to = reinterpret_cast<uint4*>(y);
        const uint32_t row_packets = static_cast<uint32_t>(D / 8);
        const uint32_t rows = static_cast<uint32_t>(B);
        if (row_packets < 96) {
            const uint32_t total = rows * row_packets;
            silu_short_rows<<<(total + 255) / 256, 256, 0, stream>>>(from, to, total, row_packets);
        } else if (static_cast<int64_t>(rows) * row_packets > 132 * 2048 && row_packets >= 512) {
            silu_packets<256, 2><<<dim3((row_packets + 511) / 512, rows), 256, 0, stream>>>(from, to, row_packets);
        } else {
            silu_packets<128, 1><<<dim3((row_packets + 127) / 128, rows), 128, 0, stream>>>(from, to, row_packets);
        }
    } else {
        const uint32_t total = static_cast<uint32_t>(B * D);
        silu_elements<<<(total + 255) / 256, 256, 0, stream>>>(x, y, total, static_cast<uint32_t>(D));
    }
    return cudaGetLastError();
}
