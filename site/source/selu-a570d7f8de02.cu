// SELU, one thread per element.

__global__ void selu_kernel(const scalar_t* x, scalar_t* y, float alpha, float scale, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float value = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(scale * (value >= 0 ? value : alpha * expm1f(value)));
}

extern "C" cudaError_t selu(const scalar_t* x, scalar_t* y, float alpha, float scale, int64_t N, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    selu_kernel<<<(N + threads - 1) / threads, threads, 0, stream>>>(x, y, alpha, scale, N);
    return cudaGetLastError();
}
