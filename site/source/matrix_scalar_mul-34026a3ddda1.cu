// Matrix times a scalar, one thread per element.

__global__ void matrix_scalar_mul_kernel(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= M * N) return;
    B[i] = static_cast<scalar_t>(a * static_cast<float>(A[i]));
}

extern "C" cudaError_t matrix_scalar_mul(const scalar_t* A, scalar_t* B, float a, int64_t M, int64_t N, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    matrix_scalar_mul_kernel<<<(M * N + threads - 1) / threads, threads, 0, stream>>>(A, B, a, M, N);
    return cudaGetLastError();
}
