// Matrix transposition, one thread per element: reads along rows, writes down columns.

__global__ void matrix_transpose_kernel(const scalar_t* A, scalar_t* B, int64_t M, int64_t N) {
    int64_t column = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t row = blockIdx.y * static_cast<int64_t>(blockDim.y) + threadIdx.y;
    if (row < M && column < N) B[column * M + row] = A[row * N + column];
}

extern "C" cudaError_t matrix_transpose(const scalar_t* A, scalar_t* B, int64_t M, int64_t N, void* workspace,
                                        size_t workspace_bytes, cudaStream_t stream) {
    const dim3 threads(32, 8);
    const dim3 blocks((N + threads.x - 1) / threads.x, (M + threads.y - 1) / threads.y);
    matrix_transpose_kernel<<<blocks, threads, 0, stream>>>(A, B, M, N);
    return cudaGetLastError();
}
