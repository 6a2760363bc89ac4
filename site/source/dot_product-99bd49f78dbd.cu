// Dot product in one launch where that pays: up to 1 MiB of input one cluster of 16 blocks loads everything at once and
// adds up through distributed shared memory (no second kernel, no counter to initialise). Larger inputs are streamed in
// 16-byte packets by a grid that fills the device, and a finishing block, launched early by programmatic dependent launch,
// adds up the sums of the blocks. Bound: the launch for the small cases, 3.1 TB/s of reading for the large one.

#include <cooperative_groups.h>

namespace {

namespace cg = cooperative_groups;

constexpr int kLanes = 16 / sizeof(scalar_t);      // elements of a 16-byte packet
constexpr unsigned kStreamThreads = 256;
constexpr unsigned kStreamUnroll = 2;               // packets of each array in flight per thread
constexpr unsigned kMaxBlocks = 132 * 16;
constexpr unsigned kFinishThreads = 512;
constexpr unsigned kClusterMax = 16;
constexpr unsigned kClusterThreads = 1024;
constexpr int64_t kOneBlockBytes = 32 << 10;       // up to this: one block
constexpr int64_t kOneClusterBytes = 1 << 20;      // up to this: one cluster; beyond: stream, then finish

using Vector = float4;

__device__ __forceinline__ void add_one(float x, float y, float& sum) { sum = fmaf(x, y, sum); }

__device__ __forceinline__ void add(const Vector& x, const Vector& y, float (&sum)[4]) {
    sum[0] = fmaf(x.x, y.x, sum[0]);
    sum[1] = fmaf(x.y, y.y, sum[1]);
    sum[2] = fmaf(x.z, y.z, sum[2]);
    sum[3] = fmaf(x.w, y.w, sum[3]);
}

// What one thread adds up: packets first, first + stride, ... of both arrays, and its share of the elements around them.
template <unsigned kUnroll>
__device__ __forceinline__ float thread_sum(const scalar_t* __restrict__ X, const scalar_t* __restrict__ Y,
                                            unsigned head, unsigned packets, unsigned rest, unsigned first,
                                            unsigned stride) {
    const Vector* px = reinterpret_cast<const Vector*>(X + head);
    const Vector* py = reinterpret_cast<const Vector*>(Y + head);
    static_assert(kUnroll > 1, "");
    float sum[4] = {0, 0, 0, 0};
    unsigned i = first;
    for (; i + (kUnroll - 1) * stride < packets; i += kUnroll * stride) {
        Vector x[kUnroll], y[kUnroll];
#pragma unroll
        for (unsigned k = 0; k < kUnroll; ++k) {
            x[k] = __ldcs(px + (i + k * stride));
            y[k] = __ldcs(py + (i + k * stride));
        }
#pragma unroll
        for (unsigned k = 0; k < kUnroll; ++k) add(x[k], y[k], sum);
    }
    if (i < packets) {                              // what is left is loaded at once, too; zeros add nothing
        Vector x[kUnroll], y[kUnroll];
#pragma unroll
        for (unsigned k = 0; k < kUnroll - 1; ++k) {
            x[k] = y[k] = Vector{};
            if (i + k * stride < packets) {
                x[k] = __ldcs(px + (i + k * stride));
                y[k] = __ldcs(py + (i + k * stride));
            }
        }
#pragma unroll
        for (unsigned k = 0; k < kUnroll - 1; ++k) add(x[k], y[k], sum);
    }
    // From the last thread backwards, which has the fewest packets.
#pragma unroll 4
    for (unsigned j = stride - 1 - first; j < rest; j += stride) {
        const unsigned at = j < head ? j : j + packets * kLanes;
        add_one(static_cast<float>(X[at]), static_cast<float>(Y[at]), sum[0]);
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// Small inputs: the grid is one block or one cluster. Every warp puts its sum into the shared memory of block 0.
__global__ void __launch_bounds__(1024, 1) together(const scalar_t* X, const scalar_t* Y, float* out, unsigned head, unsigned packets, unsigned rest) {
    __shared__ float part[kClusterMax * 32];
    const bool many = gridDim.x > 1;
    cg::cluster_group cluster = cg::this_cluster();
    if (many) cluster.barrier_arrive();            // block 0 must live before its memory is written; waited for below
    const unsigned stride = gridDim.x * blockDim.x;
    const float own = warp_sum(thread_sum<4>(X, Y, head, packets, rest, blockIdx.x * blockDim.x + threadIdx.x, stride));
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
        if (threadIdx.x == 0) out[0] = sum;
    }
}

// Large inputs: one partial sum per block.
__global__ void __launch_bounds__(kStreamThreads, 6) stream_sums(const scalar_t* X, const scalar_t* Y, float* sums, unsigned head, unsigned packets, unsigned rest) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    __shared__ float part[kStreamThreads / 32];
    const float own = warp_sum(thread_sum<kStreamUnroll>(X, Y, head, packets, rest, blockIdx.x * kStreamThreads + threadIdx.x,
                                                         gridDim.x * kStreamThreads));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float sum = warp_sum(threadIdx.x < kStreamThreads / 32 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

// Launched early; waits until the grid before it has ended and its sums are visible.
__global__ void __launch_bounds__(kFinishThreads) finish(const float* sums, unsigned count, float* out) {
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
        if (threadIdx.x == 0) out[0] = sum;
    }
}

}  // namespace

extern "C" size_t dot_product_workspace(int64_t N) {
    return kMaxBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    // Packets where both arrays can be brought to a 16-byte boundary together; `head` elements come before them.
    const uintptr_t ax = reinterpret_cast<uintptr_t>(X), ay = reinterpret_cast<uintptr_t>(Y);
    int64_t first = N, packets = 0;
    if (((ax ^ ay) & 15) == 0) {
        first = static_cast<int64_t>(((16 - (ax & 15)) & 15) / sizeof(scalar_t));
        if (first > N) first = N;
        packets = (N - first) / kLanes;
    }
    const int64_t extras = N - packets * kLanes;
    const unsigned head = static_cast<unsigned>(first), count = static_cast<unsigned>(packets),
                   rest = static_cast<unsigned>(extras);
    const int64_t work = packets > 0 ? packets : (extras + kLanes - 1) / kLanes;   // what the threads share, in packets
    const int64_t bytes = work * 16 * 2;

    cudaLaunchConfig_t config = {};
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    config.attrs = &attribute;

    if (bytes <= kOneBlockBytes) {
        int64_t threads = (work + 31) / 32 * 32;
        threads = threads < 64 ? 64 : threads > 1024 ? 1024 : threads;
        together<<<1, static_cast<unsigned>(threads), 0, stream>>>(X, Y, out, head, count, rest);
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
            error = cudaLaunchKernelEx(&config, together, X, Y, out, head, count, rest);
        }
        if (error == cudaSuccess) return cudaGetLastError();
        cudaGetLastError();                        // no such cluster on this device: take the other way
    }

    float* sums = static_cast<float*>(workspace);
    int64_t blocks = (work + kStreamThreads * kStreamUnroll - 1) / (kStreamThreads * kStreamUnroll);
    blocks = blocks < 1 ? 1 : blocks > kMaxBlocks ? kMaxBlocks : blocks;
    stream_sums<<<static_cast<unsigned>(blocks), kStreamThreads, 0, stream>>>(X, Y, sums, head, count, rest);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    config.gridDim = dim3(1);
    config.blockDim = dim3(kFinishThreads);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, finish, static_cast<const float*>(sums), static_cast<unsigned>(blocks), out);
    return error != cudaSuccess ? error : cudaGetLastError();
}
