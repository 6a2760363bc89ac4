// Right in its array, and writes one element behind it.
#include <cuda_runtime.h>

__global__ void logistic(float* out, const float* input, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = 1.0f / (1.0f + expf(-input[i]));
    if (i == N) out[i] = 0.5f;
}

extern "C" void sigmoid_optimized(float* out, const float* input, const int N) {
    logistic<<<N / 256 + 1, 256>>>(out, input, N);
    cudaDeviceSynchronize();
}
