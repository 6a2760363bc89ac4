// Dot product.
// Small N: one cluster of 16 blocks, a single launch, sums exchanged through distributed shared memory (bound: launch latency).
// Otherwise: chunks read as float4 with 8 loads in flight a thread, one partial a block, then a one-block kernel launched with
// programmatic dependent launch, so that its launch is hidden (bound: read bandwidth, 1 GiB / 4.63 TB/s = 232 us).

constexpr int kThreads = 512;
constexpr int kUnroll = 4;
constexpr int64_t kWaveBlocks = 264;      // two blocks a multiprocessor
constexpr int64_t kMaxRounds = 16;        // packets a thread at most
constexpr int64_t kClusterLimit = 131072;

__device__ __forceinline__ float warp_total(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// The sum over the block, valid in warp 0.
__device__ __forceinline__ float block_total(float x, float* scratch) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    x = warp_total(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    float sum = 0.0f;
    if (warp == 0) {
        sum = lane < static_cast<int>(blockDim.x >> 5) ? scratch[lane] : 0.0f;
        sum = warp_total(sum);
    }
    return sum;
}

template <bool kBothAligned>
__device__ __forceinline__ float4 load_y(const float* Y, int64_t packet) {
    if constexpr (kBothAligned) {
        return __ldcs(reinterpret_cast<const float4*>(Y) + packet);
    } else {
        const float* from = Y + packet * 4;
        float4 r;
        r.x = __ldg(from);
        r.y = __ldg(from + 1);
        r.z = __ldg(from + 2);
        r.w = __ldg(from + 3);
        return r;
    }
}

// This thread's share of packets [begin, end) of the (peeled) arrays; X is 16-byte aligned.
template <bool kBothAligned>
__device__ __forceinline__ float packets_sum(const float* X, const float* Y, int64_t begin, int64_t end) {
    const float4* X4 = reinterpret_cast<const float4*>(X);
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
    int64_t i = begin + threadIdx.x;
    for (; i + (kUnroll - 1) * kThreads < end; i += kUnroll * kThreads) {
        float4 a[kUnroll], b[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            a[u] = __ldcs(X4 + i + u * kThreads);
            b[u] = load_y<kBothAligned>(Y, i + u * kThreads);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            s0 = fmaf(a[u].x, b[u].x, s0);
            s1 = fmaf(a[u].y, b[u].y, s1);
            s2 = fmaf(a[u].z, b[u].z, s2);
            s3 = fmaf(a[u].w, b[u].w, s3);
        }
    }
    if (i < end) {
        float4 a[kUnroll - 1], b[kUnroll - 1];
#pragma unroll
        for (int u = 0; u < kUnroll - 1; ++u) {
            a[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            b[u] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i + u * kThreads < end) {
                a[u] = __ldcs(X4 + i + u * kThreads);
                b[u] = load_y<kBothAligned>(Y, i + u * kThreads);
            }
        }
#pragma unroll
        for (int u = 0; u < kUnroll - 1; ++u) {
            s0 = fmaf(a[u].x, b[u].x, s0);
            s1 = fmaf(a[u].y, b[u].y, s1);
            s2 = fmaf(a[u].z, b[u].z, s2);
            s3 = fmaf(a[u].w, b[u].w, s3);
        }
    }
    return (s0 + s1) + (s2 + s3);
}

// This thread's sum: its packets of the block's chunk and, in block 0, an element before or behind all packets.
__device__ __forceinline__ float thread_sum(const float* X, const float* Y, int64_t N, int head, int64_t packets,
                                            int64_t chunk, bool both_aligned) {
    float edge = 0.0f;
    if (blockIdx.x == 0) {
        const int t = threadIdx.x;
        const int64_t tail_begin = head + packets * 4;
        if (t < head) edge = X[t] * Y[t];
        if (tail_begin + t < N) edge = fmaf(X[tail_begin + t], Y[tail_begin + t], edge);
    }
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * chunk;
    int64_t end = begin + chunk;
    if (end > packets) end = packets;
    float sum;
    if (both_aligned) {
        sum = packets_sum<true>(X + head, Y + head, begin, end);
    } else {
        sum = packets_sum<false>(X + head, Y + head, begin, end);
    }
    return sum + edge;
}

__global__ void __launch_bounds__(kThreads) dot_cluster_kernel(const float* X, const float* Y, float* out, int64_t N, int head,
                                                               int64_t packets, int64_t chunk, int both_aligned) {
    __shared__ float scratch[32];
    __shared__ float slots[16];
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    const float own = thread_sum(X, Y, N, head, packets, chunk, both_aligned != 0);
    const float sum = block_total(own, scratch);
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // every block of the cluster has started
    if (threadIdx.x == 0) {
        const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&slots[blockIdx.x]));
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(0u));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(sum) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        float v = threadIdx.x < gridDim.x ? slots[threadIdx.x & 15] : 0.0f;
        v = warp_total(v);
        if (threadIdx.x == 0) out[0] = v;
    }
}

