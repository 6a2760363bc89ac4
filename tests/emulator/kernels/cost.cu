// What a CUDA thread costs on the cpu executor: ``python -m tests.emulator.cost`` times these. No test.
#include "testing.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
template <int barriers>
__global__ void add_behind_barriers(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    for (int k = 0; k < barriers; ++k) __syncthreads();
    c[i] = x + b[i];
}
__global__ void add_over_warp(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
    for (int d = 16; d > 0; d /= 2) x += __shfl_down_sync(0xffffffffu, x, d);
    c[i] = x + b[i];
}

EXPORT void no_barrier(const float* a, const float* b, float* c, int n) { add<<<n / 256, 256>>>(a, b, c, n); }
EXPORT void one_barrier(const float* a, const float* b, float* c, int n) { add_behind_barriers<1><<<n / 256, 256>>>(a, b, c, n); }
EXPORT void eleven_barriers(const float* a, const float* b, float* c, int n) { add_behind_barriers<11><<<n / 256, 256>>>(a, b, c, n); }
EXPORT void five_shuffles(const float* a, const float* b, float* c, int n) { add_over_warp<<<n / 256, 256>>>(a, b, c, n); }
EXPORT void one_block(const float* a, const float* b, float* c, int n) { add<<<1, 32>>>(a, b, c, n); }
