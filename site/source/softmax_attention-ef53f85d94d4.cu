// Softmax attention: scores, a softmax over each row and the weighted sum are a kernel each; scores are kept in fp32.

__global__ void scores_kernel(const scalar_t* Q, const scalar_t* K, float* scores, int64_t q, int64_t kv, int64_t d) {
    int64_t element = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (element >= q * kv) return;
    int64_t row = element / kv;
    int64_t column = element % kv;
    float sum = 0;
    for (int64_t k = 0; k < d; ++k) sum += static_cast<float>(Q[row * d + k]) * static_cast<float>(K[column * d + k]);
    scores[element] = sum / sqrtf(static_cast<float>(d));
}

__global__ void softmax_kernel(float* scores, int64_t q, int64_t kv) {
    int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (row >= q) return;
    scores += row * kv;
    float maximum = -INFINITY;
    for (int64_t j = 0; j < kv; ++j) maximum = fmaxf(maximum, scores[j]);
    float sum = 0;
    for (int64_t j = 0; j < kv; ++j) sum += expf(scores[j] - maximum);
    for (int64_t j = 0; j < kv; ++j) scores[j] = expf(scores[j] - maximum) / sum;
}

__global__ void weighted_sum_kernel(const float* weights, const scalar_t* V, scalar_t* Y, int64_t q, int64_t kv,
                                    int64_t dv) {
    int64_t element = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (element >= q * dv) return;
    int64_t row = element / dv;
    int64_t column = element % dv;
    float sum = 0;
    for (int64_t j = 0; j < kv; ++j) sum += weights[row * kv + j] * static_cast<float>(V[j * dv + column]);
    Y[element] = static_cast<scalar_t>(sum);
}

extern "C" size_t softmax_attention_workspace(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return q * kv * sizeof(float);
}

extern "C" cudaError_t softmax_attention(const scalar_t* Q, const scalar_t* K, const scalar_t* V, scalar_t* Y,
                                         int64_t q, int64_t kv, int64_t d, int64_t dv, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    float* scores = static_cast<float*>(workspace);
    const int threads = 256;
    scores_kernel<<<(q * kv + threads - 1) / threads, threads, 0, stream>>>(Q, K, scores, q, kv, d);
    softmax_kernel<<<(q + threads - 1) / threads, threads, 0, stream>>>(scores, q, kv);
    weighted_sum_kernel<<<(q * dv + threads - 1) / threads, threads, 0, stream>>>(scores, V, Y, q, kv, dv);
    return cudaGetLastError();
}
