// Waits for what never comes.
#include <cuda_runtime.h>

__global__ void scan(float* output, const float* input, int N, volatile int* ready) {
    while (*ready != 1) {
    }
    output[0] = input[0];
}

extern "C" void prefix_sum(float* output, const float* input, const int N) {
    int* ready;
    cudaMalloc(&ready, sizeof(int));
    cudaMemset(ready, 0, sizeof(int));
    scan<<<1, 1>>>(output, input, N, ready);
    cudaDeviceSynchronize();
    cudaFree(ready);
}
