// Sparse matrix in CSC times a dense matrix by cuSPARSE's generic SpMM. The first call with a shape tries every
// algorithm on CSC as it is, and on CSR, which each call makes by sorting the entries by row.
// msbench: link cusparse
#include "msbench_cusparse.cuh"
#include "msbench_sorted_entries.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSC, CUSPARSE_SPMM_CSR_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSC, CUSPARSE_SPMM_CSR_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSC, CUSPARSE_SPMM_CSR_ALG3, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG3, CUDA_R_32F},
};

struct Room {
    msbench::Parts parts;
    char* staging;
    msbench::SortedEntries sorted;
    int32_t* row_offsets;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          staging(parts.take<char>(msbench::Staging::room(sizes.nnz * sizeof(scalar_t)) +
                                   msbench::Staging::room(sizes.nnz * sizeof(int32_t)) +
                                   msbench::Staging::room((sizes.cols + 1) * sizeof(int32_t)))),
          sorted(parts, sizes.rows, sizes.nnz),
          row_offsets(parts.take<int32_t>(sizes.rows + 1)),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmm_csc_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return Room(nullptr, {rows, cols, nnz, K}).parts.bytes();
}

extern "C" cudaError_t spmm_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols, nnz, K};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        msbench::Staging staging(room.staging, stream);
        msbench::SparseArrays A;
        if (way.format == CUSPARSE_FORMAT_CSR) {
            const msbench::CompressedColumn column{col_offsets, cols};
            MSBENCH_CUDA(room.sorted.sort(values, row_indices, column, stream));
            MSBENCH_CUDA(room.sorted.compress(room.row_offsets, rows, &A, stream));
        } else {
            A = {staging.input(col_offsets, (cols + 1) * sizeof(int32_t)),
                 staging.input(row_indices, nnz * sizeof(int32_t)), staging.input(values, nnz * sizeof(scalar_t))};
            MSBENCH_CUDA(staging.finish());
        }
        return room.multiplication.run(way, A, X, Y, first, stream);
    });
}
