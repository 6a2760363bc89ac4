// Simpson integral in one launch where that pays: a single block up to 32 KiB of samples, one cluster of 16 blocks up to
// 1 MiB, adding up through distributed shared memory (no second kernel, no counter to initialise). Larger inputs are
// streamed in 16-byte packets of 8 bf16, and a finishing block, launched early by programmatic dependent launch, adds up
// the sums of the blocks. All samples of a packet lane have the same parity, so that lanes are added up unweighted and
// weighted once per thread; the two ends (weight 1) are never part of a packet. Bound: launch (small), 3.1 TB/s (large).

#include <cooperative_groups.h>

namespace {

namespace cg = cooperative_groups;

constexpr int kLanes = 16 / sizeof(scalar_t);      // elements of a 16-byte packet
constexpr unsigned kStreamThreads = 256;
constexpr unsigned kStreamUnroll = 4;               // packets of each array in flight per thread
constexpr unsigned kMaxBlocks = 132 * 16;
constexpr unsigned kFinishThreads = 512;
constexpr unsigned kClusterMax = 16;
constexpr unsigned kClusterThreads = 1024;
constexpr int64_t kOneBlockBytes = 32 << 10;       // up to this: one block
constexpr int64_t kOneClusterBytes = 1 << 20;      // up to this: one cluster; beyond: stream, then finish

using Vector = uint4;

__device__ __forceinline__ float low(unsigned two) { return __uint_as_float(two << 16); }
__device__ __forceinline__ float high(unsigned two) { return __uint_as_float(two & 0xffff0000u); }

__device__ __forceinline__ void add(const Vector& v, float (&sum)[4]) {
    sum[0] += low(v.x);
    sum[1] += high(v.x);
    sum[2] += low(v.y);
    sum[3] += high(v.y);
    sum[0] += low(v.z);
    sum[1] += high(v.z);
    sum[2] += low(v.w);
    sum[3] += high(v.w);
}

// What one thread adds up: packets first, first + stride, ... (from sample `head` on, none with an end of the interval),
// and its share of the `rest` samples around them, ends included.
template <unsigned kUnroll>
__device__ __forceinline__ float thread_sum(const scalar_t* __restrict__ y, unsigned last, unsigned head,
                                            unsigned packets, unsigned rest, unsigned first, unsigned stride) {
    const Vector* py = reinterpret_cast<const Vector*>(y + head);
    static_assert(kUnroll > 1, "");
    float sum[4] = {0, 0, 0, 0};
    unsigned i = first;
    for (; i + (kUnroll - 1) * stride < packets; i += kUnroll * stride) {
        Vector v[kUnroll];
#pragma unroll
        for (unsigned k = 0; k < kUnroll; ++k) v[k] = __ldcs(py + (i + k * stride));
#pragma unroll
        for (unsigned k = 0; k < kUnroll; ++k) add(v[k], sum);
    }
    if (i < packets) {                              // what is left is loaded at once, too; zeros add nothing
        Vector v[kUnroll];
#pragma unroll
        for (unsigned k = 0; k < kUnroll - 1; ++k) {
            v[k] = Vector{};
            if (i + k * stride < packets) v[k] = __ldcs(py + (i + k * stride));
        }
#pragma unroll
        for (unsigned k = 0; k < kUnroll - 1; ++k) add(v[k], sum);
    }
    const float even_lanes = sum[0] + sum[2], odd_lanes = sum[1] + sum[3];
    float own = head % 2 == 0 ? 2.0f * even_lanes + 4.0f * odd_lanes : 4.0f * even_lanes + 2.0f * odd_lanes;
    // From the last thread backwards, which has the fewest packets.
    for (unsigned j = stride - 1 - first; j < rest; j += stride) {
        const unsigned at = j < head ? j : j + packets * kLanes;
        const float weight = at == 0 || at == last ? 1.0f : at % 2 ? 4.0f : 2.0f;
        own = fmaf(weight, static_cast<float>(y[at]), own);
    }
    return own;
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// Small inputs: the grid is one block or one cluster. Every warp puts its sum into the shared memory of block 0.
__global__ void __launch_bounds__(1024, 1) together(const scalar_t* y, scalar_t* out, float factor, unsigned last, unsigned head, unsigned packets, unsigned rest) {
    __shared__ float part[kClusterMax * 32];
    const bool many = gridDim.x > 1;
    cg::cluster_group cluster = cg::this_cluster();
    if (many) cluster.barrier_arrive();            // block 0 must live before its memory is written; waited for below
    const unsigned stride = gridDim.x * blockDim.x;
    const float own = warp_sum(thread_sum<4>(y, last, head, packets, rest, blockIdx.x * blockDim.x + threadIdx.x, stride));
    const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    float* home = part;
    if (many) {
        cluster.barrier_wait();
        home = cluster.map_shared_rank(part, 0);
    }
    if (threadIdx.x % 32 == 0) home[warp] = own;
    if (many) cluster.sync(); else __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x < 32) {
        float sum = 0;
        for (unsigned k = threadIdx.x; k < stride / 32; k += 32) sum += part[k];
        sum = warp_sum(sum);
        if (threadIdx.x == 0) out[0] = __float2bfloat16_rn(factor * sum);
    }
}

// Large inputs: one partial sum per block.
__global__ void __launch_bounds__(kStreamThreads, 6) stream_sums(const scalar_t* y, float* sums, unsigned last, unsigned head, unsigned packets, unsigned rest) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float part[kStreamThreads / 32];
    const float own = warp_sum(thread_sum<kStreamUnroll>(y, last, head, packets, rest, blockIdx.x * kStreamThreads + threadIdx.x,
                                                         gridDim.x * kStreamThreads));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float sum = warp_sum(threadIdx.x < kStreamThreads / 32 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

// Launched early; waits until the grid before it has ended and its sums are visible.
__global__ void __launch_bounds__(kFinishThreads) finish(const float* sums, unsigned count, scalar_t* out, float factor) {
    __shared__ float part[kFinishThreads / 32];
    asm volatile("griddepcontrol.wait;" ::: "memory");
    constexpr unsigned kEach = (kMaxBlocks + kFinishThreads - 1) / kFinishThreads;
    float sum = 0;
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
        const unsigned i = k * kFinishThreads + threadIdx.x;
        if (i < count) sum += __ldcg(sums + i);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < kFinishThreads / 32 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) out[0] = __float2bfloat16_rn(factor * sum);
    }
}

}  // namespace

