// Sparse matrix in ELL times a vector by cuSPARSE's generic SpMV in CSR. The first call with a shape tries its CSR
// algorithms.
//
// Each call turns the matrix into CSR first, as padding depends on its contents: rows of w entries, of which padding has the
// value zero and lies in an added column, for which a copy of x has a zero. (Zero times an element of x
// itself would be NaN where that is infinite.)
// msbench: link cusparse
#include "msbench_cusparse.cuh"

constexpr msbench::Way kWays[] = {
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG1, msbench::kElement},
    {CUSPARSE_FORMAT_CSR, CUSPARSE_SPMV_CSR_ALG2, msbench::kElement},
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
    scalar_t* x;
    msbench::Multiplication multiplication;

    Room(void* workspace, const msbench::SparseSizes& sizes)
        : parts(workspace),
          values(parts.take<scalar_t>(sizes.nnz)),
          cols(parts.take<int32_t>(sizes.nnz)),
          row_offsets(parts.take<int32_t>(sizes.rows + 1)),
          x(parts.take<scalar_t>(sizes.cols)),
          multiplication(parts, kWays, sizes) {}
};

extern "C" size_t spmv_ell_workspace(int64_t rows, int64_t cols, int64_t w) {
    return Room(nullptr, {rows, cols + 1, rows * w, 0}).parts.bytes();
}

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const msbench::SparseSizes sizes{rows, cols + 1, rows * w, 0};
    Room room(workspace, sizes);
    return msbench::run_fastest(kWays, sizes, stream, [&](const msbench::Way& way, bool first) {
        constexpr int kThreads = 256;
        const int64_t size = cols;
        // One thread more than entries: row_offsets has rows + 1 elements.
        convert<<<msbench::ceil_div(rows * w + 1, kThreads), kThreads, 0, stream>>>(
            values, col_ids, room.values, room.cols, room.row_offsets, rows, cols, w);
        MSBENCH_CUDA(cudaGetLastError());
        MSBENCH_CUDA(cudaMemcpyAsync(room.x, x, size * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream));
        MSBENCH_CUDA(cudaMemsetAsync(room.x + size, 0, sizeof(scalar_t), stream));
        return room.multiplication.run(way, {room.row_offsets, room.cols, room.values}, room.x, y, first, stream);
    });
}
