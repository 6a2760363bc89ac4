// Prefix sum. Small N: one block or one cluster, one launch. Large N: single pass with decoupled look-back (8192 elements a
// tile, value and flag in one 64-bit word), state cleared by a small kernel that overlaps through programmatic dependent launch.
// Bound: launch latency; copy bandwidth (about 130 us) for 512 MiB.

typedef unsigned long long u64;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kLargeTile = kThreads * 16;

// Scans K packets of 4 a thread; a warp holds K*128 successive elements. v: inclusive sums from the start of the warp's
// part. Returns the sum of all warps before this one; `total` is that of the block.
template <int K>
__device__ __forceinline__ float scan_tile(float (*v)[4], float* warp_sums, float& total) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    float running = 0.f;
    float inclusive[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        v[k][1] += v[k][0];
        v[k][2] += v[k][1];
        v[k][3] += v[k][2];
        inclusive[k] = v[k][3];
    }
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const float other = __shfl_up_sync(0xffffffffu, inclusive[k], d);
            if (lane >= d) inclusive[k] += other;
        }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        float before = __shfl_up_sync(0xffffffffu, inclusive[k], 1);
        const float all = __shfl_sync(0xffffffffu, inclusive[k], 31);
        if (lane == 0) before = 0.f;
        before += running;
#pragma unroll
        for (int j = 0; j < 4; ++j) v[k][j] += before;
        running += all;
    }
    if (lane == 0) warp_sums[warp] = running;
    __syncthreads();
    float sum = lane < kWarps ? warp_sums[lane] : 0.f;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const float other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    total = __shfl_sync(0xffffffffu, sum, kWarps - 1);
    const float before = __shfl_sync(0xffffffffu, sum, warp > 0 ? warp - 1 : 0);
    return warp > 0 ? before : 0.f;
}

template <int K>
__device__ __forceinline__ void load_tile(const float* __restrict__ x, int64_t start, int64_t N, bool packets,
                                          float (*v)[4]) {
    const int64_t own = start + static_cast<int64_t>(threadIdx.x >> 5) * (K * 128) + (threadIdx.x & 31) * 4;
    if (packets && start + kThreads * 4 * K <= N) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const float4 p = __ldg(reinterpret_cast<const float4*>(x + own + k * 128));
            v[k][0] = p.x;
            v[k][1] = p.y;
            v[k][2] = p.z;
            v[k][3] = p.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int64_t i = own + k * 128 + j;
                v[k][j] = 0.f;
                if (i < N) v[k][j] = __ldg(x + i);
            }
        }
    }
}

template <int K>
__device__ __forceinline__ void store_tile(float* __restrict__ y, int64_t start, int64_t N, bool packets, float (*v)[4],
                                           float carry) {
    const int64_t own = start + static_cast<int64_t>(threadIdx.x >> 5) * (K * 128) + (threadIdx.x & 31) * 4;
    if (packets && start + kThreads * 4 * K <= N) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            __stcs(reinterpret_cast<float4*>(y + own + k * 128),
                   make_float4(v[k][0] + carry, v[k][1] + carry, v[k][2] + carry, v[k][3] + carry));
        }
    } else {
#pragma unroll
        for (int k = 0; k < K; ++k) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int64_t i = own + k * 128 + j;
                if (i < N) y[i] = v[k][j] + carry;
            }
        }
    }
}

// One cluster of S blocks (S = 1: no cluster), one tile each.
template <int K>
__global__ void __launch_bounds__(kThreads)
scan_cluster(const float* __restrict__ x, float* __restrict__ y, int64_t N, int S, bool packets) {
    __shared__ float warp_sums[kWarps];
    __shared__ float block_sum;
    const int64_t start = static_cast<int64_t>(blockIdx.x) * (kThreads * 4 * K);
    float v[K][4];
    load_tile<K>(x, start, N, packets, v);
    float total;
    float carry = scan_tile<K>(v, warp_sums, total);
    if (S > 1) {
        if (threadIdx.x == 0) block_sum = total;
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        const int lane = threadIdx.x & 31;
        float before = 0.f;
        if (lane < static_cast<int>(blockIdx.x)) {
            const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&block_sum));
            uint32_t remote;
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(lane));
            asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(before) : "r"(remote) : "memory");
        }
        __syncwarp();
