// Leaky ReLU. Loads are 16-byte packets that L2 may drop first, up to four in flight per thread; results stay in L2 as long as it has room.
// Bound: launch for small arrays, 8 bytes an element at 3.0 TB/s for large ones.

namespace {

constexpr int kThreads = 256;
constexpr uint32_t kPacket = 16 / sizeof(scalar_t);

__device__ __forceinline__ float value(float x, float alpha) {
    return x >= 0 ? x : alpha * x;
}

__device__ __forceinline__ float4 map(float4 v, float alpha) {
    return make_float4(value(v.x, alpha), value(v.y, alpha), value(v.z, alpha), value(v.w, alpha));
}

// A block takes Unroll * kThreads packets; the last block, if it is beyond `blocks`, the few elements that are in no packet.
template <int Unroll>
__global__ void __launch_bounds__(kThreads) packets_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float alpha, uint32_t head, uint32_t packets, uint32_t blocks,
                                                           uint32_t edges) {
    if (blockIdx.x == blocks) {
        if (threadIdx.x < edges) {
            const uint32_t e = threadIdx.x;
            const uint32_t at = e < head ? e : e + packets * kPacket;
            y[at] = value(x[at], alpha);
        }
        return;
    }
    const uint32_t first = blockIdx.x * (Unroll * kThreads) + threadIdx.x;
    const float4* __restrict__ from = reinterpret_cast<const float4*>(x + head) + first;
    float4* __restrict__ to = reinterpret_cast<float4*>(y + head) + first;
    float4 in[Unroll];
    if (first + (Unroll - 1) * kThreads < packets) {
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            in[k] = __ldcs(from + k * kThreads);
        }
#pragma unroll
        for (int k = 0; k < Unroll; ++k) to[k * kThreads] = map(in[k], alpha);
    } else {
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            if (first + k * kThreads < packets) {
                in[k] = __ldcs(from + k * kThreads);
            }
        }
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            if (first + k * kThreads < packets) to[k * kThreads] = map(in[k], alpha);
        }
    }
}

// For arrays that do not share a 16-byte boundary.
__global__ void __launch_bounds__(kThreads) elements_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float alpha, uint32_t N) {
    const uint32_t first = blockIdx.x * (4 * kThreads) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const uint32_t at = first + k * kThreads;
        if (at < N) {
            y[at] = value(x[at], alpha);
        }
    }
}

template <int Unroll>
void launch_packets(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float alpha, uint32_t head, uint32_t packets, uint32_t edges, cudaStream_t stream) {
    const uint32_t blocks = (packets + Unroll * kThreads - 1) / (Unroll * kThreads);
    packets_kernel<Unroll><<<blocks + (edges > 0), kThreads, 0, stream>>>(x, y, alpha, head, packets, blocks, edges);
}

}  // namespace

extern "C" cudaError_t leaky_relu(const scalar_t* x, scalar_t* y, float alpha, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    int64_t head = static_cast<int64_t>(((16 - (reinterpret_cast<uintptr_t>(x) & 15)) & 15) / sizeof(scalar_t));
    if (head > N) head = N;
    if ((reinterpret_cast<uintptr_t>(y + head)) & 15) {
        const uint32_t blocks = static_cast<uint32_t>((N + 4 * kThreads - 1) / (4 * kThreads));
        elements_kernel<<<blocks, kThreads, 0, stream>>>(x, y, alpha, static_cast<uint32_t>(N));
        return cudaGetLastError();
    }
    const uint32_t h = static_cast<uint32_t>(head);
    const uint32_t packets = static_cast<uint32_t>((N - head) / kPacket);
    const uint32_t edges = static_cast<uint32_t>(N - static_cast<int64_t>(packets) * kPacket);
    if (packets <= 132u * 1024) {
        launch_packets<1>(x, y, alpha, h, packets, edges, stream);
    } else if (packets <= 132u * 4096) {
        launch_packets<2>(x, y, alpha, h, packets, edges, stream);
    } else {
        launch_packets<4>(x, y, alpha, h, packets, edges, stream);
    }
    return cudaGetLastError();
}
