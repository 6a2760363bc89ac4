// Takes and gives pointers of the host: radix 2, one launch a level, on bit-reversed input.
#include <cuda_runtime.h>

__global__ void reversed(float2* to, const float* re, const float* im, int N, int levels) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) to[levels ? __brev(unsigned(i)) >> (32 - levels) : 0] = make_float2(re[i], im[i]);
}

__global__ void butterflies(float2* data, int half, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N / 2) return;
    const int k = i % half, first = i / half * 2 * half + k;
    float sine, cosine;
    sincospif(-float(k) / half, &sine, &cosine);
    const float2 a = data[first], b = data[first + half];
    const float2 turned = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
    data[first] = make_float2(a.x + turned.x, a.y + turned.y);
    data[first + half] = make_float2(a.x - turned.x, a.y - turned.y);
}

__global__ void separate(float* re, float* im, const float2* data, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        re[i] = data[i].x;
        im[i] = data[i].y;
    }
}

extern "C" void FFT_optimized(const float* input_real, const float* input_img, float* output_real, float* output_img,
                              int N) {
    float *re, *im;
    float2* data;
    const size_t bytes = N * sizeof(float);
    cudaMalloc(&re, bytes);
    cudaMalloc(&im, bytes);
    cudaMalloc(&data, 2 * bytes);
    cudaMemcpy(re, input_real, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(im, input_img, bytes, cudaMemcpyHostToDevice);
    int levels = 0;
    while ((1 << levels) < N) ++levels;
    const int blocks = (N + 255) / 256;
    reversed<<<blocks, 256>>>(data, re, im, N, levels);
    for (int half = 1; half < N; half *= 2) butterflies<<<blocks, 256>>>(data, half, N);
    separate<<<blocks, 256>>>(re, im, data, N);
    cudaMemcpy(output_real, re, bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(output_img, im, bytes, cudaMemcpyDeviceToHost);
    cudaFree(re);
    cudaFree(im);
    cudaFree(data);
}
