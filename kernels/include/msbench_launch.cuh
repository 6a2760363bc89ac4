// Launches that say more than grid and block: dynamic shared memory, cooperation, an early start behind the kernel before.
//
//     return Launch(blocks, threads, stream).shared(bytes).cooperative()(kernel, arguments...);
//
// msbench_cluster.cuh has clusters.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace msbench {

class Launch {
   public:
    Launch(dim3 blocks, dim3 threads, cudaStream_t stream) {
        config_.gridDim = blocks;
        config_.blockDim = threads;
        config_.stream = stream;
    }

    // Bytes of dynamic shared memory a block, up to what the device has; the kernel's limit is raised to them.
    Launch& shared(size_t bytes) {
        config_.dynamicSmemBytes = bytes;
        return *this;
    }

    // All blocks run at once, so that cooperative_groups::this_grid().sync() may be called.
    Launch& cooperative() {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeCooperative;
        attribute.val.cooperative = 1;
        return with(attribute);
    }

    // Not for a launcher's first kernel: blocks may start before the kernel ahead has ended, and wait for it with
    // cudaGridDependencySynchronize() before they read what it writes or write what it reads.
    Launch& early() {
        cudaLaunchAttribute attribute{};
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
        return with(attribute);
    }

    Launch& with(const cudaLaunchAttribute& attribute) {
        attributes_[config_.numAttrs++] = attribute;
        return *this;
    }

    // The launch itself.
    template <typename... Parameter, typename... Argument>
    cudaError_t operator()(void (*kernel)(Parameter...), Argument&&... argument) {
        if (config_.dynamicSmemBytes > 0) {  // static shared memory counts against the default limit, too
            const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                            static_cast<int>(config_.dynamicSmemBytes));
            if (status != cudaSuccess) return status;
        }
        config_.attrs = attributes_;
        return cudaLaunchKernelEx(&config_, kernel, std::forward<Argument>(argument)...);
    }

   private:
    cudaLaunchConfig_t config_{};
    cudaLaunchAttribute attributes_[4];
};

// Multiprocessors of the current device; 1 if nothing is known.
inline int multiprocessors() {
    int device = 0, count = 0;
    const bool known = cudaGetDevice(&device) == cudaSuccess &&
                       cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return known ? count : 1;
}

// How many blocks of a kernel can run at once, at least 1: the largest grid of a cooperative launch.
template <typename... Parameter>
int resident_blocks(void (*kernel)(Parameter...), int threads, size_t shared = 0) {
    int each = 0;
    if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared) != cudaSuccess) each = 1;
    return std::max(each, 1) * multiprocessors();
}

}  // namespace msbench
