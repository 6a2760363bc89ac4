// Sparse matrix times vector in ELL, one thread per row.

__global__ void spmv_ell_kernel(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t w) {
    int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int64_t k = row * w; k < (row + 1) * w; ++k) {
        int32_t col = col_ids[k];
        if (col < 0) continue;
        sum += static_cast<float>(values[k]) * static_cast<float>(x[col]);
    }
    y[row] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const int threads = 128;
    spmv_ell_kernel<<<(rows + threads - 1) / threads, threads, 0, stream>>>(values, col_ids, x, y, rows, w);
    return cudaGetLastError();
}
