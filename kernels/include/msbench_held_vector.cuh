// A vector whose elements are read in random order: in shared memory, or as much of it as a cluster of blocks can hold.
//
// With all of a vector on chip a gather is no trip to memory, and its copy runs while entries are under way. A part pays as well where
// L2 is the limit, which answers 165·10⁹ gathers a second (measured, H200), however few bytes each wants: gathers in the cluster's shared
// memory never get there. What is under way needs room in the L1 cache, so a block can't take all of the 227 KiB that it may have.
//
// Measured (H100, 2026-11-26), spmv_ell with 2²⁵ entries and 2¹⁹ columns, blocks alone; in clusters of 2; of 4, with 186 KiB a block: fp32 260;
// 243; 215 us, bf16 240; 196; 266, since what comes from other blocks has a limit as well. With 156 KiB 232 (bf16 208), with 222 KiB 276 (224).
#pragma once

#include "msbench.cuh"
#include "msbench_launch.cuh"

#ifdef __NVCC__
#include "msbench_cluster.cuh"
#endif

namespace msbench {

// Bytes of shared memory for a vector.
inline size_t vector_bytes(int64_t count) {
    return size_t(ceil_div(count * int64_t(sizeof(scalar_t)), 16) * 16);
}

// Begins to copy `count` elements to shared memory, a multiple of 16 bytes; by all threads of a block. They are there after
// end_copy() and a barrier.
__device__ inline void begin_copy(scalar_t* shared, const scalar_t* x, int count) {
    constexpr int kPacket = Packet<scalar_t>::kSize;
    const int packets = packets_allowed(x) ? count / kPacket : 0;
    for (int i = threadIdx.x; i < packets; i += blockDim.x) {
        const auto to = unsigned(__cvta_generic_to_shared(shared + i * kPacket));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + i * kPacket) : "memory");
    }
    for (int i = packets * kPacket + threadIdx.x; i < count; i += blockDim.x) shared[i] = x[i];
}

__device__ inline void end_copy() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

// Blocks that hold a vector together, if it is too long for one. The processor's executor has no clusters.
#ifdef __NVCC__
constexpr int kVectorCluster = int(sizeof(scalar_t));
#else
constexpr int kVectorCluster = 1;
#endif
constexpr int kHeldBytes = 186 * 1024;  // a block: with up to 9 KiB more it leaves 60 KiB to L1

template <int kCluster>
__device__ __forceinline__ void sync_cluster() {
#ifdef __NVCC__
    if constexpr (kCluster > 1) cooperative_groups::this_cluster().sync();
    else
#endif
        __syncthreads();
}

// Block r of a cluster has elements from r·each on, up to kCluster·each; the rest is in global memory.
template <int kCluster>
struct HeldVector {
    const scalar_t *x, *own;
    int each;

    // By all threads; to be followed by finish().
    __device__ HeldVector(const scalar_t* vector, int held, scalar_t* shared) : x(vector), own(shared), each(held) {
        begin_copy(shared, x + blockIdx.x % kCluster * each, each);
    }
    __device__ void finish() const {
        end_copy();
        sync_cluster<kCluster>();
    }
    // Before a block ends that others may still read from.
    __device__ void leave() const {
        if constexpr (kCluster > 1) sync_cluster<kCluster>();
    }
    __device__ __forceinline__ float operator()(int i) const {
        scalar_t element;
        if (i < kCluster * each) {
            if constexpr (kCluster > 1) element = of_cluster(i);
            else element = own[i];
        } else {
            element = __ldg(x + i);
        }
        return to_float(element);
    }

   private:
    __device__ __forceinline__ scalar_t of_cluster(int i) const {
        int block = 0;
#pragma unroll
        for (int r = 1; r < kCluster; ++r) block += i >= r * each;
#ifdef __NVCC__
        return *cooperative_groups::this_cluster().map_shared_rank(own + (i - block * each), block);
#else
        return own[i];
#endif
    }
};

// How to launch a kernel of a block a multiprocessor: whole clusters that run at once, and elements of a vector of `count` that a block holds.
struct HeldShape {
    int blocks, held;
};

template <int kCluster, typename Kernel>
HeldShape held_shape(Kernel kernel, int64_t count, int threads, int64_t bytes = kHeldBytes) {
    const int64_t most = bytes / int64_t(sizeof(scalar_t)), part = kCluster == 1 ? count : count / kCluster / 8 * 8;  // a multiple of 16 bytes
    HeldShape shape = {multiprocessors() / kCluster * kCluster, int(part < most ? part : most)};
#ifdef __NVCC__
    if constexpr (kCluster > 1) {
        cudaLaunchAttribute cluster{};
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim = {kCluster, 1, 1};
        cudaLaunchConfig_t config{};
        config.gridDim = shape.blocks, config.blockDim = threads, config.dynamicSmemBytes = vector_bytes(shape.held);
        config.attrs = &cluster, config.numAttrs = 1;
        int clusters = 0;
        const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(config.dynamicSmemBytes)) == cudaSuccess &&
                           cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
        if (known && clusters > 0 && clusters * kCluster < shape.blocks) shape.blocks = clusters * kCluster;
    }
#endif
    return shape;
}

template <int kCluster, typename... Parameter, typename... Argument>
cudaError_t launch_held(HeldShape shape, int threads, cudaStream_t stream, void (*kernel)(Parameter...), Argument... argument) {
    Launch launch(unsigned(shape.blocks), threads, stream);
    launch.shared(vector_bytes(shape.held));
#ifdef __NVCC__
    if constexpr (kCluster > 1) return launch_clusters(kCluster, launch, kernel, argument..., shape.held);
#endif
    return launch(kernel, argument..., shape.held);
}

}  // namespace msbench
