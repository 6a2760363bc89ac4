// Sparse matrix in COO times a vector by cuSPARSE's generic SpMV, which wants the entries sorted by row: the
// sort is part of the call. The first call with a shape tries every COO algorithm, and every CSR algorithm on row offsets
// made from the sorted rows.
// msbench: link cusparse
#include "msbench_cusparse.cuh"
#include "msbench_sorted_entries.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_COO, CUSPARSE_SPMV_COO_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_COO, CUSPARSE_SPMV_COO_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG1, msbench::kElement},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG2, msbench::kElement},
};

struct Room {
    msbench::Parts parts;
    msbench::SortedEntries sorted;
    int32_t* row_offsets;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          sorted(parts, sizes.rows, sizes.nnz),
          row_offsets(parts.take<int32_t>(sizes.rows + 1)),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmv_coo_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    return Room(nullptr, {rows, cols, nnz, 0}).parts.bytes();
}

extern "C" cudaError_t spmv_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols, nnz, 0};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        MSBENCH_CUDA(room.sorted.sort(values, row_indices, msbench::ListedColumn{col_indices}, stream));
        msbench::SparseArrays A = room.sorted.entries();
        if (way.format == CUSPARSE_FORMAT_CSR) MSBENCH_CUDA(room.sorted.compress(room.row_offsets, rows, &A, stream));
        return room.multiplication.run(way, A, x, y, first, stream);
    });
}
