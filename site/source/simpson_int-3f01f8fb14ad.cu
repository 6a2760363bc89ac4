// Simpson integral, fp32: a weighted sum, 4 bytes a sample. Weights alternate 4, 2 inside, so aligned 16-byte packets are added up
// by lane parity and weighted once at the end; at most 8 samples outside the packets (both ends among them) are weighted singly.
// Up to 2^19 samples: one launch of one block or one cluster (sums meet in distributed shared memory; nothing to initialise).
// Above: blocks write sums, one warp adds them, its launch overlapped (programmatic dependent launch).
// Expected bound: 178 us at N = 2^27 (memory); launch and about two memory latencies for the small cases.
#include <cooperative_groups.h>

namespace {

namespace cg = cooperative_groups;

constexpr int kMaxBlocks = 132 * 4;     // of the large path
constexpr int kBlockThreads = 512;      // of the large path
constexpr int kClusterThreads = 1024;
constexpr int kMaxCluster = 16;
constexpr int kUnroll = 4;

// How the samples 0 ... last are divided: [0, head) singly, packets from `start` on, then `tail` singly.
struct Plan {
    const float* y;
    int64_t last;
    uint32_t start;     // 1 to 4; y + start is aligned to 16 bytes
    uint32_t head;      // min(start, last + 1)
    uint32_t packets;
    uint32_t tail;      // 0 to 4
};

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// The share of thread number `thread` of `threads` in the weighted sum.
__device__ __forceinline__ float own_sum(const Plan& plan, uint32_t thread, uint32_t threads) {
    float single = 0;
    if (thread < plan.head + plan.tail) {
        const int64_t i = thread < plan.head
                              ? static_cast<int64_t>(thread)
                              : plan.start + 4 * static_cast<int64_t>(plan.packets) + (thread - plan.head);
        const float weight = i == 0 || i == plan.last ? 1.0f : (i & 1) ? 4.0f : 2.0f;
        single = weight * __ldg(plan.y + i);
    }
    const float4* packets = reinterpret_cast<const float4*>(plan.y + plan.start);
    float even[2] = {}, odd[2] = {};
    uint32_t p = thread;
    for (; p + (kUnroll - 1) * threads < plan.packets; p += kUnroll * threads) {
        float4 v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) v[u] = __ldcs(packets + p + u * threads);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            even[u % 2] += v[u].x + v[u].z;
            odd[u % 2] += v[u].y + v[u].w;
        }
    }
    if (p < plan.packets) {
        float4 v[kUnroll - 1];
#pragma unroll
        for (int u = 0; u < kUnroll - 1; ++u) {
            v[u] = make_float4(0, 0, 0, 0);
            if (p + u * threads < plan.packets) v[u] = __ldcs(packets + p + u * threads);
        }
#pragma unroll
        for (int u = 0; u < kUnroll - 1; ++u) {
            even[u % 2] += v[u].x + v[u].z;
            odd[u % 2] += v[u].y + v[u].w;
        }
    }
    const float evens = even[0] + even[1];
    const float odds = odd[0] + odd[1];
    // Lanes 0 and 2 are samples of the parity of `start`.
    const float first_weight = (plan.start & 1) ? 4.0f : 2.0f;
    return single + first_weight * evens + (6.0f - first_weight) * odds;
}

__global__ void zero_kernel(float* out) {
    out[0] = 0;
}

