// Dot product by cublasSdot, whose result stays on the device.
// cublasDotEx takes bf16 vectors too, but is used with a bf16 result for them; ours is a float.
// msbench: link cublas
// msbench: precisions fp32
#include <cublas_v2.h>

#include "msbench_library.cuh"

#define CUBLAS(call) MSBENCH_LIBRARY(cublasGetStatusString, call)

// What NVIDIA recommends for Hopper. cuBLAS's own workspace would do as well, except that a graph would allocate it anew.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

extern "C" size_t dot_product_workspace(int64_t N) {
    return kWorkspaceBytes;
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    static cublasHandle_t handle = nullptr;
    if (!handle) {
        CUBLAS(cublasCreate(&handle));
        CUBLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    }
    CUBLAS(cublasSetStream(handle, stream));
    CUBLAS(cublasSetWorkspace(handle, workspace, workspace_bytes));
    CUBLAS(cublasSdot(handle, static_cast<int>(N), X, 1, Y, 1, out));
    return cudaSuccess;
}
