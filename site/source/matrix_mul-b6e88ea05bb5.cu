// Matrix multiplication, one thread per element of C.

__global__ void matrix_mul_kernel(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K) {
    int64_t column = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t row = blockIdx.y * static_cast<int64_t>(blockDim.y) + threadIdx.y;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) {
        sum += static_cast<float>(A[row * K + k]) * static_cast<float>(B[k * N + column]);
    }
    C[row * N + column] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t matrix_mul(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t M, int64_t N, int64_t K,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const dim3 threads(32, 8);
    const dim3 blocks((N + threads.x - 1) / threads.x, (M + threads.y - 1) / threads.y);
    matrix_mul_kernel<<<blocks, threads, 0, stream>>>(A, B, C, M, N, K);
    return cudaGetLastError();
}
