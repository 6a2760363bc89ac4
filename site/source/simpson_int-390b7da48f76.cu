// Simpson integral, fp32: a weighted sum that is read once, so it is bound by memory (178 us for 512 MiB) or launch latency.
//
// Samples 1 to last - 1 weigh 4 and 2 in turn; in 16-byte packets the parity is the same for every packet, so that weights
// are two numbers. The two ends and what alignment leaves over are added by single threads.
// Up to 300000 samples: ONE launch of ONE thread block cluster (8 or 16 blocks) whose warps put their sums into block 0's
// shared memory: no second kernel, no counter to reset. Expected about 5 to 6 us.
// Above: 264 blocks (one wave) with eight 16-byte loads in flight per thread, and a second kernel of one warp that is
// launched early by programmatic dependent launch and only waits for the sums. Expected near the read ceiling when large.

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

// A packet of interior samples, of which x and z have one parity and y and w the other. Their weights are halved.
__device__ __forceinline__ float packet_sum_of(float4 v, float weight_xz, float weight_yw) {
    return fmaf(weight_yw, v.y + v.w, weight_xz * (v.x + v.z));
}

// `sum`: of the samples with half their weights.
__device__ __forceinline__ float result(float sum, float a, float b, int64_t N) {
    if (N < 3) return 0.0f;
    return (b - a) / static_cast<float>(N - 1) / 3.0f * (2.0f * sum);
}

// What thread `index` of `stride` threads adds up, with half the weights: packets of the interior from the first aligned
// address on, and at most one loose sample or end.
__device__ __forceinline__ float thread_sum(const float* __restrict__ samples, int64_t N, uint32_t index, uint32_t stride) {
    if (N < 3) return 0.0f;
    const float* y = samples + 1;                   // interior: its even numbers weigh 4, its odd ones 2
    const int64_t count = (N - 1) / 2 * 2 - 1;
    const int64_t to_alignment = ((16 - (reinterpret_cast<uintptr_t>(y) & 15)) & 15) / 4;
    const int64_t head = to_alignment < count ? to_alignment : count;
    const uint32_t packets = static_cast<uint32_t>((count - head) / 4);
    const float4* array = reinterpret_cast<const float4*>(y + head);
    const int64_t tail = head + 4 * static_cast<int64_t>(packets);
    const float weight_xz = head % 2 == 0 ? 2.0f : 1.0f;
    const float weight_yw = 3.0f - weight_xz;
    float loose = 0;
    int64_t k = -1;
    if (index < head) k = index;
    else if (index >= 4 && index - 4 < count - tail) k = tail + (index - 4);
    if (index == 8) loose = 0.5f * samples[0];  // the two ends; nothing is subtracted, so that an infinity there stays one
    else if (index == 9) loose = 0.5f * samples[count + 1];
    if (k >= 0) loose = (k % 2 == 0 ? 2.0f : 1.0f) * y[k];

    uint32_t p = index;
    float s0 = 0, s1 = 0;
    // 64-bit sums are not needed: there are at most 2^26 packets and 8·stride is below 2^21.
    for (; p + (kBatch - 1) * stride < packets; p += kBatch * stride) {
        float4 v[kBatch];
#pragma unroll
        for (int u = 0; u < kBatch; ++u) v[u] = load_stream(array + p + u * stride);
#pragma unroll
        for (int u = 0; u < kBatch; u += 2) {
            s0 += packet_sum_of(v[u], weight_xz, weight_yw);
            s1 += packet_sum_of(v[u + 1], weight_xz, weight_yw);
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
            s0 += packet_sum_of(v[u], weight_xz, weight_yw);
            s1 += packet_sum_of(v[u + 1], weight_xz, weight_yw);
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

extern "C" size_t simpson_int_workspace(float a, float b, int64_t N) {
    return kGrid * sizeof(float);
}

extern "C" cudaError_t simpson_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace,
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
