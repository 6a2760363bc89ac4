// Hinge loss. Loads are 16-byte packets that L2 may drop first, up to six in flight per thread; results stay in L2 as long as it has room.
// Bound: launch for small arrays, 8 bytes an element at 3.0 TB/s for large ones.

namespace {

constexpr int kThreads = 256;
constexpr uint32_t kPacket = 16 / sizeof(scalar_t);

// 1 - p where the target is 1, 1 + p where it is 0.
__device__ __forceinline__ float margin(uint32_t bits, int32_t target) {
    return 1.0f + __uint_as_float(target == 0 ? bits : bits ^ 0x80000000u);
}

__device__ __forceinline__ uint32_t loss_pair(uint32_t pair, int32_t first, int32_t second) {
    const float low = margin(pair << 16, first);
    const float high = margin(pair & 0xffff0000u, second);
    uint32_t result;   // negative results become 0, NaN stays
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

__device__ __forceinline__ scalar_t loss(scalar_t p, int32_t target) {
    const float m = margin(__float_as_uint(__bfloat162float(p)), target);
    return __float2bfloat16_rn(m < 0 ? 0.0f : m);
}

__device__ __forceinline__ uint4 map(uint4 v, int4 left, int4 right) {
    return make_uint4(loss_pair(v.x, left.x, left.y), loss_pair(v.y, left.z, left.w), loss_pair(v.z, right.x, right.y),
                      loss_pair(v.w, right.z, right.w));
}

// A block takes Unroll * kThreads packets; the last block, if it is beyond `blocks`, the few elements that are in no packet.
template <int Unroll>
__global__ void __launch_bounds__(kThreads) packets_kernel(const scalar_t* __restrict__ p, const int32_t* __restrict__ t, scalar_t* __restrict__ out, uint32_t head, uint32_t packets, uint32_t blocks,
                                                           uint32_t edges) {
    if (blockIdx.x == blocks) {
        if (threadIdx.x < edges) {
            const uint32_t e = threadIdx.x;
            const uint32_t at = e < head ? e : e + packets * kPacket;
            out[at] = loss(p[at], t[at]);
        }
        return;
    }
    const uint32_t first = blockIdx.x * (Unroll * kThreads) + threadIdx.x;
    const uint4* __restrict__ from = reinterpret_cast<const uint4*>(p + head) + first;
    const int4* __restrict__ labels = reinterpret_cast<const int4*>(t + head) + 2 * static_cast<size_t>(first);
    uint4* __restrict__ to = reinterpret_cast<uint4*>(out + head) + first;
    uint4 in[Unroll];
    int4 left[Unroll], right[Unroll];
    if (first + (Unroll - 1) * kThreads < packets) {
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            in[k] = __ldcs(from + k * kThreads);
            left[k] = __ldcs(labels + 2 * k * kThreads);
            right[k] = __ldcs(labels + 2 * k * kThreads + 1);
        }
#pragma unroll
        for (int k = 0; k < Unroll; ++k) to[k * kThreads] = map(in[k], left[k], right[k]);
    } else {
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            if (first + k * kThreads < packets) {
                in[k] = __ldcs(from + k * kThreads);
            left[k] = __ldcs(labels + 2 * k * kThreads);
            right[k] = __ldcs(labels + 2 * k * kThreads + 1);
            }
        }
#pragma unroll
        for (int k = 0; k < Unroll; ++k) {
            if (first + k * kThreads < packets) to[k * kThreads] = map(in[k], left[k], right[k]);
        }
    }
}

// For arrays that do not share a 16-byte boundary.
__global__ void __launch_bounds__(kThreads) elements_kernel(const scalar_t* __restrict__ p, const int32_t* __restrict__ t, scalar_t* __restrict__ out, uint32_t N) {
    const uint32_t first = blockIdx.x * (4 * kThreads) + threadIdx.x;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const uint32_t at = first + k * kThreads;
        if (at < N) {
            out[at] = loss(p[at], t[at]);
        }
    }
}

template <int Unroll>
void launch_packets(const scalar_t* __restrict__ p, const int32_t* __restrict__ t, scalar_t* __restrict__ out, uint32_t head, uint32_t packets, uint32_t edges, cudaStream_t stream) {
    const uint32_t blocks = (packets + Unroll * kThreads - 1) / (Unroll * kThreads);
    packets_kernel<Unroll><<<blocks + (edges > 0), kThreads, 0, stream>>>(p, t, out, head, packets, blocks, edges);
}

}  // namespace

extern "C" cudaError_t hinge_loss(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    int64_t head = static_cast<int64_t>(((16 - (reinterpret_cast<uintptr_t>(predictions) & 15)) & 15) / sizeof(scalar_t));
    if (head > N) head = N;
    if ((reinterpret_cast<uintptr_t>(targets + head) | reinterpret_cast<uintptr_t>(losses + head)) & 15) {
        const uint32_t blocks = static_cast<uint32_t>((N + 4 * kThreads - 1) / (4 * kThreads));
        elements_kernel<<<blocks, kThreads, 0, stream>>>(predictions, targets, losses, static_cast<uint32_t>(N));
        return cudaGetLastError();
    }
    const uint32_t h = static_cast<uint32_t>(head);
    const uint32_t packets = static_cast<uint32_t>((N - head) / kPacket);
    const uint32_t edges = static_cast<uint32_t>(N - static_cast<int64_t>(packets) * kPacket);
    if (packets <= 132u * 1024) {
        launch_packets<1>(predictions, targets, losses, h, packets, edges, stream);
    } else if (packets <= 132u * 4096) {
        launch_packets<2>(predictions, targets, losses, h, packets, edges, stream);
    } else {
        launch_packets<2>(predictions, targets, losses, h, packets, edges, stream);
    }
    return cudaGetLastError();
}
