// Uses a helper of a header that it does not include.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void gelu_kernel(__nv_bfloat16* out, const __nv_bfloat16* input, int N) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = __float2bfloat16(gelu_of(__bfloat162float(input[i])));
}

extern "C" void gelu_bf16(__nv_bfloat16* out, const __nv_bfloat16* input, const int N) {
    gelu_kernel<<<(N + 255) / 256, 256>>>(out, input, N);
}
