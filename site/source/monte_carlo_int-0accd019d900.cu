// Monte Carlo integral: a sum, scaled.
// Up to 32 KiB in one block, up to 1 MiB in one cluster of 8 or 16 blocks that add up through distributed shared memory: one launch,
// no workspace. Above that a one-thread kernel clears the output while the main kernel (programmatic dependent launch) already
// reads 16-byte packets, 128 bytes in flight for each of 1024 threads of a multiprocessor; its blocks end in one atomic addition.
// Expected: about 5 to 6 us for the launch-bound cases, the read rate (about 172 us) for the large one.

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kSms = 132;
constexpr int kBigThreads = 512;
constexpr int kBigBlocks = 2 * kSms;
constexpr int64_t kOneBlockBytes = 32 << 10;
constexpr int64_t kEightBlocksBytes = 256 << 10;
constexpr int64_t kClusterBytes = 1 << 20;

// A packet, or zeros where there is none.
__device__ __forceinline__ uint4 load_packet(const uint4* from, bool there) {
    uint4 r = make_uint4(0, 0, 0, 0);
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        "setp.ne.b32 there, %5, 0;\n"
        "@there ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(r.x), "+r"(r.y), "+r"(r.z), "+r"(r.w)
        : "l"(from), "r"(static_cast<int>(there)));
    return r;
}

__device__ __forceinline__ float term(float x, float) {
    return x;
}

__device__ __forceinline__ float packet_term(uint4 x) {
    return (__uint_as_float(x.x) + __uint_as_float(x.y)) + (__uint_as_float(x.z) + __uint_as_float(x.w));
}

// The sum of this thread's terms. Elements outside [head, head + packets·kPacket) are taken one by one; without packets that is
// all of them.
template <int U, typename I>
__device__ __forceinline__ float own_sum(const scalar_t* __restrict__ X, I head, I packets, I N, I thread, I threads) {
    const I rest = N - packets * kPacket;
    float edge_x = 0, edge_y = 0;  // asked for now, used at the end
    if (thread < rest) {
        const I i = thread < head ? thread : thread + packets * kPacket;
        edge_x = static_cast<float>(X[i]);
    }
    const uint4* px = reinterpret_cast<const uint4*>(X + head);
    float sum = 0;
    for (I p = thread; p < packets; p += threads * U) {
        uint4 x[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const I q = p + u * threads;
            x[u] = load_packet(px + q, q < packets);
        }
        float part[U];
#pragma unroll
        for (int u = 0; u < U; ++u) part[u] = packet_term(x[u]);
#pragma unroll
        for (int half = U / 2; half > 0; half /= 2) {
#pragma unroll
            for (int u = 0; u < half; ++u) part[u] += part[u + half];
        }
        sum += part[0];
    }
    if (thread < rest) {
        sum += term(edge_x, edge_y);
        for (I i = thread + threads; i < rest; i += 8 * threads) {
            float part = 0;
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                const I j = i + k * threads;
                if (j < rest) {
                    const I e = j < head ? j : j + packets * kPacket;
                    part += term(static_cast<float>(X[e]), 0.0f);
                }
            }
            sum += part;
        }
    }
    return sum;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// The sum over the block, in every thread of warp 0.
__device__ __forceinline__ float block_sum(float x, float* scratch) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    if (threadIdx.x < 32) {
        x = threadIdx.x < blockDim.x / 32 ? scratch[threadIdx.x] : 0.0f;
        x = warp_sum(x);
    }
    return x;
}

// All of it in one block, or in one cluster of blocks that meet in the shared memory of the first.
template <bool kCluster>
__global__ void __launch_bounds__(1024, 1) sum_small(const scalar_t* __restrict__ X, float* out, float scale, int head, int packets, int N) {
    __shared__ float scratch[32];
    __shared__ float meeting[16];
    if (kCluster) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int threads = gridDim.x * blockDim.x;
    float sum = own_sum<4, int>(X, head, packets, N, thread, threads);
    sum = block_sum(sum, scratch);
    if (!kCluster) {
        if (threadIdx.x == 0) out[0] = scale * sum;
        return;
    }
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");  // the first block is there
    if (threadIdx.x == 0) {
        const uint32_t mine = static_cast<uint32_t>(__cvta_generic_to_shared(meeting + blockIdx.x));
        uint32_t there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(mine));
        asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(there), "f"(sum) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        float all = threadIdx.x < gridDim.x ? meeting[threadIdx.x] : 0.0f;
        all = warp_sum(all);
        if (threadIdx.x == 0) out[0] = scale * all;
    }
}

