// RMS normalisation. Up to 8192 elements: one block, 8 elements a thread, x, weight and bias all loaded before the sum is needed.
// Up to 131072: the same over one cluster of 16 blocks, whose sums meet in distributed shared memory, so that it is one launch
// too. Above: two passes of 16-byte accesses; the second starts with what the first read last, which L2 still holds, and streams
// weight, bias and y past it. Bound: one launch (3.49 us) for small N, about 70 us for N = 2^25 (62.6 us + the rest of x again).
#include <cooperative_groups.h>

#include "msbench.cuh"

using namespace msbench;

constexpr int kCluster = 16;           // blocks
constexpr int kOneCluster = kCluster * 8192;
constexpr int kOneBlock = 8192;      // elements that one block does alone
constexpr int kSumThreads = 512;
constexpr int kMaxSums = 528;        // 4 blocks a multiprocessor
constexpr int kThreads = 256;
constexpr int kMaxBlocks = 1056;     // 8 blocks a multiprocessor

union Bits {
    uint4 words;
    Packet<scalar_t> packet;
    __device__ Bits() {}
};

__device__ inline float squares(const Packet<scalar_t>& packet) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float value = to_float(packet.lane[k]);
        sum = fmaf(value, value, sum);
    }
    return sum;
}

__device__ inline scalar_t result(scalar_t x, scalar_t weight, scalar_t bias, float inverse) {
    return from_float<scalar_t>(fmaf(to_float(weight), to_float(x) * inverse, to_float(bias)));
}

// This thread's share of the sum of squares, thread `index` of `count`.
template <bool kVector>
__device__ inline float own_squares(const scalar_t* x, int64_t N, int64_t index, int64_t count) {
    float own = 0;
    int64_t done = 0;
    if (kVector) {
        const int64_t packets = N / 8;
        done = packets * 8;
        int64_t i = index;
        for (; i + 3 * count < packets; i += 4 * count) {
            Packet<scalar_t> some[4];
#pragma unroll
            for (int k = 0; k < 4; ++k) some[k] = load_packet(x, i + k * count);
#pragma unroll
            for (int k = 0; k < 4; ++k) own += squares(some[k]);
        }
        for (; i < packets; i += count) own += squares(load_packet(x, i));
    }
    for (int64_t i = done + index; i < N; i += count) {
        float value = to_float(x[i]);
        own = fmaf(value, value, own);
    }
    return own;
}

template <bool kVector>
__device__ inline void write(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float inverse,
                             int64_t N, int64_t index, int64_t count) {
    int64_t done = 0;
    if (kVector) {
        const int64_t packets = N / 8;
        done = packets * 8;
        // Backwards: what the first pass read last is still in L2. Weight, bias and y are used once and leave first.
        for (int64_t i = packets - 1 - index; i >= 0; i -= count) {
            Bits a, w, b, out;
            w.words = __ldcs(reinterpret_cast<const uint4*>(weight) + i);
            b.words = __ldcs(reinterpret_cast<const uint4*>(bias) + i);
            a.words = __ldcs(reinterpret_cast<const uint4*>(x) + i);
#pragma unroll
            for (int k = 0; k < 8; ++k) {
                out.packet.lane[k] = result(a.packet.lane[k], w.packet.lane[k], b.packet.lane[k], inverse);
            }
            __stcs(reinterpret_cast<uint4*>(y) + i, out.words);
        }
    }
    for (int64_t i = done + index; i < N; i += count) y[i] = result(x[i], weight[i], bias[i], inverse);
}

// 8 elements a thread, in registers. Vector: 8 that follow one another, in one access where all 8 exist. Else: 8 that are
// blockDim.x apart, one by one. `start` is the block's first element; elements past N are zero, which adds nothing.
template <bool kVector>
__device__ inline int64_t element(int64_t start, int k) {
    return kVector ? start + threadIdx.x * 8 + k : start + k * static_cast<int64_t>(blockDim.x) + threadIdx.x;
}

template <bool kVector>
__device__ inline Packet<scalar_t> load_eight(const scalar_t* array, int64_t start, int64_t N) {
    Packet<scalar_t> packet;
    if (kVector && element<kVector>(start, 7) < N) {
        packet = load_packet(array, element<kVector>(start, 0) / 8);
    } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int64_t i = element<kVector>(start, k);
            packet.lane[k] = i < N ? array[i] : from_float<scalar_t>(0.0f);
        }
    }
    return packet;
}

template <bool kVector>
__device__ inline void store_eight(scalar_t* array, int64_t start, int64_t N, const Packet<scalar_t>& packet) {
    if (kVector && element<kVector>(start, 7) < N) {
        store_packet(array, element<kVector>(start, 0) / 8, packet);
    } else {
#pragma unroll
        for (int k = 0; k < 8; ++k) {
            const int64_t i = element<kVector>(start, k);
            if (i < N) array[i] = packet.lane[k];
        }
    }
}

__device__ inline Packet<scalar_t> results(const Packet<scalar_t>& x, const Packet<scalar_t>& weight,
                                           const Packet<scalar_t>& bias, float inverse) {
    Packet<scalar_t> out;
#pragma unroll
    for (int k = 0; k < 8; ++k) out.lane[k] = result(x.lane[k], weight.lane[k], bias.lane[k], inverse);
    return out;
}

