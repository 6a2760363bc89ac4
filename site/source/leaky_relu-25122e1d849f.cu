// Leaky ReLU, one thread per element.

__global__ void leaky_relu_kernel(const scalar_t* x, scalar_t* y, float alpha, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float value = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(value >= 0 ? value : alpha * value);
}

extern "C" cudaError_t leaky_relu(const scalar_t* x, scalar_t* y, float alpha, int64_t N, void* workspace,
                                  size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    leaky_relu_kernel<<<(N + threads - 1) / threads, threads, 0, stream>>>(x, y, alpha, N);
    return cudaGetLastError();
}
