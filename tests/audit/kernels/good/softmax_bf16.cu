// One block a row, three passes; the row's maximum and sum go through memory that each call allocates and frees.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void statistics(float* most, float* total, const __nv_bfloat16* input, int C) {
    __shared__ float shared[256];
    const __nv_bfloat16* row = input + size_t(blockIdx.x) * C;
    float largest = __bfloat162float(row[0]);
    for (int i = threadIdx.x; i < C; i += blockDim.x) largest = fmaxf(largest, __bfloat162float(row[i]));
    shared[threadIdx.x] = largest;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    }
    __syncthreads();
    largest = shared[0];
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) sum += expf(__bfloat162float(row[i]) - largest);
    shared[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        most[blockIdx.x] = largest;
        total[blockIdx.x] = shared[0];
    }
}

__global__ void divide(__nv_bfloat16* out, const __nv_bfloat16* input, const float* most, const float* total, int C) {
    for (int i = threadIdx.x; i < C; i += blockDim.x) {
        const size_t place = size_t(blockIdx.x) * C + i;
        out[place] = __float2bfloat16(expf(__bfloat162float(input[place]) - most[blockIdx.x]) / total[blockIdx.x]);
    }
}

extern "C" void softmax_bf16(__nv_bfloat16* out, const __nv_bfloat16* input, int N, int C) {
    float *most, *total;
    cudaMalloc(&most, N * sizeof(float));
    cudaMalloc(&total, N * sizeof(float));
    statistics<<<N, 256>>>(most, total, input, C);
    divide<<<N, 256>>>(out, input, most, total, C);
    cudaDeviceSynchronize();
    cudaFree(most);
    cudaFree(total);
}
