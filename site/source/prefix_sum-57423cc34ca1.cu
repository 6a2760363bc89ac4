// Inclusive scan after Hillis and Steele (1986): log2(N) passes over the whole array, one thread per element.
// Sums stay in fp32, in two buffers that take turns; the last pass converts to the output type.

constexpr int kThreads = 256;

__global__ void widen(const scalar_t* x, float* sums, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N) sums[i] = static_cast<float>(x[i]);
}

__global__ void add_at_distance(const float* sums, float* next, int64_t distance, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N) next[i] = i < distance ? sums[i] : sums[i - distance] + sums[i];
}

__global__ void narrow(const float* sums, scalar_t* y, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i < N) y[i] = static_cast<scalar_t>(sums[i]);
}

extern "C" size_t prefix_sum_workspace(int64_t N) {
    return 2 * N * sizeof(float);
}

extern "C" cudaError_t prefix_sum(const scalar_t* x, scalar_t* y, int64_t N, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    float* sums = static_cast<float*>(workspace);
    float* next = sums + N;
    const int64_t blocks = (N + kThreads - 1) / kThreads;
    widen<<<blocks, kThreads, 0, stream>>>(x, sums, N);
    for (int64_t distance = 1; distance < N; distance *= 2) {
        add_at_distance<<<blocks, kThreads, 0, stream>>>(sums, next, distance, N);
        float* done = next;
        next = sums;
        sums = done;
    }
    narrow<<<blocks, kThreads, 0, stream>>>(sums, y, N);
    return cudaGetLastError();
}
