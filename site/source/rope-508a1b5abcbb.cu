// Rotary position embedding, one thread per pair.

__global__ void rope_kernel(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D) {
    int64_t index = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t pairs = D / 2;
    if (index >= M * pairs) return;
    int64_t row = index / pairs;
    int64_t pair = index % pairs;
    float angle = row * powf(base, -2.0f * pair / D);
    float sine, cosine;
    sincosf(angle, &sine, &cosine);
    float first = static_cast<float>(x[2 * index]);
    float second = static_cast<float>(x[2 * index + 1]);
    y[2 * index] = static_cast<scalar_t>(first * cosine - second * sine);
    y[2 * index + 1] = static_cast<scalar_t>(first * sine + second * cosine);
}

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    const int64_t pairs = M * (D / 2);
    rope_kernel<<<(pairs + threads - 1) / threads, threads, 0, stream>>>(x, y, base, M, D);
    return cudaGetLastError();
}
