// Hinge loss, one thread per element.

__global__ void hinge_loss_kernel(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N) {
    int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (i >= N) return;
    float y = targets[i] == 0 ? -1 : 1;
    float margin = 1 - y * static_cast<float>(predictions[i]);
    losses[i] = static_cast<scalar_t>(margin < 0 ? 0 : margin);
}

extern "C" cudaError_t hinge_loss(const scalar_t* predictions, const int32_t* targets, scalar_t* losses, int64_t N,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int threads = 256;
    hinge_loss_kernel<<<(N + threads - 1) / threads, threads, 0, stream>>>(predictions, targets, losses, N);
    return cudaGetLastError();
}
