// Triangle attention, one thread per output: the largest score, then the weights' sum and the weighted sum.

__global__ void triangle_attention_kernel(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask,
                                          scalar_t* y, int64_t B, int64_t H, int64_t S, int64_t D) {
    int64_t element = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (element >= B * H * S * D) return;
    int64_t c = element % D;
    int64_t i = element / D % S;
    int64_t head = element / (D * S);
    int64_t b = head / H;
    k += head * S * D + c;
    v += head * S * D + c;
    mask += (b * S + i) * S;
    float query = static_cast<float>(q[element]);
    float root = sqrtf(static_cast<float>(D));
    float maximum = -INFINITY;
    for (int64_t j = 0; j <= i; ++j) {
        if (mask[j] > 0.5f) continue;
        maximum = fmaxf(maximum, query * static_cast<float>(k[j * D]) / root);
    }
    float sum = 0;
    float weighted = 0;
    bool empty = true;
    for (int64_t j = 0; j <= i; ++j) {
        if (mask[j] > 0.5f) continue;
        float weight = expf(query * static_cast<float>(k[j * D]) / root - maximum);
        sum += weight;
        weighted += weight * static_cast<float>(v[j * D]);
        empty = false;
    }
    y[element] = static_cast<scalar_t>(empty ? 0.0f : weighted / sum);
}

extern "C" cudaError_t triangle_attention(const scalar_t* q, const scalar_t* k, const scalar_t* v, const float* mask,
                                          scalar_t* y, int64_t B, int64_t H, int64_t S, int64_t D, void* workspace,
                                          size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 128;
    const int64_t blocks = (B * H * S * D + threads - 1) / threads;
    triangle_attention_kernel<<<blocks, threads, 0, stream>>>(q, k, v, mask, y, B, H, S, D);
    return cudaGetLastError();
}
