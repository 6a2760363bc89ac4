// cudaError_t and the calls that read it. The last error belongs to the host thread, as in CUDA.
#ifndef MSBENCH_CPU_ERRORS_HPP
#define MSBENCH_CPU_ERRORS_HPP

#include "language.hpp"

// name, CUDA's number, CUDA's description
#define MSBENCH_CPU_ERRORS(X)                                                           \
    X(cudaSuccess, 0, "no error")                                                       \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                     \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                    \
    X(cudaErrorInitializationError, 3, "initialization error")                          \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")               \
    X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                         \
    X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                              \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                      \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")         \
    X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                    \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                     \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                            \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                   \
    X(cudaErrorNotReady, 600, "device not ready")                                       \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")         \
    X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")    \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")           \
    X(cudaErrorAssert, 710, "device-side assert triggered")                             \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                            \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                        \
    X(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch") \
    X(cudaErrorNotSupported, 801, "operation not supported")                            \
    X(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define MSBENCH_CPU_ERROR(name, number, text) name = number,
    MSBENCH_CPU_ERRORS(MSBENCH_CPU_ERROR)
#undef MSBENCH_CPU_ERROR
};
typedef cudaError cudaError_t;

namespace msbench_cpu {

inline thread_local cudaError_t last_error = cudaSuccess;

/// Remembers an error for cudaGetLastError and hands it back.
inline cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

}  // namespace msbench_cpu

static inline cudaError_t cudaGetLastError() { return std::exchange(msbench_cpu::last_error, cudaSuccess); }
static inline cudaError_t cudaPeekAtLastError() { return msbench_cpu::last_error; }

static inline const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define MSBENCH_CPU_ERROR(name, number, text) \
    case name:                                \
        return text;
        MSBENCH_CPU_ERRORS(MSBENCH_CPU_ERROR)
#undef MSBENCH_CPU_ERROR
    }
    return "unrecognized error code";
}

static inline const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define MSBENCH_CPU_ERROR(name, number, text) \
    case name:                                \
        return #name;
        MSBENCH_CPU_ERRORS(MSBENCH_CPU_ERROR)
#undef MSBENCH_CPU_ERROR
    }
    return "unrecognized error code";
}

#endif
