// Valid cross-correlation of a signal with a filter, one thread per output.

__global__ void conv_1d_kernel(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N - K + 1) return;
    float sum = 0;
    for (int64_t k = 0; k < K; ++k) {
        sum += static_cast<float>(w[k]) * static_cast<float>(x[i + k]);
    }
    y[i] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t conv_1d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K, void* workspace,
                               size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    const int64_t blocks = (N - K + 1 + threads - 1) / threads;
    conv_1d_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(x, w, y, N, K);
    return cudaGetLastError();
}
