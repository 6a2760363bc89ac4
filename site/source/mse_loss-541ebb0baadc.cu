// Mean squared error: a few blocks add up squares, then one thread adds up what they found.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__global__ void sums_of_squares(const scalar_t* X, const scalar_t* Y, float* sums, int64_t N) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        float difference = static_cast<float>(X[i]) - static_cast<float>(Y[i]);
        own += difference * difference;
    }
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void mean(const float* sums, float* out, int64_t N) {
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    out[0] = sum / N;
}

extern "C" size_t mse_loss_workspace(int64_t N) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t mse_loss(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                size_t workspace_bytes, cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    sums_of_squares<<<kBlocks, kThreads, 0, stream>>>(X, Y, sums, N);
    mean<<<1, 1, 0, stream>>>(sums, out, N);
    return cudaGetLastError();
}
