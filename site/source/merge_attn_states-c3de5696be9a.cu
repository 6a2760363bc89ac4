// Merging of two attention states, one thread per output element.

__device__ float finite(scalar_t l) {
    float value = static_cast<float>(l);
    return isinf(value) ? -3.402823466e+38f : value;
}

__global__ void merge_attn_states_kernel(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= T * H * D) return;
    int64_t token = i / (H * D);
    int64_t head = i / D % H;
    int64_t at = head * T + token;
    float a = finite(la[at]);
    float b = finite(lb[at]);
    float most = fmaxf(a, b);
    float weight_a = expf(a - most);
    float weight_b = expf(b - most);
    float sum = weight_a + weight_b;
    float value = weight_a * static_cast<float>(Va[i]) + weight_b * static_cast<float>(Vb[i]);
    V[i] = static_cast<scalar_t>(value / sum);
    if (i % D == 0) lse[at] = static_cast<scalar_t>(most + logf(sum));
}

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    const int64_t blocks = (T * H * D + threads - 1) / threads;
    merge_attn_states_kernel<<<blocks, threads, 0, stream>>>(Va, Vb, la, lb, V, lse, T, H, D);
    return cudaGetLastError();
}
