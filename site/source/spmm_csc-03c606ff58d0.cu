// Sparse matrix in CSC times dense matrix, one thread per element of X. Products are added in fp32 in the workspace and
// rounded at the end.

__global__ void add_products(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                             const scalar_t* X, float* sums, int64_t cols, int64_t K) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= cols * K) return;
    int64_t col = i / K;
    int64_t j = i % K;
    for (int32_t k = col_offsets[col]; k < col_offsets[col + 1]; ++k) {
        float product = static_cast<float>(values[k]) * static_cast<float>(X[i]);
        atomicAdd(&sums[row_indices[k] * K + j], product);
    }
}

__global__ void round_sums(const float* sums, scalar_t* Y, int64_t size) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= size) return;
    Y[i] = static_cast<scalar_t>(sums[i]);
}

extern "C" size_t spmm_csc_workspace(int64_t rows, int64_t cols, int64_t nnz, int64_t K) {
    return rows * K * sizeof(float);
}

extern "C" cudaError_t spmm_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* X, scalar_t* Y, int64_t rows, int64_t cols, int64_t nnz, int64_t K,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    float* sums = static_cast<float*>(workspace);
    cudaMemsetAsync(sums, 0, rows * K * sizeof(float), stream);
    add_products<<<(cols * K + threads - 1) / threads, threads, 0, stream>>>(values, row_indices, col_offsets, X, sums,
                                                                            cols, K);
    round_sums<<<(rows * K + threads - 1) / threads, threads, 0, stream>>>(sums, Y, rows * K);
    return cudaGetLastError();
}
