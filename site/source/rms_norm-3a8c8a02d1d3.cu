// RMS normalisation: a few blocks add up squares, then one thread per output adds up what they found.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__global__ void sums_of_squares(const scalar_t* x, float* sums, int64_t N) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        float value = static_cast<float>(x[i]);
        own += value * value;
    }
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void normalise(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                          const float* sums, float epsilon, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    float root = sqrtf(sum / N + epsilon);
    float value = static_cast<float>(weight[i]) * static_cast<float>(x[i]) / root + static_cast<float>(bias[i]);
    y[i] = static_cast<scalar_t>(value);
}

extern "C" size_t rms_norm_workspace(float epsilon, int64_t N) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t rms_norm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                                float epsilon, int64_t N, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    const int threads = 256;
    sums_of_squares<<<kBlocks, kThreads, 0, stream>>>(x, sums, N);
    normalise<<<(N + threads - 1) / threads, threads, 0, stream>>>(x, weight, bias, y, sums, epsilon, N);
    return cudaGetLastError();
}
