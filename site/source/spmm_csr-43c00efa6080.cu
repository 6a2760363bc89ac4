// Sparse matrix in CSR times a dense matrix by cuSPARSE's generic SpMM. The first call with a shape tries its CSR algorithms.
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG3, CUDA_R_32F},
};

struct Room {
    msbench::Parts parts;
    char* staging;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          staging(parts.take<char>(msbench::Staging::room(sizes.nnz * sizeof(scalar_t)) +
                                   msbench::Staging::room(sizes.nnz * sizeof(int32_t)) +
                                   msbench::Staging::room((sizes.rows + 1) * sizeof(int32_t)))),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmm_csr_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return Room(nullptr, {rows, cols, nnz, K}).parts.bytes();
}

extern "C" cudaError_t spmm_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols, nnz, K};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        msbench::Staging staging(room.staging, stream);
        const msbench::SparseArrays A{staging.input(row_offsets, (rows + 1) * sizeof(int32_t)),
                                      staging.input(col_indices, nnz * sizeof(int32_t)),
                                      staging.input(values, nnz * sizeof(scalar_t))};
        MSBENCH_CUDA(staging.finish());
        return room.multiplication.run(way, A, X, Y, first, stream);
    });
}
