// SiLU and multiply, fp32. 12 bytes an output are moved; about 10 instructions an output hide behind that. Two-dimensional grid (no
// division), 16-byte packets, one a thread in one wave for small cases (bound by launch and latency, 4 to 6 us), two of each half in flight
// with evict-first hints for large ones (bound by the memory, about 195 us for 4096 x 12288).

namespace {

constexpr float kFarLeft = -87.0f;  // 1 + exp(87) < 2^126, of which the fast reciprocal is still a normal number

template <int V>
struct alignas(4 * V) Lanes {
    float lane[V];
};

template <int V, bool kStreaming>
__device__ __forceinline__ Lanes<V> load(const float* from) {
    Lanes<V> p;
    if constexpr (V == 4) {
        const float4 q = kStreaming ? __ldcs(reinterpret_cast<const float4*>(from)) : __ldg(reinterpret_cast<const float4*>(from));
        p.lane[0] = q.x;
        p.lane[1] = q.y;
        p.lane[2] = q.z;
        p.lane[3] = q.w;
    } else {
        p.lane[0] = kStreaming ? __ldcs(from) : __ldg(from);
    }
    return p;
}

template <int V, bool kStreaming>
__device__ __forceinline__ void store(float* to, const Lanes<V>& p) {
    if constexpr (V == 4) {
        const float4 q = make_float4(p.lane[0], p.lane[1], p.lane[2], p.lane[3]);
        if (kStreaming) {
            __stcs(reinterpret_cast<float4*>(to), q);
        } else {
            *reinterpret_cast<float4*>(to) = q;
        }
    } else {
        *to = p.lane[0];
    }
}

template <int V>
__device__ __forceinline__ Lanes<V> silu_times(const Lanes<V>& g, const Lanes<V>& v) {
    Lanes<V> s;
    float least = 0;
#pragma unroll
    for (int k = 0; k < V; ++k) {
        float e, r;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(g.lane[k] * -1.4426950408889634f));
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
        s.lane[k] = g.lane[k] * r * v.lane[k];
        least = fminf(least, g.lane[k]);
    }
    if (least < kFarLeft) {
        // Far left the logistic function is the exponential. It is never zero: an infinite v stays infinite beside a finite g.
#pragma unroll
        for (int k = 0; k < V; ++k) {
            if (g.lane[k] < kFarLeft) {
                s.lane[k] = isinf(v.lane[k]) && !isinf(g.lane[k]) ? g.lane[k] * v.lane[k] : g.lane[k] * expf(g.lane[k]) * v.lane[k];
            }
        }
    }
    return s;
}

// `width`: packets of V elements a row of y. Every array has less than 2^30 elements.
template <int V, int U>
__global__ void __launch_bounds__(256) silu_and_mul_kernel(const float* __restrict__ x, float* __restrict__ y, int B, int width) {
    constexpr bool kStreaming = U > 1;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int first = blockIdx.x * (blockDim.x * U) + threadIdx.x;
    if (row >= B) return;
    const float* gate = x + static_cast<int64_t>(row) * (2 * width) * V;
    const float* value = gate + width * V;
    float* out = y + static_cast<int64_t>(row) * width * V;
    Lanes<V> g[U], v[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const int column = first + u * blockDim.x;
        if (column < width) {
            g[u] = load<V, kStreaming>(gate + column * V);
            v[u] = load<V, kStreaming>(value + column * V);
        }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
        const int column = first + u * blockDim.x;
        if (column < width) store<V, kStreaming>(out + column * V, silu_times<V>(g[u], v[u]));
    }
}

template <int V>
void launch(const float* x, float* y, int B, int width, cudaStream_t stream) {
    const bool large = static_cast<int64_t>(B) * width > 132 * 2048;
    const int threads = large ? 256 : 128;
    const int unroll = large ? 2 : 1;
    int across = 1;  // threads along a row: a power of two
    while (across < threads && across * unroll < width) across *= 2;
    const dim3 block(across, threads / across);
    const dim3 grid((width + across * unroll - 1) / (across * unroll), (B + block.y - 1) / block.y);
    if (large) {
        silu_and_mul_kernel<V, 2><<<grid, block, 0, stream>>>(x, y, B, width);
    } else {
        silu_and_mul_kernel<V, 1><<<grid, block, 0, stream>>>(x, y, B, width);
    }
}

}  // namespace

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    const bool packets = ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0 && D % 4 == 0;
    if (packets) {
        launch<4>(x, y, static_cast<int>(B), static_cast<int>(D / 4), stream);
    } else {
        launch<1>(x, y, static_cast<int>(B), static_cast<int>(D), stream);
    }
    return cudaGetLastError();
}
