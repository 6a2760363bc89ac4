// Sparse matrix in CSR times dense matrix, one thread per element of Y.

__global__ void spmm_csr_kernel(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t K) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= rows * K) return;
    int64_t row = i / K;
    int64_t j = i % K;
    float sum = 0;
    for (int32_t k = row_offsets[row]; k < row_offsets[row + 1]; ++k) {
        sum += static_cast<float>(values[k]) * static_cast<float>(X[col_indices[k] * K + j]);
    }
    Y[i] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t spmm_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    spmm_csr_kernel<<<(rows * K + threads - 1) / threads, threads, 0, stream>>>(values, col_indices, row_offsets, X, Y,
                                                                                rows, cols, K);
    return cudaGetLastError();
}
