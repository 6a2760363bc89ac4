// Dot product, fp32.
// N <= 131072: one kernel, one cluster of 16 blocks; every warp's sum goes to block 0's shared memory (DSMEM), whose first warp finishes.
// Otherwise:   264 blocks of 512 threads stream X and Y with 16-byte loads, 8 in flight a thread; a one-warp kernel, launched with
//              programmatic dependent launch, adds the partial sums in a fixed order.
// Expected bound: launch latency up to some MiB, then the read bandwidth (about 240 us for 1 GiB).

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxBlocks = 264;
constexpr int kCluster = 16;
constexpr int kSmallN = 131072;
constexpr int kUnroll = 4;

__device__ __forceinline__ float4 load4(const float4* p) {
    float4 v;
    asm("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// What thread t of `total` adds up.
__device__ __forceinline__ float own_sum(const float* __restrict__ X, const float* __restrict__ Y, int N, int t, int total) {
    const unsigned ax = static_cast<unsigned>(reinterpret_cast<uintptr_t>(X) & 15);
    const unsigned ay = static_cast<unsigned>(reinterpret_cast<uintptr_t>(Y) & 15);
    float acc[2][4];
#pragma unroll
    for (int a = 0; a < 2; ++a) {
#pragma unroll
        for (int k = 0; k < 4; ++k) acc[a][k] = 0.f;
    }
    if (ax == ay) {
        int head = static_cast<int>(((16u - ax) & 15u) / 4u);
        if (head > N) head = N;
        const int n4 = (N - head) / 4;
        const float4* X4 = reinterpret_cast<const float4*>(X + head);
        const float4* Y4 = reinterpret_cast<const float4*>(Y + head);
        int i = t;
        for (; i + (kUnroll - 1) * total < n4; i += kUnroll * total) {
            float4 x[kUnroll], y[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                x[u] = load4(X4 + (i + u * total));
                y[u] = load4(Y4 + (i + u * total));
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                acc[u & 1][0] = fmaf(x[u].x, y[u].x, acc[u & 1][0]);
                acc[u & 1][1] = fmaf(x[u].y, y[u].y, acc[u & 1][1]);
                acc[u & 1][2] = fmaf(x[u].z, y[u].z, acc[u & 1][2]);
                acc[u & 1][3] = fmaf(x[u].w, y[u].w, acc[u & 1][3]);
            }
        }
        if (i < n4) {
            float4 x[kUnroll - 1], y[kUnroll - 1];
#pragma unroll
            for (int u = 0; u < kUnroll - 1; ++u) {
                x[u] = make_float4(0.f, 0.f, 0.f, 0.f);
                y[u] = make_float4(0.f, 0.f, 0.f, 0.f);
                if (i + u * total < n4) {
                    x[u] = load4(X4 + (i + u * total));
                    y[u] = load4(Y4 + (i + u * total));
                }
            }
#pragma unroll
            for (int u = 0; u < kUnroll - 1; ++u) {
                acc[u & 1][0] = fmaf(x[u].x, y[u].x, acc[u & 1][0]);
                acc[u & 1][1] = fmaf(x[u].y, y[u].y, acc[u & 1][1]);
                acc[u & 1][2] = fmaf(x[u].z, y[u].z, acc[u & 1][2]);
                acc[u & 1][3] = fmaf(x[u].w, y[u].w, acc[u & 1][3]);
            }
        }
        // At most three elements before the packets and three after: one thread each.
        const int after = head + 4 * n4;
        const int rest = N - after;
        const int back = total - 1 - t;
        if (back < head) acc[0][0] = fmaf(__ldg(X + back), __ldg(Y + back), acc[0][0]);
        if (back < rest) acc[1][0] = fmaf(__ldg(X + after + back), __ldg(Y + after + back), acc[1][0]);
    } else {
        int i = t;
        for (; i + 3 * total < N; i += 4 * total) {
            float x[4], y[4];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                x[u] = __ldg(X + (i + u * total));
                y[u] = __ldg(Y + (i + u * total));
            }
#pragma unroll
            for (int u = 0; u < 4; ++u) acc[0][u] = fmaf(x[u], y[u], acc[0][u]);
        }
        for (; i < N; i += total) acc[1][0] = fmaf(__ldg(X + i), __ldg(Y + i), acc[1][0]);
    }
    return ((acc[0][0] + acc[1][0]) + (acc[0][1] + acc[1][1])) + ((acc[0][2] + acc[1][2]) + (acc[0][3] + acc[1][3]));
}

__global__ void __launch_bounds__(kThreads, 1) dot_cluster(const float* X, const float* Y, float* out, int N) {
    __shared__ float sums[16 * kWarps];
    // Block 0 must have started before others write to its shared memory; the wait is after the loads.
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int blocks = gridDim.x;
    const float own = warp_sum(own_sum(X, Y, N, blockIdx.x * kThreads + threadIdx.x, blocks * kThreads));
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (lane == 0) {
        const unsigned local = static_cast<unsigned>(__cvta_generic_to_shared(&sums[blockIdx.x * kWarps + warp]));
        unsigned remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(0));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(own) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (blockIdx.x == 0 && warp == 0) {
        float sum = 0.f;
        for (int k = lane; k < blocks * kWarps; k += 32) sum += sums[k];
        sum = warp_sum(sum);
        if (lane == 0) out[0] = sum;
    }
}

__global__ void __launch_bounds__(kThreads, 2) dot_blocks(const float* X, const float* Y, float* partial, int N) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float sums[kWarps];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const float own = warp_sum(own_sum(X, Y, N, blockIdx.x * kThreads + threadIdx.x, gridDim.x * kThreads));
    if (lane == 0) sums[warp] = own;
    __syncthreads();
    if (warp == 0) {
        const float sum = warp_sum(lane < kWarps ? sums[lane] : 0.f);
        if (lane == 0) partial[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(32, 1) dot_finish(const float* partial, float* out, int blocks) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    constexpr int kEach = (kMaxBlocks + 31) / 32;
    float v[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
        const int i = k * 32 + threadIdx.x;
        v[k] = i < blocks ? __ldcg(partial + i) : 0.f;
    }
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < kEach; ++k) sum += v[k];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

static cudaError_t launch_cluster(const float* X, const float* Y, float* out, int N, int blocks, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = blocks;
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, dot_cluster, X, Y, out, N);
}

extern "C" size_t dot_product_workspace(int64_t N) {
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    const int n = static_cast<int>(N);
    if (n <= kSmallN) {
        cudaError_t error = cudaFuncSetAttribute(dot_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error == cudaSuccess) error = launch_cluster(X, Y, out, n, kCluster, stream);
        if (error != cudaSuccess) {
            cudaGetLastError();
            launch_cluster(X, Y, out, n, 8, stream);
        }
        return cudaGetLastError();
    }
    float* partial = static_cast<float*>(workspace);
    int blocks = (n / 4 + kThreads - 1) / kThreads;
    if (blocks > kMaxBlocks) blocks = kMaxBlocks;
    dot_blocks<<<blocks, kThreads, 0, stream>>>(X, Y, partial, n);

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
    cudaLaunchKernelEx(&config, dot_finish, static_cast<const float*>(partial), out, blocks);
    return cudaGetLastError();
}
