// Cross entropy: a few blocks add up Y·ln X, then one thread adds up what they found.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__global__ void sums_of_terms(const scalar_t* X, const scalar_t* Y, float* sums, int64_t C) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < C; i += kBlocks * kThreads) {
        own += static_cast<float>(Y[i]) * logf(fmaxf(static_cast<float>(X[i]), 1e-8f));
    }
    partial[threadIdx.x] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = partial[0];
}

__global__ void add_up(const float* sums, float* out) {
    float sum = 0;
    for (int block = 0; block < kBlocks; ++block) sum += sums[block];
    out[0] = -sum;
}

extern "C" size_t cross_entropy_loss_workspace(int64_t C) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t cross_entropy_loss(const scalar_t* X, const scalar_t* Y, float* out, int64_t C,
                                          void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    sums_of_terms<<<kBlocks, kThreads, 0, stream>>>(X, Y, sums, C);
    add_up<<<1, 1, 0, stream>>>(sums, out);
    return cudaGetLastError();
}
