// Sparse matrix in ELL times dense matrix, one thread per element of Y.

__global__ void spmm_ell_kernel(const scalar_t* values, const int32_t* col_ids, const scalar_t* X, scalar_t* Y,
                                int64_t rows, int64_t cols, int64_t w, int64_t K) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= rows * K) return;
    int64_t row = i / K;
    int64_t j = i % K;
    float sum = 0;
    for (int64_t k = row * w; k < (row + 1) * w; ++k) {
        int32_t col = col_ids[k];
        if (col < 0) continue;
        sum += static_cast<float>(values[k]) * static_cast<float>(X[col * K + j]);
    }
    Y[i] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t spmm_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* X, scalar_t* Y,
                                int64_t rows, int64_t cols, int64_t w, int64_t K, void* workspace,
                                size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    spmm_ell_kernel<<<(rows * K + threads - 1) / threads, threads, 0, stream>>>(values, col_ids, X, Y, rows, cols, w, K);
    return cudaGetLastError();
}
