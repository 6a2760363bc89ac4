// Vector addition, fp32. Pure streaming, 12 bytes an element. 16-byte packets: one a thread in one wave for small arrays (bound by the
// launch, 3.8 us), eight independent loads a thread with evict-first hints for large ones (bound by the memory, about 260 us for
// 67108864 elements).

namespace {

constexpr int kLanes = 16 / sizeof(scalar_t);  // elements of a packet
constexpr int kThreads = 256;                  // of a block of the kernel for large arrays
constexpr int kUnroll = 4;                     // packets of each input in flight of a thread there
constexpr int kTile = kThreads * kUnroll;
constexpr int64_t kOneWave = 132 * 2048;       // threads that the device holds at once

__device__ __forceinline__ unsigned add(unsigned a, unsigned b) {
    return __float_as_uint(__uint_as_float(a) + __uint_as_float(b));
}

__device__ __forceinline__ uint4 apply(uint4 a, uint4 b) {
    return make_uint4(add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w));
}

__device__ __forceinline__ scalar_t apply_one(scalar_t a, scalar_t b) {
    return a + b;
}

// One packet a thread, then one thread for each element of the rest.
__global__ void __launch_bounds__(256) one_packet(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                  scalar_t* __restrict__ c, int packets, int rest) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < packets) {
        const uint4 left = __ldg(reinterpret_cast<const uint4*>(a) + i);
        const uint4 right = __ldg(reinterpret_cast<const uint4*>(b) + i);
        reinterpret_cast<uint4*>(c)[i] = apply(left, right);
    } else if (i - packets < rest) {
        const int64_t k = static_cast<int64_t>(packets) * kLanes + (i - packets);
        c[k] = apply_one(a[k], b[k]);
    }
}

// A tile of kTile packets a block; the last block has what is left of packets and elements.
__global__ void __launch_bounds__(kThreads) tiles(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                  scalar_t* __restrict__ c, int packets, int rest) {
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
        for (int u = 0; u < kUnroll; ++u) __stcs(to + first + u * kThreads, apply(left[u], right[u]));
    } else {
        for (int i = first; i < packets; i += kThreads) __stcs(to + i, apply(__ldcs(from_a + i), __ldcs(from_b + i)));
        if (threadIdx.x < rest) {
            const int64_t k = static_cast<int64_t>(packets) * kLanes + threadIdx.x;
            c[k] = apply_one(a[k], b[k]);
        }
    }
}

// For addresses that allow no packets.
__global__ void __launch_bounds__(kThreads) elements(const scalar_t* __restrict__ a, const scalar_t* __restrict__ b,
                                                     scalar_t* __restrict__ c, int64_t N) {
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
        if (first + u * kThreads < N) c[first + u * kThreads] = apply_one(left[u], right[u]);
    }
}

}  // namespace

extern "C" cudaError_t vector_add(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t N, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(A) | reinterpret_cast<uintptr_t>(B) | reinterpret_cast<uintptr_t>(C);
    if ((address & 15) == 0) {
        const int packets = static_cast<int>(N / kLanes);  // at most 2^28
        const int rest = static_cast<int>(N % kLanes);
        if (packets + rest <= kOneWave) {
            const int threads = packets <= 132 * 256 ? 128 : 256;
            one_packet<<<(packets + rest + threads - 1) / threads, threads, 0, stream>>>(A, B, C, packets, rest);
        } else {
            tiles<<<packets / kTile + 1, kThreads, 0, stream>>>(A, B, C, packets, rest);
        }
    } else {
        elements<<<static_cast<unsigned>((N + kTile - 1) / kTile), kThreads, 0, stream>>>(A, B, C, N);
    }
    return cudaGetLastError();
}
