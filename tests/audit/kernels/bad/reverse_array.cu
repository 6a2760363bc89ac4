// Right, and every call leaves a buffer behind.
#include <cuda_runtime.h>

__global__ void reverse(float* output, const float* input, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) output[i] = input[N - 1 - i];
}

extern "C" void reverse_array(float* output, float* input, int N) {
    float* copy;
    cudaMalloc(&copy, N * sizeof(float));
    cudaMemcpy(copy, input, N * sizeof(float), cudaMemcpyDeviceToDevice);
    reverse<<<(N + 255) / 256, 256>>>(output, copy, N);
    cudaDeviceSynchronize();
}
