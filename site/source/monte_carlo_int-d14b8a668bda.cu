// Monte Carlo integral, fp32: a sum that is read once, so it is bound by memory (178 us for 512 MiB) or by launch latency.
//
// Up to 300000 samples: ONE launch of ONE thread block cluster (8 or 16 blocks) whose warps put their sums into block 0's
// shared memory: no second kernel, no counter to reset. Expected about 5 to 6 us.
// Above: 264 blocks (one wave) with eight 16-byte loads in flight per thread, and a second kernel of one warp that is
// launched early by programmatic dependent launch and only waits for the sums. Expected near the read ceiling when large.
// Unaligned arrays: the samples before the first 16-byte boundary and after the last one are added one by one.

constexpr int kGrid = 264;      // two blocks on each of 132 multiprocessors
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBatch = 8;       // packets in flight per thread
constexpr int kMaxCluster = 16;

__device__ __forceinline__ float4 load_stream(const float4* p) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ float packet_sum(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

__device__ __forceinline__ float result(float sum, float a, float b, int64_t N) {
    return (b - a) / static_cast<float>(N) * sum;
}

// What thread `index` of `stride` threads adds up: packets from the first aligned address on, and at most one loose sample.
__device__ __forceinline__ float thread_sum(const float* __restrict__ y, int64_t N, uint32_t index, uint32_t stride) {
    const int64_t to_alignment = ((16 - (reinterpret_cast<uintptr_t>(y) & 15)) & 15) / 4;
    const int64_t head = to_alignment < N ? to_alignment : N;
    const uint32_t packets = static_cast<uint32_t>((N - head) / 4);
    const float4* array = reinterpret_cast<const float4*>(y + head);
    const int64_t tail = head + 4 * static_cast<int64_t>(packets);
    float loose = 0;
    if (index < head) loose = y[index];
    else if (index >= 4 && index - 4 < N - tail) loose = y[tail + (index - 4)];

    uint32_t p = index;
    float s0 = 0, s1 = 0;
    // 64-bit sums are not needed: there are at most 2^26 packets and 8·stride is below 2^21.
    for (; p + (kBatch - 1) * stride < packets; p += kBatch * stride) {
        float4 v[kBatch];
#pragma unroll
        for (int u = 0; u < kBatch; ++u) v[u] = load_stream(array + p + u * stride);
#pragma unroll
        for (int u = 0; u < kBatch; u += 2) {
            s0 += packet_sum(v[u]);
            s1 += packet_sum(v[u + 1]);
        }
    }
    if (p < packets) {
        float4 v[kBatch];
#pragma unroll
        for (int u = 0; u < kBatch; ++u) {
            v[u] = make_float4(0, 0, 0, 0);
            if (p + u * stride < packets) v[u] = load_stream(array + p + u * stride);
        }
#pragma unroll
        for (int u = 0; u < kBatch; u += 2) {
            s0 += packet_sum(v[u]);
            s1 += packet_sum(v[u + 1]);
        }
    }
    return s0 + s1 + loose;
}

// Few samples: the whole grid is one cluster. Every warp writes its sum into the shared memory of block 0.
__global__ void __launch_bounds__(kThreads) one_cluster(const float* __restrict__ y, float* __restrict__ out, float a, float b,
                                                        int64_t N) {
    __shared__ float slots[kMaxCluster * kWarps];
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // all blocks run before any remote store
    const int rank = blockIdx.x;  // one cluster: the rank is the block's number
    float sum = thread_sum(y, N, static_cast<uint32_t>(rank * kThreads + threadIdx.x), gridDim.x * kThreads);
    sum = warp_sum(sum);
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x % 32 == 0) {
        const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&slots[rank * kWarps + threadIdx.x / 32]));
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(remote) : "r"(local));
        asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(remote), "f"(sum) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (rank == 0 && threadIdx.x < 32) {
        float total = 0;
        const int count = gridDim.x * kWarps;
#pragma unroll
        for (int i = 0; i < kMaxCluster * kWarps / 32; ++i) {
            const int k = i * 32 + threadIdx.x;
            if (k < count) total += slots[k];
        }
        total = warp_sum(total);
        if (threadIdx.x == 0) out[0] = result(total, a, b, N);
    }
}

__global__ void __launch_bounds__(kThreads, 2) block_sums(const float* __restrict__ y, float* __restrict__ sums, int64_t N) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float partial[kWarps];
    float sum = thread_sum(y, N, blockIdx.x * kThreads + threadIdx.x, kGrid * kThreads);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < kWarps ? partial[threadIdx.x] : 0.0f;
        sum = warp_sum(sum);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(32) last_sum(const float* sums, float* out, float a, float b, int64_t N) {
    asm volatile("griddepcontrol.wait;" ::: "memory");  // the first kernel is complete, its stores are visible
    constexpr int kEach = (kGrid + 31) / 32;
    float v[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int k = i * 32 + threadIdx.x;
        v[i] = k < kGrid ? __ldcg(sums + k) : 0.0f;
    }
    float total = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) total += v[i];
    total = warp_sum(total);
    if (threadIdx.x == 0) out[0] = result(total, a, b, N);
}

extern "C" size_t monte_carlo_int_workspace(float a, float b, int64_t N) {
    return kGrid * sizeof(float);
}

extern "C" cudaError_t monte_carlo_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    if (N <= 300000) {
        const int blocks = N <= 65536 ? 8 : 16;
        bool possible = true;
        if (blocks > 8) {
            possible = cudaFuncSetAttribute(one_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
        }
        if (possible) {
            cudaLaunchAttribute attribute[1];
            attribute[0].id = cudaLaunchAttributeClusterDimension;
            attribute[0].val.clusterDim.x = blocks;
            attribute[0].val.clusterDim.y = 1;
            attribute[0].val.clusterDim.z = 1;
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(blocks);
            config.blockDim = dim3(kThreads);
            config.stream = stream;
            config.attrs = attribute;
            config.numAttrs = 1;
            if (cudaLaunchKernelEx(&config, one_cluster, y, out, a, b, N) == cudaSuccess) return cudaGetLastError();
        }
        cudaGetLastError();  // such a cluster cannot be had here: the general way works everywhere
    }
    float* sums = static_cast<float*>(workspace);
    block_sums<<<kGrid, kThreads, 0, stream>>>(y, sums, N);
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = 1;
    const float* finished = sums;
    cudaError_t error = cudaLaunchKernelEx(&config, last_sum, finished, out, a, b, N);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