#pragma unroll
        for (int d = 16; d > 0; d >>= 1) before += __shfl_xor_sync(0xffffffffu, before, d);
        carry += before;
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }
    store_tile<K>(y, start, N, packets, v, carry);
    if (S > 1) {
        __syncwarp();
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // nobody leaves while its sum is read
    }
}

__global__ void __launch_bounds__(256) clear_state(u64* state, int tiles) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < tiles) state[i] = 0;
}

__device__ __forceinline__ void publish(u64* state, unsigned flag, float value) {
    const u64 word = (static_cast<u64>(flag) << 32) | __float_as_uint(value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

__device__ __forceinline__ u64 observe(const u64* state) {
    u64 word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(state) : "memory");
    return word;
}

__global__ void __launch_bounds__(kThreads)
scan_look_back(const float* __restrict__ x, float* __restrict__ y, int64_t N, u64* state, bool packets) {
    constexpr int K = 4;
    __shared__ float warp_sums[kWarps];
    __shared__ float shared_before;
    const int tile = blockIdx.x;
    const int64_t start = static_cast<int64_t>(tile) * kLargeTile;
    float v[K][4];
    load_tile<K>(x, start, N, packets, v);
    float total;
    float carry = scan_tile<K>(v, warp_sums, total);
    if (threadIdx.x < 32) {
        asm volatile("griddepcontrol.wait;" ::: "memory");  // the state is clear
        const int lane = threadIdx.x;
        float before = 0.f;
        if (tile == 0) {
            if (lane == 0) publish(state, 2, total);
        } else {
            if (lane == 0) publish(state + tile, 1, total);
            int at = tile - 1 - lane;
            while (true) {
                u64 word = static_cast<u64>(2) << 32;
                bool missing;
                do {
                    if (at >= 0) word = observe(state + at);
                    missing = (word >> 32) == 0;
                } while (__any_sync(0xffffffffu, missing));
                const unsigned complete = __ballot_sync(0xffffffffu, (word >> 32) == 2);
                const int last = complete ? __ffs(complete) - 1 : 31;
                float part = lane <= last ? __uint_as_float(static_cast<unsigned>(word)) : 0.f;
#pragma unroll
                for (int d = 16; d > 0; d >>= 1) part += __shfl_xor_sync(0xffffffffu, part, d);
                before += part;
                if (complete) break;
                at -= 32;
            }
            if (lane == 0) publish(state + tile, 2, before + total);
        }
        if (lane == 0) shared_before = before;
    }
    __syncthreads();
    carry += shared_before;
    store_tile<K>(y, start, N, packets, v, carry);
}

template <int K>
static cudaError_t launch_cluster(const float* x, float* y, int64_t N, bool packets, cudaStream_t stream) {
    const int64_t tile = static_cast<int64_t>(kThreads) * 4 * K;
    int S = 1;
    while (S * tile < N) S *= 2;
    if (S == 1) {
        scan_cluster<K><<<1, kThreads, 0, stream>>>(x, y, N, S, packets);
        return cudaGetLastError();
    }
    cudaError_t error;
    if (S > 8) {
        error = cudaFuncSetAttribute(scan_cluster<K>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error != cudaSuccess) return error;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(S);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = S;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, scan_cluster<K>, x, y, N, S, packets);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

extern "C" size_t prefix_sum_workspace(int64_t N) {
    return static_cast<size_t>((N + kLargeTile - 1) / kLargeTile) * sizeof(u64);
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    (void)workspace_bytes;
    const bool packets = ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (N <= 2048) return launch_cluster<1>(x, y, N, packets, stream);
    if (N <= 4096) return launch_cluster<2>(x, y, N, packets, stream);
    if (N <= 8192) return launch_cluster<4>(x, y, N, packets, stream);
    if (N <= 65536) return launch_cluster<2>(x, y, N, packets, stream);
    if (N <= 131072) return launch_cluster<4>(x, y, N, packets, stream);

    u64* state = static_cast<u64*>(workspace);
    const int tiles = static_cast<int>((N + kLargeTile - 1) / kLargeTile);
    clear_state<<<(tiles + 255) / 256, 256, 0, stream>>>(state, tiles);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, scan_look_back, x, y, N, state, packets);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
