// Dot product: a few blocks add up products, then one thread adds up what they found.

constexpr int kBlocks = 64;
constexpr int kThreads = 512;

__global__ void sums_of_products(const scalar_t* X, const scalar_t* Y, float* sums, int64_t N) {
    __shared__ float partial[kThreads];
    float own = 0;
    for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < N; i += kBlocks * kThreads) {
        own += static_cast<float>(X[i]) * static_cast<float>(Y[i]);
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
    out[0] = sum;
}

extern "C" size_t dot_product_workspace(int64_t N) {
    return kBlocks * sizeof(float);
}

extern "C" cudaError_t dot_product(const scalar_t* X, const scalar_t* Y, float* out, int64_t N, void* workspace,
                                   size_t workspace_bytes, cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    sums_of_products<<<kBlocks, kThreads, 0, stream>>>(X, Y, sums, N);
    add_up<<<1, 1, 0, stream>>>(sums, out);
    return cudaGetLastError();
}
