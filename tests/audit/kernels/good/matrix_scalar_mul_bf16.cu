// Gets its scalar in bf16.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void scale(const __nv_bfloat16* A, __nv_bfloat16* B, float scalar, long long count) {
    const long long i = blockIdx.x * (long long)(blockDim.x) + threadIdx.x;
    if (i < count) B[i] = __float2bfloat16(__bfloat162float(A[i]) * scalar);
}

extern "C" void matrix_scalar_mul_bf16(const __nv_bfloat16* A, __nv_bfloat16* B, __nv_bfloat16 scalar, int M, int N) {
    const long long count = (long long)(M) * N;
    scale<<<(count + 255) / 256, 256>>>(A, B, __bfloat162float(scalar), count);
    cudaDeviceSynchronize();
}
