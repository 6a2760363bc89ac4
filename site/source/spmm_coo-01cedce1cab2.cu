// Y = A X with A in COO.
//
// Rows are brought together first, in two short launches through bins of rows (msbench_pack_rows.cuh), which move 8 bytes an entry
// three times and need no atomic addition in memory. Then A is multiplied as spmm_csr does it: out of tiles of X in shared memory
// while X has at most 2496 rows, else by gathers from L2.
//
// Bound: that of spmm_csr, and about 60 bytes an entry for packing.

#include "msbench_spmm_packed.cuh"

extern "C" size_t spmm_coo_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return msbench::packed_workspace(rows, cols, nnz, K);
}

extern "C" cudaError_t spmm_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t, cudaStream_t stream) {
    const msbench::CooMatrix A = {values, row_indices, col_indices, int(rows), int(cols), int(nnz)};
    return msbench::multiply_packed(A, X, Y, K, workspace, stream);
}
