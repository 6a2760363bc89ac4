// Softmax over rows, one read and one write. A block (or, for short rows, a warp) holds a row in registers. Every warp takes exponentials
// relative to its own maximum, so that one barrier is enough: y = e * exp(m_warp - m) / sum.
// Expected bound: launch and one memory latency (about 5 us) for few rows, copy bandwidth (about 4 TB/s) for many.

#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cstdint>
#include <cstddef>

namespace {

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exponential(float d) {
    return exp2f(d * kLog2e);
}

__device__ __forceinline__ float minus_infinity() {
    return __uint_as_float(0xff800000u);
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return static_cast<uint32_t>(__bfloat16_as_ushort(pair.x)) | (static_cast<uint32_t>(__bfloat16_as_ushort(pair.y)) << 16);
}

__device__ __forceinline__ void unpack(uint32_t pair, float& low, float& high) {
    low = __uint_as_float(pair << 16);
    high = __uint_as_float(pair & 0xffff0000u);
}

// T threads (along x) for a row, U loads of V elements each (8 needs 16-byte aligned rows). T == 32: blockDim.y rows in a block.
template <int T, int U, int V, int MAX_THREADS, int BLOCKS>
__global__ void __launch_bounds__(MAX_THREADS, BLOCKS)
softmax_kernel(const uint16_t* __restrict__ x, uint16_t* __restrict__ y, int N, int C) {
    static_assert(V == 8 || V == 1, "packets or elements");
    const int t = threadIdx.x;
    const int row = T == 32 ? static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y) : static_cast<int>(blockIdx.x);
    if (row >= N) return;  // the whole warp, and only where T == 32
    const uint16_t* from = x + static_cast<int64_t>(row) * C;
    uint16_t* to = y + static_cast<int64_t>(row) * C;

    float e[U][V];
    if constexpr (V == 8) {
        uint4 packets[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int at = (u * T + t) * 8;
            packets[u] = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);  // minus infinity
            if (at < C) packets[u] = __ldcs(reinterpret_cast<const uint4*>(from + at));
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            unpack(packets[u].x, e[u][0], e[u][1]);
            unpack(packets[u].y, e[u][2], e[u][3]);
            unpack(packets[u].z, e[u][4], e[u][5]);
            unpack(packets[u].w, e[u][6], e[u][7]);
        }
    } else {
        uint32_t elements[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int at = u * T + t;
            elements[u] = 0xff80u;
            if (at < C) elements[u] = __ldg(from + at);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) e[u][0] = __uint_as_float(elements[u] << 16);
    }

    float own = minus_infinity();
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
        for (int v = 0; v < V; ++v) own = fmaxf(own, e[u][v]);
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) own = fmaxf(own, __shfl_xor_sync(0xffffffffu, own, d));
    // Where a warp holds nothing above minus infinity but the row may, its exponentials have to be 0 and not NaN.
    // Where the warp holds the whole row, they have to be NaN.
    const float origin = (T > 32 && own == minus_infinity()) ? 0.0f : own;
    float sum = 0.0f;
#pragma unroll
    for (int u = 0; u < U; ++u) {
        float part = 0.0f;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            e[u][v] = exponential(e[u][v] - origin);
            part += e[u][v];
        }
        sum += part;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);

    float factor;
    if constexpr (T == 32) {
        factor = 1.0f / sum;
    } else {
        constexpr int WARPS = T / 32;
        __shared__ float2 found[WARPS];
        const int lane = t % 32;
        if (lane == 0) found[t / 32] = make_float2(own, sum);
        __syncthreads();
        // Every group of WARPS lanes merges what all warps found.
        const float2 other = found[lane % WARPS];
        float maximum = other.x;
#pragma unroll
        for (int d = WARPS / 2; d > 0; d /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));
        float total = other.y * exponential(other.x - maximum);
#pragma unroll
        for (int d = WARPS / 2; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
        // A warp that holds the maximum has exactly the factor 1 / total, also where the maximum is infinite (total is NaN then).
        factor = exponential(own - maximum) / total;
    }

    if constexpr (V == 8) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int at = (u * T + t) * 8;
            if (at < C) {
                uint4 packet;
                packet.x = pack(e[u][0] * factor, e[u][1] * factor);
                packet.y = pack(e[u][2] * factor, e[u][3] * factor);
                packet.z = pack(e[u][4] * factor, e[u][5] * factor);
                packet.w = pack(e[u][6] * factor, e[u][7] * factor);
                __stcs(reinterpret_cast<uint4*>(to + at), packet);
            }
        }
    } else {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int at = u * T + t;
            if (at < C) to[at] = __bfloat16_as_ushort(__float2bfloat16_rn(e[u][0] * factor));
        }
    }
}

template <int U, int V>
void launch_warps(const uint16_t* x, uint16_t* y, int N, int C, cudaStream_t stream) {
    const int rows = N <= 1024 ? 1 : 8;
    softmax_kernel<32, U, V, 256, 4><<<(N + rows - 1) / rows, dim3(32, rows), 0, stream>>>(x, y, N, C);
}

template <int T, int U, int V, int BLOCKS>
void launch_blocks(const uint16_t* x, uint16_t* y, int N, int C, cudaStream_t stream) {
    softmax_kernel<T, U, V, T, BLOCKS><<<N, T, 0, stream>>>(x, y, N, C);
}

}  // namespace

extern "C" size_t softmax_workspace(int64_t N, int64_t C) {
    (void)N;
    (void)C;
    return 0;
}

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x);
    uint16_t* to = reinterpret_cast<uint16_t*>(y);
    const int n = static_cast<int>(N), c = static_cast<int>(C);
    const bool packets = C % 8 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    const bool few = n <= 264;  // one or two rows for a multiprocessor: as many threads for each as can be
    if (packets) {
        if (c <= 256) {
            launch_warps<1, 8>(from, to, n, c, stream);
        } else if (c <= 512) {
            launch_warps<2, 8>(from, to, n, c, stream);
        } else if (c <= 1024) {
            launch_blocks<128, 1, 8, 8>(from, to, n, c, stream);
        } else if (c <= 2048) {
            launch_blocks<256, 1, 8, 4>(from, to, n, c, stream);
        } else if (c <= 4096) {
            if (few) launch_blocks<512, 1, 8, 2>(from, to, n, c, stream);
            else launch_blocks<256, 2, 8, 4>(from, to, n, c, stream);
        } else if (c <= 8192) {
            if (few) launch_blocks<1024, 1, 8, 1>(from, to, n, c, stream);
            else launch_blocks<256, 4, 8, 4>(from, to, n, c, stream);
        } else {
            if (few) launch_blocks<1024, 2, 8, 1>(from, to, n, c, stream);
            else launch_blocks<512, 4, 8, 2>(from, to, n, c, stream);
        }
    } else {
        if (c <= 128) {
            launch_warps<4, 1>(from, to, n, c, stream);
        } else if (c <= 1024) {
            launch_blocks<256, 4, 1, 4>(from, to, n, c, stream);
        } else if (c <= 4096) {
            launch_blocks<512, 8, 1, 2>(from, to, n, c, stream);
        } else {
            launch_blocks<1024, 16, 1, 1>(from, to, n, c, stream);
        }
    }
    return cudaGetLastError();
}
