// Dot product. Small inputs: one cluster of up to 16 blocks, one launch, sums exchanged in distributed shared memory (launch-bound, about
// 5 us). Large ones: a persistent grid streams both arrays in 16-byte packets, eight in flight per thread, and a one-block kernel, launched
// programmatically, adds up 264 sums. Bound by reading: 4 bytes an element at 3.1 TB/s.

namespace {

constexpr int kThreads = 512;
constexpr int kMaxBlocks = 264;          // two blocks on each of 132 multiprocessors
constexpr int kFinishThreads = 288;
constexpr uint32_t kPacket = 16 / sizeof(scalar_t);
constexpr int64_t kClusterBytes = 1 << 20;

// sum + the products of two pairs of bf16.
__device__ __forceinline__ float add(float sum, uint32_t x, uint32_t y) {
    sum = fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
    return fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
}

__device__ __forceinline__ float fma_rest(float sum, float x, float y) {
    return fmaf(x, y, sum);
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

// The block's sum, in warp 0.
__device__ __forceinline__ float block_sum(float v, float* scratch) {
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    v = warp_sum(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < static_cast<int>(blockDim.x >> 5) ? scratch[lane] : 0.0f;
        v = warp_sum(v);
    }
    return v;
}

// This thread's part. "Edges" are the elements that are in no packet; the first of them is loaded ahead of the packets.
__device__ __forceinline__ float sum_of_thread(const scalar_t* __restrict__ X, const scalar_t* __restrict__ Y, uint32_t head,
                                               uint32_t packets, uint32_t edges, uint32_t tid, uint32_t stride) {
    const uint32_t inner = packets * kPacket;
    float edge_x = 0.0f;
    float edge_y = 0.0f;
    if (tid < edges) {
        const uint32_t at = tid < head ? tid : tid + inner;
        edge_x = static_cast<float>(X[at]);
        edge_y = static_cast<float>(Y[at]);
    }
    const uint4* __restrict__ PX = reinterpret_cast<const uint4*>(X + head);
    const uint4* __restrict__ PY = reinterpret_cast<const uint4*>(Y + head);
    float own[4] = {0, 0, 0, 0};
    for (uint32_t i = tid; i < packets; i += 4 * stride) {
        uint4 x[4], y[4];
        if (i + 3 * stride < packets) {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                x[k] = __ldcs(PX + i + k * stride);
                y[k] = __ldcs(PY + i + k * stride);
            }
        } else {
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                x[k] = make_uint4(0, 0, 0, 0);
                y[k] = make_uint4(0, 0, 0, 0);
                if (i + k * stride < packets) {
                    x[k] = __ldcs(PX + i + k * stride);
                    y[k] = __ldcs(PY + i + k * stride);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            own[0] = add(own[0], x[k].x, y[k].x);
            own[1] = add(own[1], x[k].y, y[k].y);
            own[2] = add(own[2], x[k].z, y[k].z);
            own[3] = add(own[3], x[k].w, y[k].w);
        }
    }
    float rest = fma_rest(0.0f, edge_x, edge_y);
#pragma unroll 4
    for (uint32_t e = tid + stride; e < edges; e += stride) {
        const uint32_t at = e < head ? e : e + inner;
        rest = fma_rest(rest, static_cast<float>(X[at]), static_cast<float>(Y[at]));
    }
    return ((own[0] + own[1]) + (own[2] + own[3])) + rest;
}

// One cluster of up to 16 blocks does everything: each block's sum goes to the first block's shared memory.
__global__ void __launch_bounds__(kThreads, 2) one_cluster(const scalar_t* X, const scalar_t* Y, uint32_t head, uint32_t packets, uint32_t edges,
                                                           float* out) {
    __shared__ float scratch[32];
    __shared__ float parts[16];
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");   // has every block started?
    const uint32_t tid = blockIdx.x * kThreads + threadIdx.x;
    float v = sum_of_thread(X, Y, head, packets, edges, tid, gridDim.x * kThreads);
    v = block_sum(v, scratch);
    asm volatile("barrier.cluster.wait;" ::: "memory");
    if (threadIdx.x == 0) {
        uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(parts + blockIdx.x));
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(0));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(v) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        v = threadIdx.x < gridDim.x ? parts[threadIdx.x] : 0.0f;
        v = warp_sum(v);
        if (threadIdx.x == 0) out[0] = v;
    }
}

__global__ void __launch_bounds__(kThreads, 2) sums_of_blocks(const scalar_t* X, const scalar_t* Y, uint32_t head, uint32_t packets, uint32_t edges,
                                                              float* __restrict__ sums) {
    __shared__ float scratch[32];
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const uint32_t tid = blockIdx.x * kThreads + threadIdx.x;
    float v = sum_of_thread(X, Y, head, packets, edges, tid, gridDim.x * kThreads);
    v = block_sum(v, scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = v;
}

// Starts early (programmatic dependent launch) and waits here until the sums are written.
__global__ void __launch_bounds__(kFinishThreads) finish(const float* sums, int count, float* out) {
    __shared__ float scratch[32];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    float v = 0;
    for (int i = threadIdx.x; i < count; i += kFinishThreads) v += __ldcg(sums + i);
    v = block_sum(v, scratch);
    if (threadIdx.x == 0) out[0] = v;
}

}  // namespace

extern "C" size_t dot_product_workspace(int64_t N) {
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int64_t count = N;
    // Elements before the first 16-byte boundary; where the arrays do not share it, all of them go one by one.
    const uintptr_t ax = reinterpret_cast<uintptr_t>(X);
    const uintptr_t ay = reinterpret_cast<uintptr_t>(Y);
    int64_t head = ((ax ^ ay) & 15) == 0 ? static_cast<int64_t>(((16 - (ax & 15)) & 15) / sizeof(scalar_t)) : count;
    if (head > count) head = count;
    const int64_t packets = (count - head) / kPacket;
    const uint32_t h = static_cast<uint32_t>(head);
    const uint32_t n = static_cast<uint32_t>(packets);
    const uint32_t edges = static_cast<uint32_t>(count - packets * kPacket);

    const int64_t work = packets > edges ? packets : edges;

    if (count * static_cast<int64_t>(sizeof(scalar_t)) * 2 <= kClusterBytes) {
        const unsigned blocks = work <= kThreads ? 1 : work <= 8 * kThreads ? 8 : 16;
        if (blocks > 8) {
            cudaError_t error = cudaFuncSetAttribute(one_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
            if (error != cudaSuccess) return error;
        }
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3(blocks);
        config.blockDim = dim3(kThreads);
        config.stream = stream;
        cudaLaunchAttribute attribute[1];
        attribute[0].id = cudaLaunchAttributeClusterDimension;
        attribute[0].val.clusterDim.x = blocks;
        attribute[0].val.clusterDim.y = 1;
        attribute[0].val.clusterDim.z = 1;
        config.attrs = attribute;
        config.numAttrs = 1;
        cudaError_t error = cudaLaunchKernelEx(&config, one_cluster, X, Y, h, n, edges, out);
        return error != cudaSuccess ? error : cudaGetLastError();
    }

    float* sums = static_cast<float*>(workspace);
    int64_t blocks = (work + kThreads - 1) / kThreads;
    if (blocks > kMaxBlocks) blocks = kMaxBlocks;
    sums_of_blocks<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(X, Y, h, n, edges, sums);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(kFinishThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    cudaError_t error = cudaLaunchKernelEx(&config, finish, static_cast<const float*>(sums), static_cast<int>(blocks), out);
    return error != cudaSuccess ? error : cudaGetLastError();
}
