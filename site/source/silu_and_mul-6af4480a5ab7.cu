// SiLU of the left half of each row times its right half, one thread per output.

__global__ void silu_and_mul_kernel(const scalar_t* x, scalar_t* y, int64_t B, int64_t D) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= B * D) return;
    int64_t row = i / D;
    int64_t column = i % D;
    float gate = static_cast<float>(x[row * 2 * D + column]);
    float value = static_cast<float>(x[row * 2 * D + D + column]);
    float silu = gate / (1 + expf(-gate));
    y[i] = static_cast<scalar_t>(silu * value);
}

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    silu_and_mul_kernel<<<(B * D + threads - 1) / threads, threads, 0, stream>>>(x, y, B, D);
    return cudaGetLastError();
}
