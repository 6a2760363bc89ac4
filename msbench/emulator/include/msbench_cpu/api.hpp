// The host's side of the runtime API. There is one stream in effect, and every call is finished when it returns.
#ifndef MSBENCH_CPU_API_HPP
#define MSBENCH_CPU_API_HPP

#include <atomic>
#include <ctime>
#include <malloc.h>

#include "launch.hpp"

// ------------------------------------------------------------------ memory

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};
enum { cudaMemAttachGlobal = 1, cudaHostAllocDefault = 0 };

namespace msbench_cpu {

/// What has been allocated and not freed.
inline std::atomic<int64_t> live_bytes{0};

/// Aligned as cudaMalloc does, and filled with 0xFF: nothing may count on zeros.
inline cudaError_t allocate(void** p, size_t bytes) {
    if (posix_memalign(p, 256, bytes ? bytes : 1) != 0) return remember(cudaErrorMemoryAllocation);
    std::memset(*p, 0xFF, bytes);
    live_bytes += static_cast<int64_t>(malloc_usable_size(*p));
    return cudaSuccess;
}

inline cudaError_t release(void* p) {
    live_bytes -= static_cast<int64_t>(malloc_usable_size(p));
    std::free(p);
    return cudaSuccess;
}

inline cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                             size_t height) {
    if (width > to_pitch || width > from_pitch) return remember(cudaErrorInvalidPitchValue);
    for (size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    return cudaSuccess;
}

}  // namespace msbench_cpu

template <class T>
cudaError_t cudaMalloc(T** p, size_t bytes) {
    return msbench_cpu::allocate(reinterpret_cast<void**>(p), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** p, size_t bytes, cudaStream_t) {
    return cudaMalloc(p, bytes);
}
template <class T>
cudaError_t cudaMallocManaged(T** p, size_t bytes, unsigned = cudaMemAttachGlobal) {
    return cudaMalloc(p, bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** p, size_t bytes, unsigned = cudaHostAllocDefault) {
    return cudaMalloc(p, bytes);
}
template <class T>
cudaError_t cudaHostAlloc(T** p, size_t bytes, unsigned = cudaHostAllocDefault) {
    return cudaMalloc(p, bytes);
}
template <class T>
cudaError_t cudaMallocPitch(T** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 255) / 256 * 256;
    return cudaMalloc(p, *pitch * height);
}
static inline cudaError_t cudaFree(void* p) { return msbench_cpu::release(p); }
static inline cudaError_t cudaFreeHost(void* p) { return msbench_cpu::release(p); }
static inline cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return msbench_cpu::release(p); }

static inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    if (bytes) std::memmove(to, from, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                          cudaStream_t = nullptr) {
    return cudaMemcpy(to, from, bytes, kind);
}
static inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                       size_t height, cudaMemcpyKind) {
    return msbench_cpu::copy_rows(to, to_pitch, from, from_pitch, width, height);
}
static inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                            size_t width, size_t height, cudaMemcpyKind, cudaStream_t = nullptr) {
    return msbench_cpu::copy_rows(to, to_pitch, from, from_pitch, width, height);
}
static inline cudaError_t cudaMemset(void* p, int value, size_t bytes) {
    if (bytes) std::memset(p, value, bytes);
    return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t = nullptr) {
    return cudaMemset(p, value, bytes);
}
static inline cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t width, size_t height,
                                            cudaStream_t = nullptr) {
    for (size_t row = 0; row < height; ++row) std::memset(static_cast<char*>(p) + row * pitch, value, width);
    return cudaSuccess;
}

template <class T>
cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                               cudaMemcpyKind = cudaMemcpyHostToDevice) {
    if (offset + bytes > sizeof(T)) return msbench_cpu::remember(cudaErrorInvalidValue);
    std::memcpy(reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(&symbol)) + offset, from, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind,
                                    cudaStream_t = nullptr) {
    return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                 cudaMemcpyKind = cudaMemcpyDeviceToHost) {
    if (offset + bytes > sizeof(T)) return msbench_cpu::remember(cudaErrorInvalidValue);
    std::memcpy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes);
    return cudaSuccess;
}
template <class T>
cudaError_t cudaGetSymbolAddress(void** p, const T& symbol) {
    *p = const_cast<void*>(static_cast<const void*>(&symbol));
    return cudaSuccess;
}

// ------------------------------------------------------------------ streams and events

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0, cudaEventDisableTiming = 2 };

static inline cudaError_t cudaDeviceSynchronize() { return msbench_cpu::last_error; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return msbench_cpu::last_error; }
static inline cudaError_t cudaStreamQuery(cudaStream_t) { return msbench_cpu::last_error; }
static inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return *s = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

typedef struct CUevent_st {
    timespec recorded;
}* cudaEvent_t;
static inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new CUevent_st{}, cudaSuccess; }
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
static inline cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    return cudaSuccess;
}
static inline cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t = nullptr) {
    clock_gettime(CLOCK_MONOTONIC, &e->recorded);
    return cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }
static inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    *ms = static_cast<float>(to->recorded.tv_sec - from->recorded.tv_sec) * 1e3f +
          static_cast<float>(to->recorded.tv_nsec - from->recorded.tv_nsec) * 1e-6f;
    return cudaSuccess;
}

#endif
