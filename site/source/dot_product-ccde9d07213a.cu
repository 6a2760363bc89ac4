// Dot product in one pass at the speed of memory. 16-byte packets, eight loads in flight for each thread, fp32 FMAs into four sums.
// Up to 1 MiB one thread block cluster does all of it in a single launch: warps put their sums into the first block's shared
// memory. Beyond that, 264 blocks write one sum each, and a one-warp kernel that was launched early (programmatic dependent
// launch) adds them. Expected: near the launch bound for small N, about 3 TB/s (178 us) at N=134217728.

namespace {

constexpr int kThreads = 512;          // threads of a block of the wide kernel and of the cluster kernel
constexpr int kSoloThreads = 1024;     // threads of the only block for tiny inputs
constexpr int kMaxBlocks = 264;        // two for each multiprocessor
constexpr int kLanes = 16 / sizeof(scalar_t);
constexpr int kUnroll = 4;

// The two bf16 of a word.
__device__ __forceinline__ float low(uint32_t w) { return __uint_as_float(w << 16); }
__device__ __forceinline__ float high(uint32_t w) { return __uint_as_float(w & 0xffff0000u); }

__device__ __forceinline__ void add_term(float x, float y, float& sum) { sum = fmaf(x, y, sum); }

__device__ __forceinline__ void add_packet(const uint4& a, const uint4& b, float (&sums)[4]) {
    add_term(low(a.x), low(b.x), sums[0]);
    add_term(high(a.x), high(b.x), sums[1]);
    add_term(low(a.y), low(b.y), sums[2]);
    add_term(high(a.y), high(b.y), sums[3]);
    add_term(low(a.z), low(b.z), sums[0]);
    add_term(high(a.z), high(b.z), sums[1]);
    add_term(low(a.w), low(b.w), sums[2]);
    add_term(high(a.w), high(b.w), sums[3]);
}

__device__ __forceinline__ float finish(float total) { return total; }

__device__ __forceinline__ uint4 load_once(const uint4* at) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// `head` elements come before the first 16-byte address, then `packets` packets; `rest` = all elements outside of packets.
__device__ __forceinline__ float own_sum(const scalar_t* __restrict__ X, const scalar_t* __restrict__ Y, uint32_t head,
                                         uint32_t packets, uint32_t rest, uint32_t first, uint32_t step) {
    // The few elements outside of packets: loads are issued first and used last.
    float rest_x = 0, rest_y = 0;
    const uint32_t jump = packets * kLanes;
    if (first < rest) {
        const uint32_t at = first < head ? first : first + jump;
        rest_x = static_cast<float>(X[at]);
        rest_y = static_cast<float>(Y[at]);
    }

    float sums[4] = {0, 0, 0, 0};
    const uint4* x = reinterpret_cast<const uint4*>(X + head);
    const uint4* y = reinterpret_cast<const uint4*>(Y + head);
    uint32_t i = first;
    for (; i + (kUnroll - 1) * step < packets; i += kUnroll * step) {
        uint4 a[kUnroll], b[kUnroll];
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) {
            a[k] = load_once(x + (i + k * step));
            b[k] = load_once(y + (i + k * step));
        }
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) add_packet(a[k], b[k], sums);
    }
    if (i < packets) {
        uint4 a[kUnroll - 1], b[kUnroll - 1];
#pragma unroll
        for (int k = 0; k < kUnroll - 1; ++k) {
            a[k] = b[k] = make_uint4(0, 0, 0, 0);
            if (i + k * step < packets) {
                a[k] = load_once(x + (i + k * step));
                b[k] = load_once(y + (i + k * step));
            }
        }
#pragma unroll
        for (int k = 0; k < kUnroll - 1; ++k) {
            if (i + k * step < packets) add_packet(a[k], b[k], sums);
        }
    }

    add_term(rest_x, rest_y, sums[0]);
    for (uint32_t r = first + step; r < rest; r += step) {  // only long where the addresses allow no packets
        const uint32_t at = r < head ? r : r + jump;
        add_term(static_cast<float>(X[at]), static_cast<float>(Y[at]), sums[r & 1]);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// One cluster (or one block): every warp puts its sum into the first block's shared memory.
__global__ void __launch_bounds__(kSoloThreads, 1)
cluster_kernel(const scalar_t* X, const scalar_t* Y, float* out, uint32_t head, uint32_t packets, uint32_t rest) {
    __shared__ float partial[512];
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");  // waited for below: by then every block has started
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
    const float sum = warp_sum(own_sum(X, Y, head, packets, rest, first, gridDim.x * blockDim.x));
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    asm volatile("barrier.cluster.wait;" ::: "memory");
    if (lane == 0) {
        const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(&partial[blockIdx.x * warps + warp]));
        uint32_t there;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(0));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(sum) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (blockIdx.x == 0 && warp == 0) {
        float total = 0;
        for (uint32_t i = lane; i < gridDim.x * warps; i += 32) total += partial[i];
        total = warp_sum(total);
        if (lane == 0) out[0] = finish(total);
    }
}

