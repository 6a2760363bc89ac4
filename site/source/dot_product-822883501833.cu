// Dot product.
// N <= 8192: one block. N <= 131072: one cluster of 16 blocks, reduced through distributed shared memory (one launch, no workspace).
// Larger: kernel A writes out = 0 and lets the main kernel start at once (programmatic dependent launch); the main kernel streams X and Y
// with 16-byte loads, 8 in flight per thread, waits for A (long finished) and adds one float per block to out.
// Expected bound: launch and one memory latency for small N (about 5 us); read bandwidth, about 4.4 TB/s, for large N.

#include <cuda_runtime.h>
#include <cstdint>
#include <cstddef>

namespace {

constexpr int kThreads = 512;         // main kernel
constexpr int kUnroll = 4;
constexpr int kMaxBlocks = 264;       // two per multiprocessor
constexpr int kClusterThreads = 1024;
constexpr int kClusterBlocks = 16;

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}

// The sum of products that thread `thread` of block `block` out of `blocks` blocks of THREADS threads is to find.
template <int THREADS, int UNROLL>
__device__ __forceinline__ float own_products(const float* __restrict__ X, const float* __restrict__ Y, int64_t N, int block, int blocks,
                                              int thread) {
    const uintptr_t addressX = reinterpret_cast<uintptr_t>(X);
    const uintptr_t addressY = reinterpret_cast<uintptr_t>(Y);
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    if (((addressX ^ addressY) & 15) == 0) {
        int64_t head = static_cast<int64_t>(((16 - (addressX & 15)) & 15) / 4);
        if (head > N) head = N;
        const int64_t packets = (N - head) / 4;
        const int64_t tail_start = head + packets * 4;
        float extraX = 0, extraY = 0;
        if (block == blocks - 1) {  // at most 3 elements before and 3 after the packets
            int64_t at = -1;
            if (thread < head) {
                at = thread;
            } else if (thread >= 4 && tail_start + (thread - 4) < N) {
                at = tail_start + (thread - 4);
            }
            if (at >= 0) {
                extraX = X[at];
                extraY = Y[at];
            }
        }
        const float4* x = reinterpret_cast<const float4*>(X + head);
        const float4* y = reinterpret_cast<const float4*>(Y + head);
        const int64_t per_round = static_cast<int64_t>(blocks) * (THREADS * UNROLL);
        const int64_t rounds = packets / per_round;
        int64_t i = static_cast<int64_t>(block) * (THREADS * UNROLL) + thread;
        for (int64_t round = 0; round < rounds; ++round, i += per_round) {
            float4 a[UNROLL], b[UNROLL];
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                a[k] = __ldcs(x + i + k * THREADS);
                b[k] = __ldcs(y + i + k * THREADS);
            }
#pragma unroll
            for (int k = 0; k < UNROLL; ++k) {
                s0 = fmaf(a[k].x, b[k].x, s0);
                s1 = fmaf(a[k].y, b[k].y, s1);
                s2 = fmaf(a[k].z, b[k].z, s2);
                s3 = fmaf(a[k].w, b[k].w, s3);
            }
        }
        // Less than one round is left: at most UNROLL packets a thread, spread over all blocks.
        const int64_t rest = rounds * per_round + static_cast<int64_t>(block) * THREADS + thread;
        const int64_t step = static_cast<int64_t>(blocks) * THREADS;
        float4 a[UNROLL], b[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const int64_t j = rest + k * step;
            a[k] = make_float4(0, 0, 0, 0);
            b[k] = make_float4(0, 0, 0, 0);
            if (j < packets) {
                a[k] = __ldcs(x + j);
                b[k] = __ldcs(y + j);
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            s0 = fmaf(a[k].x, b[k].x, s0);
            s1 = fmaf(a[k].y, b[k].y, s1);
            s2 = fmaf(a[k].z, b[k].z, s2);
            s3 = fmaf(a[k].w, b[k].w, s3);
        }
        s0 = fmaf(extraX, extraY, s0);
    } else {
        constexpr int kScalars = 8;
        const int64_t step = static_cast<int64_t>(blocks) * THREADS;
        int64_t i = static_cast<int64_t>(block) * THREADS + thread;
        for (; i + (kScalars - 1) * step < N; i += kScalars * step) {
            float a[kScalars], b[kScalars];
#pragma unroll
            for (int k = 0; k < kScalars; ++k) {
                a[k] = __ldg(X + i + k * step);
                b[k] = __ldg(Y + i + k * step);
            }
#pragma unroll
            for (int k = 0; k < kScalars; k += 4) {
                s0 = fmaf(a[k], b[k], s0);
                s1 = fmaf(a[k + 1], b[k + 1], s1);
                s2 = fmaf(a[k + 2], b[k + 2], s2);
                s3 = fmaf(a[k + 3], b[k + 3], s3);
            }
        }
        for (; i < N; i += step) s0 = fmaf(__ldg(X + i), __ldg(Y + i), s0);
    }
    return (s0 + s1) + (s2 + s3);
}