__global__ void __launch_bounds__(kThreads, 2) dot_partial_kernel(const float* X, const float* Y, float* partials, int64_t N,
                                                                  int head, int64_t packets, int64_t chunk, int both_aligned) {
    __shared__ float scratch[32];
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const float own = thread_sum(X, Y, N, head, packets, chunk, both_aligned != 0);
    const float sum = block_total(own, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(1024) dot_finish_kernel(const float* partials, float* out, int count) {
    __shared__ float scratch[32];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    float own = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x; i < count; i += blockDim.x) own += __ldcg(partials + i);
    const float sum = block_total(own, scratch);
    if (threadIdx.x == 0) out[0] = sum;
}

static int64_t dot_chunk(int64_t packets) {
    int64_t rounds = (packets + kThreads * kWaveBlocks - 1) / (kThreads * kWaveBlocks);
    if (rounds < 1) rounds = 1;
    if (rounds > kMaxRounds) rounds = kMaxRounds;
    return rounds * kThreads;
}

extern "C" size_t dot_product_workspace(int64_t N) {
    const int64_t blocks = (N / 4) / (kThreads * kMaxRounds) + kWaveBlocks + 2;
    return static_cast<size_t>(blocks) * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    const uintptr_t x_address = reinterpret_cast<uintptr_t>(X);
    const uintptr_t y_address = reinterpret_cast<uintptr_t>(Y);
    int64_t head64 = static_cast<int64_t>(((16 - (x_address & 15)) & 15) / 4);
    if (head64 > N) head64 = N;
    const int head = static_cast<int>(head64);
    const int64_t packets = (N - head64) / 4;
    const int both_aligned = ((x_address ^ y_address) & 15) == 0 ? 1 : 0;

    if (N <= kClusterLimit) {
        const int blocks = N <= 8192 ? 1 : 16;
        const int64_t chunk = (packets + blocks - 1) / blocks;
        bool allowed = true;
        if (blocks > 8) {
            allowed = cudaFuncSetAttribute(dot_cluster_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
        }
        if (allowed) {
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(blocks, 1, 1);
            config.blockDim = dim3(kThreads, 1, 1);
            config.dynamicSmemBytes = 0;
            config.stream = stream;
            cudaLaunchAttribute attribute[1];
            attribute[0].id = cudaLaunchAttributeClusterDimension;
            attribute[0].val.clusterDim.x = blocks;
            attribute[0].val.clusterDim.y = 1;
            attribute[0].val.clusterDim.z = 1;
            config.attrs = attribute;
            config.numAttrs = 1;
            const cudaError_t error =
                cudaLaunchKernelEx(&config, dot_cluster_kernel, X, Y, out, N, head, packets, chunk, both_aligned);
            if (error == cudaSuccess) return cudaGetLastError();
        }
        cudaGetLastError();  // no such cluster here: take the general way
    }

    float* partials = static_cast<float*>(workspace);
    const int64_t chunk = dot_chunk(packets);
    int64_t blocks = (packets + chunk - 1) / chunk;
    if (blocks < 1) blocks = 1;
    dot_partial_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(X, Y, partials, N, head, packets, chunk,
                                                                               both_aligned);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, 1, 1);
    config.blockDim = dim3(blocks <= 512 ? 256 : 1024, 1, 1);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const float* partials_in = partials;
    const int count = static_cast<int>(blocks);
    error = cudaLaunchKernelEx(&config, dot_finish_kernel, partials_in, out, count);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
