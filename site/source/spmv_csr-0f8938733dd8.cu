// Sparse matrix times vector in CSR, one thread per row.

__global__ void spmv_csr_kernel(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows) {
    int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int32_t k = row_offsets[row]; k < row_offsets[row + 1]; ++k) {
        sum += static_cast<float>(values[k]) * static_cast<float>(x[col_indices[k]]);
    }
    y[row] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    spmv_csr_kernel<<<(rows + threads - 1) / threads, threads, 0, stream>>>(values, col_indices, row_offsets, x, y, rows);
    return cudaGetLastError();
}