// One block, 8 elements a thread; all three loads are issued before the sum is needed. One barrier, none for a single warp.
template <bool kVector>
__global__ void __launch_bounds__(1024) one_block(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                                  scalar_t* y, float epsilon, int64_t N) {
    __shared__ float scratch[32];
    const Packet<scalar_t> a = load_eight<kVector>(x, 0, N);
    const Packet<scalar_t> w = load_eight<kVector>(weight, 0, N);
    const Packet<scalar_t> b = load_eight<kVector>(bias, 0, N);
    float sum = warp_reduce(squares(a), Sum());
    const int warps = blockDim.x / 32;
    if (warps > 1) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) scratch[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = warp_reduce(lane < warps ? scratch[lane] : 0.0f, Sum());
    }
    store_eight<kVector>(y, 0, N, results(a, w, b, rsqrtf(sum / N + epsilon)));
}

// The same over a cluster of 16 blocks: each block's sum goes into the shared memory of all of them.
template <bool kVector>
__global__ void __launch_bounds__(1024) one_cluster(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                                    scalar_t* y, float epsilon, int64_t N) {
    __shared__ float scratch[32];
    __shared__ float sums[kCluster];
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();  // waited for before the first remote write: by then every block runs
    const int64_t start = blockIdx.x * static_cast<int64_t>(blockDim.x) * 8;
    const Packet<scalar_t> a = load_eight<kVector>(x, start, N);
    const Packet<scalar_t> w = load_eight<kVector>(weight, start, N);
    const Packet<scalar_t> b = load_eight<kVector>(bias, start, N);
    const int lane = threadIdx.x % 32;
    const int warps = blockDim.x / 32;
    float sum = warp_reduce(squares(a), Sum());
    if (lane == 0) scratch[threadIdx.x / 32] = sum;
    __syncthreads();
    cluster.barrier_wait();
    if (threadIdx.x < 32) {
        sum = warp_reduce(lane < warps ? scratch[lane] : 0.0f, Sum());
        if (lane < kCluster) *cluster.map_shared_rank(sums + blockIdx.x, lane) = sum;
    }
    cluster.sync();
    sum = warp_reduce(lane < kCluster ? sums[lane] : 0.0f, Sum());
    store_eight<kVector>(y, start, N, results(a, w, b, rsqrtf(sum / N + epsilon)));
}

template <bool kVector>
__global__ void __launch_bounds__(kSumThreads) sums_of_squares(const scalar_t* x, float* sums, int64_t N) {
    __shared__ float scratch[32];
    const int64_t index = blockIdx.x * static_cast<int64_t>(kSumThreads) + threadIdx.x;
    const int64_t count = gridDim.x * static_cast<int64_t>(kSumThreads);
    const float sum = block_reduce(own_squares<kVector>(x, N, index, count), Sum(), scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads) normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                                                      scalar_t* y, const float* sums, int partials, float epsilon,
                                                      int64_t N) {
    __shared__ float scratch[32];
    float own = 0;
    for (int i = threadIdx.x; i < partials; i += kThreads) own += sums[i];
    const float sum = block_reduce(own, Sum(), scratch);
    const int64_t index = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
    write<kVector>(x, weight, bias, y, rsqrtf(sum / N + epsilon), N, index,
                   gridDim.x * static_cast<int64_t>(kThreads));
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return kMaxSums * sizeof(float);
}

// One launch of one cluster. False if the device can't hold a cluster of that size: then nothing was launched.
template <bool kVector>
bool launch_cluster(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon,
                    int64_t N, cudaStream_t stream) {
    if (cudaFuncSetAttribute(one_cluster<kVector>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kCluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(kCluster);
    config.blockDim = dim3(static_cast<unsigned>(ceil_div(ceil_div(N, 8 * kCluster), 32) * 32));
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    if (cudaLaunchKernelEx(&config, one_cluster<kVector>, x, weight, bias, y, epsilon, N) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return true;
}

template <bool kVector>
void launch(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y, float epsilon, int64_t N,
            float* sums, cudaStream_t stream) {
    if (N <= kOneBlock) {
        const int threads = static_cast<int>(ceil_div(ceil_div(N, 8), 32) * 32);
        one_block<kVector><<<1, threads, 0, stream>>>(x, weight, bias, y, epsilon, N);
        return;
    }
    if (N <= kOneCluster && launch_cluster<kVector>(x, weight, bias, y, epsilon, N, stream)) return;
    const int64_t items = kVector ? ceil_div(N, 8) : N;
    const int64_t most = ceil_div(items, kSumThreads);
    const int partials = static_cast<int>(most < kMaxSums ? most : kMaxSums);
    sums_of_squares<kVector><<<partials, kSumThreads, 0, stream>>>(x, sums, N);
    const int64_t wanted = ceil_div(items, kThreads);
    const int blocks = static_cast<int>(wanted < kMaxBlocks ? wanted : kMaxBlocks);
    normalise<kVector><<<blocks, kThreads, 0, stream>>>(x, weight, bias, y, sums, partials, epsilon, N);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    if (packets_allowed(x, weight, bias, y)) {
        launch<true>(x, weight, bias, y, epsilon, N, sums, stream);
    } else {
        launch<false>(x, weight, bias, y, epsilon, N, sums, stream);
    }
    return cudaGetLastError();
}
