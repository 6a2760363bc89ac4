// Matrix times vector, one thread per row.

__global__ void matrix_vector_mul_kernel(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t N) {
    int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row >= M) return;
    float sum = 0;
    for (int64_t j = 0; j < N; ++j) {
        sum += static_cast<float>(A[row * N + j]) * static_cast<float>(x[j]);
    }
    y[row] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t matrix_vector_mul(const scalar_t* A, const scalar_t* x, scalar_t* y, int64_t M, int64_t N,
                                         void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    matrix_vector_mul_kernel<<<(M + threads - 1) / threads, threads, 0, stream>>>(A, x, y, M, N);
    return cudaGetLastError();
}
