// Sparse matrix in CSR times a dense matrix by cuSPARSE's generic SpMM after cusparseSpMM_preprocess, which analyses the sparsity
// pattern and is not timed: what a solver gets that multiplies by one matrix again and again. The first call with a shape tries
// the CSR algorithms.
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG3, CUDA_R_32F},
};

extern "C" size_t spmm_csr_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return msbench::CsrRoom(nullptr, kWays, {rows, cols, nnz, K}).parts.bytes();
}

extern "C" cudaError_t spmm_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return msbench::multiply_csr(kWays, {rows, cols, nnz, K}, {row_offsets, col_indices, values}, X, Y, true, workspace, stream);
}
