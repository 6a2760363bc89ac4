// Layer normalisation: a few blocks add up x, then squared distances from the mean; then one thread per output adds up what
// they found.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__device__ float total(const float* sums) {
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    return sum;
}

// The sum of this block's values, for its first thread.
__device__ void write_sum(float own, float* sums) {
    __shared__ float partial[kThreads];
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void sum_up(const scalar_t* x, float* sums, int64_t N) {
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        own += static_cast<float>(x[i]);
    }
    write_sum(own, sums);
}

__global__ void sum_up_squares(const scalar_t* x, const float* sums, float* squares, int64_t N) {
    const float mean = total(sums) / N;
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        const float distance = static_cast<float>(x[i]) - mean;
        own += distance * distance;
    }
    write_sum(own, squares);
}

__global__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* sums, const float* squares, float epsilon, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    const float mean = total(sums) / N;
    const float deviation = sqrtf(total(squares) / N + epsilon);
    const float value = (static_cast<float>(x[i]) - mean) / deviation;
    y[i] = static_cast<scalar_t>(static_cast<float>(weight[i]) * value + static_cast<float>(bias[i]));
}

extern "C" size_t layer_norm_workspace(float epsilon, int64_t N) {
    return 2 * kBlocks * sizeof(float);
}

extern "C" cudaError_t layer_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                  float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    float* squares = sums + kBlocks;
    const int threads = 256;
    sum_up<<<kBlocks, kThreads, 0, stream>>>(x, sums, N);
    sum_up_squares<<<kBlocks, kThreads, 0, stream>>>(x, sums, squares, N);
    normalise<<<(N + threads - 1) / threads, threads, 0, stream>>>(x, weight, bias, y, sums, squares, epsilon, N);
    return cudaGetLastError();
}
