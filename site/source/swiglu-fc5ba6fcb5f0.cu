// SwiGLU, one thread per element.

__global__ void swiglu_kernel(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float x = static_cast<float>(gate[i]);
    float sigmoid = 1 / (1 + expf(-beta * x));
    out[i] = static_cast<scalar_t>(x * sigmoid * static_cast<float>(value[i]));
}

extern "C" cudaError_t swiglu(const scalar_t* gate, const scalar_t* value, scalar_t* out, float beta, int64_t N,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    swiglu_kernel<<<(N + threads - 1) / threads, threads, 0, stream>>>(gate, value, out, beta, N);
    return cudaGetLastError();
}
