// Sparse matrix times vector in COO, one thread per entry. Products are added in fp32 in the workspace and rounded at the end.

__global__ void add_products(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                             const scalar_t* x, float* sums, int64_t nnz) {
    int64_t k = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (k >= nnz) return;
    float product = static_cast<float>(values[k]) * static_cast<float>(x[col_indices[k]]);
    atomicAdd(&sums[row_indices[k]], product);
}

__global__ void round_sums(const float* sums, scalar_t* y, int64_t rows) {
    int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row >= rows) return;
    y[row] = static_cast<scalar_t>(sums[row]);
}

extern "C" size_t spmv_coo_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    return rows * sizeof(float);
}

extern "C" cudaError_t spmv_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    float* sums = static_cast<float*>(workspace);
    cudaMemsetAsync(sums, 0, rows * sizeof(float), stream);
    add_products<<<(nnz + threads - 1) / threads, threads, 0, stream>>>(values, row_indices, col_indices, x, sums, nnz);
    round_sums<<<(rows + threads - 1) / threads, threads, 0, stream>>>(sums, y, rows);
    return cudaGetLastError();
}
