// Four elements a thread where the address allows it, and a tail: right for every size.
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void relu_packets(float* output, const float* input, int N) {
    const int packets = N / 4;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < packets; i += gridDim.x * blockDim.x) {
        float4 v = reinterpret_cast<const float4*>(input)[i];
        v.x = v.x < 0.0f ? 0.0f : v.x;
        v.y = v.y < 0.0f ? 0.0f : v.y;
        v.z = v.z < 0.0f ? 0.0f : v.z;
        v.w = v.w < 0.0f ? 0.0f : v.w;
        reinterpret_cast<float4*>(output)[i] = v;
    }
    const int i = packets * 4 + blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) output[i] = input[i] < 0.0f ? 0.0f : input[i];
}

__global__ void relu_elements(float* output, const float* input, int N) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x)
        output[i] = input[i] < 0.0f ? 0.0f : input[i];
}

extern "C" void RELU_optimized(float* output, const float* input, int N) {
    const int blocks = (N / 4 + 255) / 256 + 1;
    if ((reinterpret_cast<uintptr_t>(input) | reinterpret_cast<uintptr_t>(output)) % 16 == 0)
        relu_packets<<<blocks, 256>>>(output, input, N);
    else
        relu_elements<<<blocks, 256>>>(output, input, N);
    cudaDeviceSynchronize();
}
