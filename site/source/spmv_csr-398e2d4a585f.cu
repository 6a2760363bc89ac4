// Sparse matrix in CSR times a vector by cuSPARSE's generic SpMV. The first call with a shape tries its CSR algorithms.
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG1, msbench::kElement},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG2, msbench::kElement},
};

extern "C" size_t spmv_csr_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    return msbench::CsrRoom(nullptr, kWays, {rows, cols, nnz, 0}).parts.bytes();
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    return msbench::multiply_csr(kWays, {rows, cols, nnz, 0}, {row_offsets, col_indices, values}, x, y, false, workspace, stream);
}