// One cluster (or, without Cluster, one block) does everything.
template <bool Cluster>
__global__ void __launch_bounds__(kClusterThreads, 1) small_kernel(const Plan plan, float* out, float factor) {
    __shared__ __align__(16) float sums[kMaxCluster * (kClusterThreads / 32)];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    if (Cluster) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // every block runs: see below

    const float sum = warp_sum(own_sum(plan, blockIdx.x * kClusterThreads + threadIdx.x, gridDim.x * kClusterThreads));

    if (Cluster) {
        asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
        if (lane == 0) {
            float* target = cg::this_cluster().map_shared_rank(sums, 0);
            target[blockIdx.x * (kClusterThreads / 32) + warp] = sum;
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        if (blockIdx.x != 0) return;
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    } else {
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
    }
    if (warp == 0) {
        float total = sums[lane];
        if (Cluster) {
            for (uint32_t block = 1; block < gridDim.x; ++block) total += sums[block * 32 + lane];
        }
        total = warp_sum(total);
        if (lane == 0) out[0] = total * factor;
    }
}

__global__ void __launch_bounds__(kBlockThreads, 4) block_sums(const Plan plan, float* sums) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // the last warp may be launched now; it waits for our end
    __shared__ float partial[kBlockThreads / 32];
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    const float sum = warp_sum(own_sum(plan, blockIdx.x * kBlockThreads + threadIdx.x, gridDim.x * kBlockThreads));
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        const float total = warp_sum(lane < kBlockThreads / 32 ? partial[lane] : 0.0f);
        if (lane == 0) sums[blockIdx.x] = total;
    }
}

__global__ void __launch_bounds__(32) last_sum(const float* sums, int count, float* out, float factor) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    constexpr int kEach = (kMaxBlocks + 31) / 32;
    float v[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
        const int i = k * 32 + static_cast<int>(threadIdx.x);
        v[k] = 0;
        if (i < count) v[k] = __ldcg(sums + i);
    }
    float total = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) total += v[k];
    total = warp_sum(total);
    if (threadIdx.x == 0) out[0] = total * factor;
}

}  // namespace

extern "C" size_t simpson_int_workspace(float a, float b, int64_t N) {
    (void)a;
    (void)b;
    (void)N;
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t simpson_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    if (N < 3) {
        zero_kernel<<<1, 1, 0, stream>>>(out);
        return cudaGetLastError();
    }
    const float factor =
        static_cast<float>((static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(N - 1) / 3.0);
    Plan plan;
    plan.y = y;
    plan.last = (N - 1) / 2 * 2;
    plan.start = 4 - static_cast<uint32_t>((reinterpret_cast<uintptr_t>(y) & 15) / 4);
    plan.head = plan.last + 1 < plan.start ? static_cast<uint32_t>(plan.last + 1) : plan.start;
    plan.packets = plan.last > plan.start ? static_cast<uint32_t>((plan.last - plan.start) / 4) : 0;
    const int64_t behind = plan.last + 1 - (plan.start + 4 * static_cast<int64_t>(plan.packets));
    plan.tail = behind > 0 ? static_cast<uint32_t>(behind) : 0;

    if (N <= 16384) {
        small_kernel<false><<<1, kClusterThreads, 0, stream>>>(plan, out, factor);
        return cudaGetLastError();
    }
    if (N <= 524288) {
        const bool wide = N > 131072;
        cudaError_t error = cudaSuccess;
        if (wide) {
            error = cudaFuncSetAttribute(small_kernel<true>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        }
        if (error == cudaSuccess) {
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(wide ? 16 : 8);
            config.blockDim = dim3(kClusterThreads);
            config.stream = stream;
            cudaLaunchAttribute attribute = {};
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim.x = wide ? 16 : 8;
            attribute.val.clusterDim.y = 1;
            attribute.val.clusterDim.z = 1;
            config.attrs = &attribute;
            config.numAttrs = 1;
            error = cudaLaunchKernelEx(&config, small_kernel<true>, static_cast<const Plan>(plan), static_cast<float*>(out),
                                       factor);
            if (error == cudaSuccess) return cudaGetLastError();
        }
        cudaGetLastError();  // no such cluster here: take the other path
    }

    float* sums = static_cast<float*>(workspace);
    const int64_t per_block = static_cast<int64_t>(kBlockThreads) * kUnroll;
    int64_t blocks = (static_cast<int64_t>(plan.packets) + per_block - 1) / per_block;
    if (blocks > kMaxBlocks) blocks = kMaxBlocks;
    if (blocks < 1) blocks = 1;
    block_sums<<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream>>>(plan, sums);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;

    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, last_sum, static_cast<const float*>(sums), static_cast<int>(blocks),
                               static_cast<float*>(out), factor);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
