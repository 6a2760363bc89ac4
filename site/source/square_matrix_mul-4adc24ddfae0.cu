// Square matrix multiplication by cuBLASLt with fp32 emulated on bf16 matrix units: each input is split into three bf16 parts, and
// the nine products of parts are summed in fp32. Native algorithms, which cuBLASLt may fall back on, are left out: where the GPU
// has no emulation, the launcher says cudaErrorNotSupported.
// msbench: link cublasLt
// msbench: precisions fp32
#include "msbench_cublaslt.cuh"

extern "C" size_t square_matrix_mul_workspace(int64_t M) {
    return msbench::cublaslt::kWorkspaceBytes;
}

extern "C" cudaError_t square_matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    msbench::cublaslt::Product product{M, M, M};
    product.compute = CUBLAS_COMPUTE_32F_EMULATED_16BFX9;
    return msbench::cublaslt::multiply(product, 1, A, B, C, workspace, stream);
}
