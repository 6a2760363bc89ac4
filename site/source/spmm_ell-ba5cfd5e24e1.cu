// Sparse matrix in ELL times a dense matrix by cuSPARSE's generic SpMM in CSR. The first call with a shape tries its CSR
// algorithms.
//
// Each call turns the matrix into CSR first, as padding depends on its contents: rows of w entries, of which padding has the
// value zero and lies in an added column, for which a copy of X has a row of zeros. (Zero times an element of X
// itself would be NaN where that is infinite.)
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG1, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG2, CUDA_R_32F},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMM_CSR_ALG3, CUDA_R_32F},
};

static __global__ void convert(const scalar_t* values, const int32_t* col_ids, scalar_t* csr_values, int32_t* csr_cols,
                               int32_t* row_offsets, int64_t rows, int64_t cols, int64_t w) {
    const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i <= rows) row_offsets[i] = static_cast<int32_t>(i * w);
    if (i >= rows * w) return;
    const int32_t col = col_ids[i];
    csr_cols[i] = col < 0 ? static_cast<int32_t>(cols) : col;
    csr_values[i] = col < 0 ? msbench::from_float<scalar_t>(0) : values[i];
}

struct Room {
    msbench::Parts parts;
    scalar_t* values;
    int32_t* cols;
    int32_t* row_offsets;
    scalar_t* X;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          values(parts.take<scalar_t>(sizes.nnz)),
          cols(parts.take<int32_t>(sizes.nnz)),
          row_offsets(parts.take<int32_t>(sizes.rows + 1)),
          X(parts.take<scalar_t>(sizes.cols * sizes.K)),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmm_ell_workspace(int64_t rows, int64_t cols, int64_t w, int64_t K) {
    return Room(nullptr, {rows, cols + 1, rows * w, K}).parts.bytes();
}

extern "C" cudaError_t spmm_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* X, scalar_t* Y,
                                int64_t rows, int64_t cols, int64_t w, int64_t K, void* workspace,
                                size_t workspace_bytes, cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols + 1, rows * w, K};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        constexpr int kThreads = 256;
        const int64_t size = cols * K;
        // One thread more than entries: row_offsets has rows + 1 elements.
        convert<<<msbench::ceil_div(rows * w + 1, kThreads), kThreads, 0, stream>>>(
            values, col_ids, room.values, room.cols, room.row_offsets, rows, cols, w);
        MSBENCH_CUDA(cudaGetLastError());
        MSBENCH_CUDA(cudaMemcpyAsync(room.X, X, size * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream));
        MSBENCH_CUDA(cudaMemsetAsync(room.X + size, 0, K * sizeof(scalar_t), stream));
        return room.multiplication.run(way, {room.row_offsets, room.cols, room.values}, room.X, Y, first, stream);
    });
}