// The block's sum, right in warp 0 (every lane). Called once per kernel.
template <int THREADS>
__device__ __forceinline__ float block_sum(float x) {
    __shared__ float scratch[32];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    x = warp_sum(x);
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    float sum = 0;
    if (warp == 0) {
        sum = lane < THREADS / 32 ? scratch[lane] : 0.0f;
        sum = warp_sum(sum);
    }
    return sum;
}

__global__ void clear_out(float* out) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    out[0] = 0.0f;
}

__global__ void __launch_bounds__(kThreads, 2)
main_kernel(const float* __restrict__ X, const float* __restrict__ Y, float* out, int64_t N) {
    const float own = own_products<kThreads, kUnroll>(X, Y, N, blockIdx.x, gridDim.x, threadIdx.x);
    const float sum = block_sum<kThreads>(own);
    if (threadIdx.x == 0) {
        asm volatile("griddepcontrol.wait;" ::: "memory");  // out is zero from here on
        atomicAdd(out, sum);
    }
}

__global__ void __launch_bounds__(kClusterThreads, 1)
one_block_kernel(const float* __restrict__ X, const float* __restrict__ Y, float* out, int64_t N) {
    const float own = own_products<kClusterThreads, 2>(X, Y, N, 0, 1, threadIdx.x);
    const float sum = block_sum<kClusterThreads>(own);
    if (threadIdx.x == 0) out[0] = sum;
}

__global__ void __launch_bounds__(kClusterThreads, 1)
cluster_kernel(const float* __restrict__ X, const float* __restrict__ Y, float* out, int64_t N) {
    __shared__ float sums[kClusterBlocks];
    // Every block must have started before another one writes to its shared memory.
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    const float own = own_products<kClusterThreads, 2>(X, Y, N, blockIdx.x, kClusterBlocks, threadIdx.x);
    const float sum = block_sum<kClusterThreads>(own);
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (threadIdx.x == 0) {
        const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(&sums[blockIdx.x]));
        uint32_t remote;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(0));
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(sum) : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        float total = threadIdx.x < kClusterBlocks ? *reinterpret_cast<volatile float*>(&sums[threadIdx.x]) : 0.0f;
        total = warp_sum(total);
        if (threadIdx.x == 0) out[0] = total;
    }
}

}  // namespace

extern "C" size_t dot_product_workspace(int64_t N) {
    (void)N;
    return 256;
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    if (N <= 8192) {
        one_block_kernel<<<1, kClusterThreads, 0, stream>>>(X, Y, out, N);
        return cudaGetLastError();
    }
    if (N <= 131072) {
        cudaError_t error = cudaFuncSetAttribute(cluster_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error == cudaSuccess) {
            cudaLaunchConfig_t config = {};
            config.gridDim = dim3(kClusterBlocks);
            config.blockDim = dim3(kClusterThreads);
            config.dynamicSmemBytes = 0;
            config.stream = stream;
            cudaLaunchAttribute attribute[1];
            attribute[0].id = cudaLaunchAttributeClusterDimension;
            attribute[0].val.clusterDim.x = kClusterBlocks;
            attribute[0].val.clusterDim.y = 1;
            attribute[0].val.clusterDim.z = 1;
            config.attrs = attribute;
            config.numAttrs = 1;
            error = cudaLaunchKernelEx(&config, cluster_kernel, X, Y, out, N);
        }
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();  // no such cluster on this device: go the other way
    }
    clear_out<<<1, 1, 0, stream>>>(out);
    const int64_t wanted = (N / 4 + kThreads - 1) / kThreads;
    const int blocks = static_cast<int>(wanted < 1 ? 1 : (wanted > kMaxBlocks ? kMaxBlocks : wanted));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, main_kernel, X, Y, out, N);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
