// Dot product.
// Small N: one cluster of 16 blocks, warp sums go to block 0 by distributed shared memory; one launch in all.
// Larger N: 264 blocks stream X and Y in 16-byte packets (up to 8 loads in flight a thread), then one warp, already
// resident through programmatic dependent launch, adds the partial sums.
// Expected bound: launch latency up to a few MiB, DRAM read bandwidth (about 4.3 TB/s) at 1 GiB.

constexpr int kThreads = 512;
constexpr int kMaxBlocks = 264;
constexpr int kClusterBlocks = 16;
constexpr int kWarps = kThreads / 32;
constexpr int64_t kClusterLimit = 131072;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ void add_products(float4& s, const float4& a, const float4& b) {
    s.x = fmaf(a.x, b.x, s.x);
    s.y = fmaf(a.y, b.y, s.y);
    s.z = fmaf(a.z, b.z, s.z);
    s.w = fmaf(a.w, b.w, s.w);
}

// The part of the dot product that belongs to thread `tid` of `stride` threads (stride >= 4).
__device__ __forceinline__ float thread_dot(const float* __restrict__ X, const float* __restrict__ Y, int64_t N,
                                            int64_t tid, int64_t stride) {
    const uintptr_t ax = reinterpret_cast<uintptr_t>(X) & 15;
    const uintptr_t ay = reinterpret_cast<uintptr_t>(Y) & 15;
    if (ax == ay) {
        int64_t head = static_cast<int64_t>(((16 - ax) & 15) >> 2);
        if (head > N) head = N;
        const int64_t n4 = (N - head) >> 2;
        const float4* __restrict__ x4 = reinterpret_cast<const float4*>(X + head);
        const float4* __restrict__ y4 = reinterpret_cast<const float4*>(Y + head);
        float4 s0 = make_float4(0.f, 0.f, 0.f, 0.f);
        float4 s1 = s0;
        int64_t i = tid;
        for (; i + 3 * stride < n4; i += 4 * stride) {
            float4 a[4], b[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                a[k] = __ldg(x4 + i + k * stride);
                b[k] = __ldg(y4 + i + k * stride);
            }
            add_products(s0, a[0], b[0]);
            add_products(s1, a[1], b[1]);
            add_products(s0, a[2], b[2]);
            add_products(s1, a[3], b[3]);
        }
        {
            float4 a[3], b[3];
#pragma unroll
            for (int k = 0; k < 3; ++k) {
                a[k] = make_float4(0.f, 0.f, 0.f, 0.f);
                b[k] = make_float4(0.f, 0.f, 0.f, 0.f);
                if (i + k * stride < n4) {
                    a[k] = __ldg(x4 + i + k * stride);
                    b[k] = __ldg(y4 + i + k * stride);
                }
            }
            add_products(s0, a[0], b[0]);
            add_products(s1, a[1], b[1]);
            add_products(s0, a[2], b[2]);
        }
        if (head > 0 && tid < head) s0.x = fmaf(X[tid], Y[tid], s0.x);
        const int64_t rest = head + 4 * n4 + tid;
        if (rest < N && tid < 4) s1.x = fmaf(X[rest], Y[rest], s1.x);
        return ((s0.x + s1.x) + (s0.y + s1.y)) + ((s0.z + s1.z) + (s0.w + s1.w));
    }
    float s[4] = {0.f, 0.f, 0.f, 0.f};
    int64_t i = tid;
    for (; i + 7 * stride < N; i += 8 * stride) {
        float a[8], b[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            a[k] = __ldg(X + i + k * stride);
            b[k] = __ldg(Y + i + k * stride);
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) s[k & 3] = fmaf(a[k], b[k], s[k & 3]);
    }
    {
        float a[7], b[7];
#pragma unroll
        for (int k = 0; k < 7; ++k) {
            a[k] = 0.f;
            b[k] = 0.f;
            if (i + k * stride < N) {
                a[k] = __ldg(X + i + k * stride);
                b[k] = __ldg(Y + i + k * stride);
            }
        }
#pragma unroll
        for (int k = 0; k < 7; ++k) s[k & 3] = fmaf(a[k], b[k], s[k & 3]);
    }
    return (s[0] + s[1]) + (s[2] + s[3]);
}

__global__ void __launch_bounds__(kThreads)
dot_cluster(const float* __restrict__ X, const float* __restrict__ Y, float* __restrict__ out, int64_t N) {
    __shared__ float sums[kClusterBlocks * kWarps];
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    const int64_t tid = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    float own = thread_dot(X, Y, N, tid, static_cast<int64_t>(kClusterBlocks) * kThreads);
    __syncwarp();
    own = warp_sum(own);
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // block 0 has started, its shared memory may be written
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    if (lane == 0) {
        const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&sums[blockIdx.x * kWarps + warp]));
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(0));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(own) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (blockIdx.x == 0 && warp == 0) {
        float sum = 0.f;
#pragma unroll
        for (int k = 0; k < kClusterBlocks * kWarps / 32; ++k) sum += sums[k * 32 + lane];
        sum = warp_sum(sum);
        if (lane == 0) out[0] = sum;
    }
}

__global__ void __launch_bounds__(kThreads, 2)
dot_partial(const float* __restrict__ X, const float* __restrict__ Y, float* __restrict__ sums, int64_t N) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float partial[kWarps];
    const int64_t tid = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    float own = thread_dot(X, Y, N, tid, static_cast<int64_t>(gridDim.x) * kThreads);
    __syncwarp();
    own = warp_sum(own);
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    if (lane == 0) partial[warp] = own;
    __syncthreads();
    if (warp == 0) {
        float sum = lane < kWarps ? partial[lane] : 0.f;
        sum = warp_sum(sum);
        if (lane == 0) sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(32) dot_finish(const float* sums, float* out, int blocks) {
    constexpr int kSteps = (kMaxBlocks + 31) / 32;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const volatile float* source = sums;
    float value[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
        const int index = k * 32 + static_cast<int>(threadIdx.x);
        value[k] = 0.f;
        if (index < blocks) value[k] = source[index];
    }
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < kSteps; ++k) sum += value[k];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

extern "C" size_t dot_product_workspace(int64_t N) {
    (void)N;
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    if (N <= kClusterLimit) {
        cudaError_t error = cudaFuncSetAttribute(dot_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error != cudaSuccess) return error;
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(kClusterBlocks);
        config.blockDim = dim3(kThreads);
        config.dynamicSmemBytes = 0;
        config.stream = stream;
        cudaLaunchAttribute attribute[1];
        attribute[0].id = cudaLaunchAttributeClusterDimension;
        attribute[0].val.clusterDim.x = kClusterBlocks;
        attribute[0].val.clusterDim.y = 1;
        attribute[0].val.clusterDim.z = 1;
        config.attrs = attribute;
        config.numAttrs = 1;
        error = cudaLaunchKernelEx(&config, dot_cluster, X, Y, out, N);
        if (error != cudaSuccess) return error;
        return cudaGetLastError();
    }

    float* sums = static_cast<float*>(workspace);
    const int64_t wanted = (N / 4 + kThreads - 1) / kThreads;
    const int blocks = static_cast<int>(wanted < kMaxBlocks ? (wanted < 1 ? 1 : wanted) : kMaxBlocks);
    dot_partial<<<blocks, kThreads, 0, stream>>>(X, Y, sums, N);

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, dot_finish, static_cast<const float*>(sums), out, blocks);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
