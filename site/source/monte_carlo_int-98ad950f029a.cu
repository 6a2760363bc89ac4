// Monte Carlo integral: a few blocks add up samples, then one thread adds up what they found and scales it.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__global__ void sums_of_samples(const scalar_t* y, float* sums, int64_t N) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        own += static_cast<float>(y[i]);
    }
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void integral(const float* sums, scalar_t* out, float a, float b, int64_t N) {
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    out[0] = static_cast<scalar_t>((b - a) / N * sum);
}

extern "C" size_t monte_carlo_int_workspace(float a, float b, int64_t N) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t monte_carlo_int(const scalar_t* y, scalar_t* out, float a, float b, int64_t N, void* workspace,
                                       size_t workspace_bytes, cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    sums_of_samples<<<kBlocks, kThreads, 0, stream>>>(y, sums, N);
    integral<<<1, 1, 0, stream>>>(sums, out, a, b, N);
    return cudaGetLastError();
}
