// Matrix transposition by cuBLAS geam: C = 1·Aᵀ + 0·C. To cuBLAS, which counts in columns, our A[M,N] is an N×M matrix.
// geam exists for float and not for bf16.
// msbench: link cublas
// msbench: precisions fp32
#include <cublas_v2.h>

#include "msbench_library.cuh"

#define CUBLAS(call) MSBENCH_LIBRARY(cublasGetStatusString, call)

extern "C" cudaError_t matrix_transpose(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void* workspace,
                                        size_t workspace_bytes, cudaStream_t stream) {
    static cublasHandle_t handle = nullptr;
    if (!handle) CUBLAS(cublasCreate(&handle));
    CUBLAS(cublasSetStream(handle, stream));
    const float one = 1, zero = 0;
    const int rows = static_cast<int>(M), columns = static_cast<int>(N);
    CUBLAS(cublasSgeam(handle, CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, &one, A, columns, &zero, B, rows, B, rows));
    return cudaSuccess;
}
