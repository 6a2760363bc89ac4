// What a launcher may ask about the device and about a kernel. The answers are an H200's, except for the number of
// multiprocessors: eight, so that a grid sized by it stays small enough to emulate and grid-stride loops do iterate.
#ifndef MSBENCH_CPU_DEVICE_HPP
#define MSBENCH_CPU_DEVICE_HPP

#include <algorithm>

#include "launch.hpp"

namespace msbench_cpu {

struct DeviceFacts {
    static constexpr int multiprocessors = 8;
    static constexpr int threads_a_multiprocessor = 2048;
    static constexpr int blocks_a_multiprocessor = 32;
    static constexpr int registers = 65536;
    static constexpr int shared_a_block = 48 * 1024;
    static constexpr int shared_a_block_optin = 227 * 1024;
    static constexpr int shared_a_multiprocessor = 228 * 1024;
    static constexpr int shared_reserved = 1024;
    static constexpr int l2_bytes = 60 << 20;
    static constexpr size_t memory_bytes = size_t{141} << 30;
};

}  // namespace msbench_cpu

// ------------------------------------------------------------------ the device

// name, CUDA's number, answer
#define MSBENCH_CPU_ATTRIBUTES(X)                                                                         \
    X(cudaDevAttrMaxThreadsPerBlock, 1, 1024)                                                             \
    X(cudaDevAttrMaxBlockDimX, 2, 1024)                                                                   \
    X(cudaDevAttrMaxBlockDimY, 3, 1024)                                                                   \
    X(cudaDevAttrMaxBlockDimZ, 4, 64)                                                                     \
    X(cudaDevAttrMaxGridDimX, 5, 2147483647)                                                              \
    X(cudaDevAttrMaxGridDimY, 6, 65535)                                                                   \
    X(cudaDevAttrMaxGridDimZ, 7, 65535)                                                                   \
    X(cudaDevAttrMaxSharedMemoryPerBlock, 8, msbench_cpu::DeviceFacts::shared_a_block)                    \
    X(cudaDevAttrWarpSize, 10, 32)                                                                        \
    X(cudaDevAttrMaxRegistersPerBlock, 12, msbench_cpu::DeviceFacts::registers)                           \
    X(cudaDevAttrMultiProcessorCount, 16, msbench_cpu::DeviceFacts::multiprocessors)                      \
    X(cudaDevAttrL2CacheSize, 38, msbench_cpu::DeviceFacts::l2_bytes)                                     \
    X(cudaDevAttrMaxThreadsPerMultiProcessor, 39, msbench_cpu::DeviceFacts::threads_a_multiprocessor)     \
    X(cudaDevAttrComputeCapabilityMajor, 75, 9)                                                           \
    X(cudaDevAttrComputeCapabilityMinor, 76, 0)                                                           \
    X(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81, msbench_cpu::DeviceFacts::shared_a_multiprocessor) \
    X(cudaDevAttrMaxRegistersPerMultiprocessor, 82, msbench_cpu::DeviceFacts::registers)                  \
    X(cudaDevAttrCooperativeLaunch, 95, 1)                                                                \
    X(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97, msbench_cpu::DeviceFacts::shared_a_block_optin)        \
    X(cudaDevAttrMaxBlocksPerMultiprocessor, 106, msbench_cpu::DeviceFacts::blocks_a_multiprocessor)      \
    X(cudaDevAttrReservedSharedMemoryPerBlock, 111, msbench_cpu::DeviceFacts::shared_reserved)            \
    X(cudaDevAttrMemoryPoolsSupported, 115, 1)

enum cudaDeviceAttr {
#define MSBENCH_CPU_ATTRIBUTE(name, number, answer) name = number,
    MSBENCH_CPU_ATTRIBUTES(MSBENCH_CPU_ATTRIBUTE)
#undef MSBENCH_CPU_ATTRIBUTE
};

static inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device != 0) return msbench_cpu::remember(cudaErrorInvalidDevice);
    switch (attribute) {
#define MSBENCH_CPU_ATTRIBUTE(name, number, answer) \
    case name:                                      \
        *value = answer;                            \
        return cudaSuccess;
        MSBENCH_CPU_ATTRIBUTES(MSBENCH_CPU_ATTRIBUTE)
#undef MSBENCH_CPU_ATTRIBUTE
    }
    return msbench_cpu::remember(cudaErrorInvalidValue);
}

struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor,
        reservedSharedMemPerBlock;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int major, minor, multiProcessorCount, maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, l2CacheSize,
        cooperativeLaunch, memoryBusWidth;
};

static inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    using Facts = msbench_cpu::DeviceFacts;
    if (device != 0) return msbench_cpu::remember(cudaErrorInvalidDevice);
    *p = {"msbench cpu executor",
          Facts::memory_bytes,
          Facts::shared_a_block,
          Facts::shared_a_block_optin,
          Facts::shared_a_multiprocessor,
          Facts::shared_reserved,
          Facts::registers,
          Facts::registers,
          32,
          1024,
          {1024, 1024, 64},
          {2147483647, 65535, 65535},
          9,
          0,
          Facts::multiprocessors,
          Facts::threads_a_multiprocessor,
          Facts::blocks_a_multiprocessor,
          Facts::l2_bytes,
          1,
          6144};
    return cudaSuccess;
}

static inline cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
static inline cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
static inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : msbench_cpu::remember(cudaErrorInvalidDevice);
}
static inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }

// ------------------------------------------------------------------ kernels

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
    cudaFuncAttributeNonPortableClusterSizeAllowed = 13,
};
enum cudaSharedCarveout {
    cudaSharedmemCarveoutDefault = -1,
    cudaSharedmemCarveoutMaxL1 = 0,
    cudaSharedmemCarveoutMaxShared = 100
};
enum cudaFuncCache {
    cudaFuncCachePreferNone,
    cudaFuncCachePreferShared,
    cudaFuncCachePreferL1,
    cudaFuncCachePreferEqual
};

template <class K>
cudaError_t cudaFuncSetAttribute(K* kernel, cudaFuncAttribute attribute, int value) {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || value > msbench_cpu::DeviceFacts::shared_a_block_optin)
        return msbench_cpu::remember(cudaErrorInvalidValue);
    msbench_cpu::allow_shared_bytes(reinterpret_cast<const void*>(kernel), static_cast<size_t>(value));
    return cudaSuccess;
}
/// What a kernel without local memory says on an H200. The largest dynamic shared memory is the default, whatever was set:
/// an answer that depends on an earlier call would be state.
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes,
        preferredShmemCarveout;
};
template <class K>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, K*) {
    *attributes = {0, 0, 0, 1024, 32, 90, 90, 0, msbench_cpu::DeviceFacts::shared_a_block, -1};
    return cudaSuccess;
}
template <class K>
cudaError_t cudaFuncSetCacheConfig(K*, cudaFuncCache) {
    return cudaSuccess;
}

enum { cudaOccupancyDefault = 0, cudaOccupancyDisableCachingOverride = 1 };

/// By threads, blocks and dynamic shared memory; registers are not known here.
template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, K*, int block_size, size_t shared_bytes) {
    using Facts = msbench_cpu::DeviceFacts;
    if (block_size <= 0 || block_size > 1024) return msbench_cpu::remember(cudaErrorInvalidValue);
    int warps = (block_size + 31) / 32;
    int by_shared = Facts::shared_a_multiprocessor / static_cast<int>(shared_bytes + Facts::shared_reserved);
    *blocks = std::min({Facts::threads_a_multiprocessor / (warps * 32), Facts::blocks_a_multiprocessor, by_shared});
    return cudaSuccess;
}
template <class K>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, K* kernel, int block_size,
                                                                   size_t shared_bytes, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block_size, shared_bytes);
}
template <class K>
cudaError_t cudaOccupancyMaxPotentialBlockSize(int* min_grid, int* block_size, K*, size_t = 0, int limit = 0) {
    *block_size = limit > 0 ? std::min(limit, 1024) : 1024;
    *min_grid =
        msbench_cpu::DeviceFacts::multiprocessors * (msbench_cpu::DeviceFacts::threads_a_multiprocessor / *block_size);
    return cudaSuccess;
}
template <class K, class F>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* min_grid, int* block_size, K* kernel, F,
                                                           int limit = 0) {
    return cudaOccupancyMaxPotentialBlockSize(min_grid, block_size, kernel, 0, limit);
}
template <class K>
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, K*, int blocks, int block_size) {
    using Facts = msbench_cpu::DeviceFacts;
    if (blocks <= 0 || block_size <= 0 || block_size > 1024) return msbench_cpu::remember(cudaErrorInvalidValue);
    int left = Facts::shared_a_multiprocessor / blocks - Facts::shared_reserved;
    *bytes = static_cast<size_t>(std::clamp(left, 0, Facts::shared_a_block_optin));
    return cudaSuccess;
}

#endif