__global__ void clear(float* out) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    out[0] = 0;
}

__global__ void __launch_bounds__(kBigThreads, 2) sum_big(const scalar_t* __restrict__ X, float* out, float scale, int64_t head, int64_t packets, int64_t N) {
    __shared__ float scratch[32];
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kBigThreads + threadIdx.x;
    const int64_t threads = static_cast<int64_t>(gridDim.x) * kBigThreads;
    float sum = own_sum<8, int64_t>(X, head, packets, N, thread, threads);
    sum = block_sum(sum, scratch);
    asm volatile("griddepcontrol.wait;" ::: "memory");  // out is 0 by now
    if (threadIdx.x == 0) atomicAdd(out, scale * sum);
}

cudaError_t launch_sum(const scalar_t* __restrict__ X, float* out, float scale, int64_t N, cudaStream_t stream) {
    // Packets where all addresses allow them, after a few elements if need be.
    int64_t head = static_cast<int64_t>((16 - reinterpret_cast<uintptr_t>(X) % 16) % 16 / sizeof(scalar_t));
    int64_t packets = 0;
    if (head <= N) {
        packets = (N - head) / kPacket;
    }
    if (packets == 0) head = 0;
    const int64_t bytes = 1 * N * static_cast<int64_t>(sizeof(scalar_t));

    if (bytes <= kClusterBytes) {
        const int blocks = bytes <= kOneBlockBytes ? 1 : bytes <= kEightBlocksBytes ? 8 : 16;
        const int64_t items = packets > 0 ? packets : N;
        int64_t threads = ((items + blocks - 1) / blocks + 31) / 32 * 32;
        if (threads > 1024) threads = 1024;
        if (threads < 32) threads = 32;
        if (blocks == 1) {
            sum_small<false><<<1, static_cast<unsigned>(threads), 0, stream>>>(X, out, scale, static_cast<int>(head),
                                                                               static_cast<int>(packets), static_cast<int>(N));
            return cudaGetLastError();
        }
        bool allowed = true;
        if (blocks > 8) {
            allowed = cudaFuncSetAttribute(sum_small<true>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
        }
        if (allowed) {
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(blocks);
            config.blockDim = dim3(static_cast<unsigned>(threads));
            config.stream = stream;
            cudaLaunchAttribute attribute[1];
            attribute[0].id = cudaLaunchAttributeClusterDimension;
            attribute[0].val.clusterDim.x = blocks;
            attribute[0].val.clusterDim.y = 1;
            attribute[0].val.clusterDim.z = 1;
            config.attrs = attribute;
            config.numAttrs = 1;
            if (cudaLaunchKernelEx(&config, sum_small<true>, X, out, scale, static_cast<int>(head),
                                   static_cast<int>(packets), static_cast<int>(N)) == cudaSuccess) {
                return cudaGetLastError();
            }
        }
        cudaGetLastError();  // no such cluster here: the way of the large sizes is right for all
    }

    clear<<<1, 1, 0, stream>>>(out);
    const int64_t items = packets > 0 ? packets : N;
    int64_t blocks = (items + kBigThreads - 1) / kBigThreads;
    if (blocks > kBigBlocks) blocks = kBigBlocks;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(kBigThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, sum_big, X, out, scale, head, packets, N);
    return error != cudaSuccess ? error : cudaGetLastError();
}

}  // namespace

extern "C" size_t monte_carlo_int_workspace(float a, float b, int64_t N) {
    return 0;
}

extern "C" cudaError_t monte_carlo_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return launch_sum(y, out, static_cast<float>((static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(N)), N, stream);
}