__global__ void __launch_bounds__(kThreads, 2)
wide_kernel(const scalar_t* X, const scalar_t* Y, float* block_sums, uint32_t head, uint32_t packets, uint32_t rest) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float partial[kThreads / 32];
    const uint32_t first = blockIdx.x * kThreads + threadIdx.x;
    float sum = warp_sum(own_sum(X, Y, head, packets, rest, first, gridDim.x * kThreads));
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < kThreads / 32 ? partial[lane] : 0.0f);
        if (lane == 0) block_sums[blockIdx.x] = sum;
    }
}

// One warp, launched early; it waits until the wide kernel's sums are there.
__global__ void __launch_bounds__(32)
last_kernel(const float* block_sums, float* out, uint32_t blocks) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    float values[(kMaxBlocks + 31) / 32];
#pragma unroll
    for (int k = 0; k < (kMaxBlocks + 31) / 32; ++k) {
        const uint32_t at = threadIdx.x + 32 * k;
        values[k] = at < blocks ? __ldcg(block_sums + at) : 0.0f;
    }
    float total = 0;
#pragma unroll
    for (int k = 0; k < (kMaxBlocks + 31) / 32; ++k) total += values[k];
    total = warp_sum(total);
    if (threadIdx.x == 0) out[0] = finish(total);
}

}  // namespace

extern "C" size_t dot_product_workspace(int64_t N) {
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    // Packets need 16-byte addresses; a few leading elements may be skipped to get there.
    const uint32_t count = static_cast<uint32_t>(N);
    uint32_t head = 0, packets = 0;
    if (((reinterpret_cast<uintptr_t>(X) ^ reinterpret_cast<uintptr_t>(Y)) & 15) == 0) {
        head = static_cast<uint32_t>((16 - (reinterpret_cast<uintptr_t>(X) & 15)) & 15) / sizeof(scalar_t);
        if (head > count) head = count;
        packets = (count - head) / kLanes;
        if (packets == 0) head = 0;
    }
    const uint32_t rest = count - packets * kLanes;

    const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(scalar_t) * 2;
    if (bytes <= 32 << 10) {
        cluster_kernel<<<1, kSoloThreads, 0, stream>>>(X, Y, out, head, packets, rest);
        return cudaGetLastError();
    }
    if (bytes <= 1 << 20) {
        const unsigned blocks = bytes <= 256 << 10 ? 8 : 16;
        bool ready = true;
        if (blocks > 8) {
            ready = cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess;
        }
        if (ready) {
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
            if (cudaLaunchKernelEx(&config, cluster_kernel, X, Y, out, head, packets, rest) == cudaSuccess) {
                return cudaGetLastError();
            }
        }
        cudaGetLastError();  // no such cluster here: the two kernels below do it as well
    }

    float* block_sums = static_cast<float*>(workspace);
    const uint32_t work = packets > 0 ? packets : rest;
    uint32_t blocks = (work + kThreads - 1) / kThreads;
    if (blocks > kMaxBlocks) blocks = kMaxBlocks;
    wide_kernel<<<blocks, kThreads, 0, stream>>>(X, Y, block_sums, head, packets, rest);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, last_kernel, static_cast<const float*>(block_sums), out, blocks);
    return error != cudaSuccess ? error : cudaGetLastError();
}
