// ReLU, bf16. Pure streaming: 4 bytes an element. 16-byte packets, max.NaN.bf16x2 (one instruction for two elements, keeps NaN).
// Small arrays: one packet a thread, one wave, bound by the launch (3.8 us). Large: four independent packets a thread, evict-first, bound
// by the copy rate of the memory (about 88 us for 67108864 elements).

namespace {

constexpr int kLanes = 16 / sizeof(scalar_t);  // elements of a packet
constexpr int kThreads = 256;                  // of a block of the kernel for large arrays
constexpr int kUnroll = 4;                     // packets in flight of a thread there
constexpr int kTile = kThreads * kUnroll;
constexpr int64_t kOneWave = 132 * 2048;       // threads that the device holds at once

__device__ __forceinline__ unsigned relu_pair(unsigned pair) {
    unsigned result;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(pair), "r"(0u));
    return result;
}

__device__ __forceinline__ uint4 apply(uint4 p) {
    return make_uint4(relu_pair(p.x), relu_pair(p.y), relu_pair(p.z), relu_pair(p.w));
}

__device__ __forceinline__ scalar_t apply_one(scalar_t x) {
    const float value = __bfloat162float(x);
    return value < 0.0f ? __float2bfloat16_rn(0.0f) : x;
}

// One packet a thread, then one thread for each element of the rest.
__global__ void __launch_bounds__(256) one_packet(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int packets, int rest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < packets) {
        reinterpret_cast<uint4*>(y)[i] = apply(__ldg(reinterpret_cast<const uint4*>(x) + i));
    } else if (i - packets < rest) {
        const int64_t k = static_cast<int64_t>(packets) * kLanes + (i - packets);
        y[k] = apply_one(x[k]);
    }
}

// A tile of kTile packets a block; the last block has what is left of packets and elements.
__global__ void __launch_bounds__(kThreads) tiles(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int packets, int rest) {
    const uint4* from = reinterpret_cast<const uint4*>(x);
    uint4* to = reinterpret_cast<uint4*>(y);
    const int first = blockIdx.x * kTile + threadIdx.x;
    if (blockIdx.x + 1 < gridDim.x) {
        uint4 packet[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) packet[u] = __ldcs(from + first + u * kThreads);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) __stcs(to + first + u * kThreads, apply(packet[u]));
    } else {
        for (int i = first; i < packets; i += kThreads) __stcs(to + i, apply(__ldcs(from + i)));
        if (threadIdx.x < rest) {
            const int64_t k = static_cast<int64_t>(packets) * kLanes + threadIdx.x;
            y[k] = apply_one(x[k]);
        }
    }
}

// For addresses that allow no packets.
__global__ void __launch_bounds__(kThreads) elements(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t N) {
    const int64_t first = blockIdx.x * static_cast<int64_t>(kTile) + threadIdx.x;
    scalar_t value[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < N) value[u] = x[first + u * kThreads];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < N) y[first + u * kThreads] = apply_one(value[u]);
    }
}

}  // namespace

extern "C" cudaError_t relu(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                            cudaStream_t stream) {
    if (((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0) {
        const int packets = static_cast<int>(N / kLanes);  // at most 2^28
        const int rest = static_cast<int>(N % kLanes);
        if (packets + rest <= kOneWave) {
            const int threads = packets <= 132 * 256 ? 128 : 256;
            one_packet<<<(packets + rest + threads - 1) / threads, threads, 0, stream>>>(x, y, packets, rest);
        } else {
            tiles<<<packets / kTile + 1, kThreads, 0, stream>>>(x, y, packets, rest);
        }
    } else {
        elements<<<static_cast<unsigned>((N + kTile - 1) / kTile), kThreads, 0, stream>>>(x, y, N);
    }
    return cudaGetLastError();
}