extern "C" size_t simpson_int_workspace(float a, float b, int64_t N) {
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t simpson_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    const float factor = N < 3 ? 0.0f
                               : static_cast<float>((static_cast<double>(b) - a) / static_cast<double>(N - 1) / 3.0);
    // Samples 0 to `end` count. Fewer than three of them give zero: then no sample is read at all.
    const int64_t end = (N - 1) / 2 * 2;
    int64_t packets = 0, extras = 0, before = 0;
    if (N >= 3) {
        before = static_cast<int64_t>((16 - (reinterpret_cast<uintptr_t>(y) & 15)) / sizeof(scalar_t));   // 1 to 8
        if (before > end + 1) before = end + 1;
        packets = end > before ? (end - before) / kLanes : 0;
        extras = end + 1 - packets * kLanes;
    }
    const unsigned last = static_cast<unsigned>(end), head = static_cast<unsigned>(before),
                   count = static_cast<unsigned>(packets), rest = static_cast<unsigned>(extras);
    const int64_t work = packets > 0 ? packets : (extras + kLanes - 1) / kLanes;   // what the threads share, in packets
    const int64_t bytes = work * 16 * 1;

    cudaLaunchConfig_t config = {};
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    config.attrs = &attribute;

    if (bytes <= kOneBlockBytes) {
        int64_t threads = (work + 31) / 32 * 32;
        threads = threads < 64 ? 64 : threads > 1024 ? 1024 : threads;
        together<<<1, static_cast<unsigned>(threads), 0, stream>>>(y, out, factor, last, head, count, rest);
        return cudaGetLastError();
    }
    if (bytes <= kOneClusterBytes) {
        int64_t threads = ((work + kClusterMax - 1) / kClusterMax + 31) / 32 * 32;
        threads = threads < 128 ? 128 : threads > kClusterThreads ? kClusterThreads : threads;
        cudaError_t error = cudaFuncSetAttribute(together, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        if (error == cudaSuccess) {
            config.gridDim = dim3(kClusterMax);
            config.blockDim = dim3(static_cast<unsigned>(threads));
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim.x = kClusterMax;
            attribute.val.clusterDim.y = 1;
            attribute.val.clusterDim.z = 1;
            config.numAttrs = 1;
            error = cudaLaunchKernelEx(&config, together, y, out, factor, last, head, count, rest);
        }
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();                        // no such cluster on this device: take the other way
    }

    float* sums = static_cast<float*>(workspace);
    int64_t blocks = (work + kStreamThreads * kStreamUnroll - 1) / (kStreamThreads * kStreamUnroll);
    blocks = blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks;
    stream_sums<<<static_cast<unsigned>(blocks), kStreamThreads, 0, stream>>>(y, sums, last, head, count, rest);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    config.gridDim = dim3(1);
    config.blockDim = dim3(kFinishThreads);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, finish, static_cast<const float*>(sums), static_cast<unsigned>(blocks), out, factor);
    return error != cudaSuccess ? error : cudaGetLastError();
}
