// Matrix power by repeated squaring, one thread per element of each product; intermediate powers are kept in fp32.

template <typename Left, typename Right, typename Result>
__global__ void multiply(const Left* left, const Right* right, Result* result, int64_t N) {
    int64_t column = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t row = blockIdx.y * static_cast<int64_t>(blockDim.y) + threadIdx.y;
    if (row >= N || column >= N) return;
    float sum = 0;
    for (int64_t k = 0; k < N; ++k) {
        sum += static_cast<float>(left[row * N + k]) * static_cast<float>(right[k * N + column]);
    }
    result[row * N + column] = static_cast<Result>(sum);
}

template <typename Result>
__global__ void copy(const scalar_t* A, Result* result, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N * N) result[i] = static_cast<Result>(static_cast<float>(A[i]));
}

template <typename Result>
__global__ void round_off(const float* power, Result* result, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N * N) result[i] = static_cast<Result>(power[i]);
}

extern "C" size_t matrix_power_workspace(int64_t N, int64_t P) {
    return 2 * N * N * sizeof(float);
}

extern "C" cudaError_t matrix_power(const scalar_t* A, scalar_t* B, int64_t N, int64_t P, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    float* power = static_cast<float*>(workspace);
    float* next = power + N * N;
    const dim3 threads(32, 8);
    const dim3 blocks((N + threads.x - 1) / threads.x, (N + threads.y - 1) / threads.y);
    const int64_t flat_blocks = (N * N + 255) / 256;
    int64_t bit = 1;
    while (bit <= P / 2) bit *= 2;
    copy<<<flat_blocks, 256, 0, stream>>>(A, power, N);
    for (bit /= 2; bit > 0; bit /= 2) {
        multiply<<<blocks, threads, 0, stream>>>(power, power, next, N);
        float* squared = next;
        next = power;
        power = squared;
        if (P & bit) {
            multiply<<<blocks, threads, 0, stream>>>(power, A, next, N);
            float* multiplied = next;
            next = power;
            power = multiplied;
        }
    }
    round_off<<<flat_blocks, 256, 0, stream>>>(power, B, N);
    return cudaGetLastError();
}
