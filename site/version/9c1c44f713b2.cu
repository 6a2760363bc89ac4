// RMS normalisation: up to 528 blocks add up squares; each block of the second kernel adds up what they found, once.

constexpr int kThreads = 256;
constexpr int kMaxPartials = 528;

__device__ float block_total(float own) {
    __shared__ float partial[kThreads];
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    return partial[0];
}

__global__ void sum_of_squares(const scalar_t* x, float* partials, int64_t N) {
    float own = 0;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < N; i += int64_t(gridDim.x) * kThreads) {
        float value = static_cast<float>(x[i]);
        own += value * value;
    }
    float sum = block_total(own);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* partials, int count, float epsilon, int64_t N) {
    float own = 0;
    for (int i = threadIdx.x; i < count; i += kThreads) own += partials[i];
    float root = sqrtf(block_total(own) / N + epsilon);
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float value = static_cast<float>(weight[i]) * static_cast<float>(x[i]) / root + static_cast<float>(bias[i]);
    y[i] = static_cast<scalar_t>(value);
}

extern "C" size_t rms_norm_workspace(float, int64_t) {
    return kMaxPartials * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t, cudaStream_t stream) {
    float* partials = static_cast<float*>(workspace);
    const int64_t blocks = (N + kThreads - 1) / kThreads;
    const int count = blocks < kMaxPartials ? int(blocks) : kMaxPartials;
    sum_of_squares<<<count, kThreads, 0, stream>>>(x, partials, N);
    normalise<<<blocks, kThreads, 0, stream>>>(x, weight, bias, y, partials, count, epsilon, N);
    return cudaGetLastError();
}
