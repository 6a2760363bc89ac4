// The sum over the blocks of one cluster, by its first block.
//
// Each block stores its sum in the first one's shared memory, and counts the bytes on an mbarrier there: nobody else waits, and that all
// blocks run, which has to be known first, is found out while numbers are on their way. On an H200 that takes 0.1 to 0.3 us less than mail.
#pragma once

#include "msbench.cuh"
#include "msbench_async.cuh"
#include "msbench_cluster.cuh"

namespace msbench {

// In shared memory, for a grid of one cluster, of up to kMostBlocks; once in a kernel.
struct ClusterSum {
    static constexpr int kMostBlocks = 16;
    float of_block[kMostBlocks];
    Barrier arrived;

    // By all threads, behind their first loads.
    __device__ __forceinline__ void begin() {
        if (threadIdx.x == 0) {
            arrived.init(1);
            fence_barriers();
            arrived.expect(static_cast<int>(gridDim.x * sizeof(float)));
        }
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    }

    // By all threads: calls finish(the sum of thread 0's `sum` over all blocks) in one thread.
    template <typename Finish>
    __device__ __forceinline__ void end(float sum, Finish finish) {
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // all blocks run, and their mbarriers expect what is sent now
        if (threadIdx.x == 0) {
            asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(in_first(of_block + blockIdx.x)),
                         "r"(__float_as_uint(sum)), "r"(in_first(&arrived))
                         : "memory");
        }
        if (blockIdx.x != 0 || threadIdx.x >= 32) return;
        arrived.wait(0);
        const float total = warp_reduce(threadIdx.x < gridDim.x ? of_block[threadIdx.x % kMostBlocks] : 0.0f, Sum());
        if (threadIdx.x == 0) finish(total);
    }

   private:
    // The address of the same variable in the cluster's first block.
    template <typename T>
    __device__ static unsigned in_first(const T* variable) {
        unsigned there;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(shared_address(variable)));
        return there;
    }
};

}  // namespace msbench
