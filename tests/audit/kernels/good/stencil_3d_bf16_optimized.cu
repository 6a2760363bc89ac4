// One thread a point, on a stream of its own.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

__global__ void step(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx, int ny, int nz) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y, i = blockIdx.z;
    if (k >= nz) return;
    const int plane = ny * nz, at = i * plane + j * nz + k;
    const float centre = __bfloat162float(u_old[at]);
    float value = centre;
    if (i > 0 && i < nx - 1 && j > 0 && j < ny - 1 && k > 0 && k < nz - 1) {
        float around = __bfloat162float(u_old[at - plane]) + __bfloat162float(u_old[at + plane]);
        around += __bfloat162float(u_old[at - nz]) + __bfloat162float(u_old[at + nz]);
        around += __bfloat162float(u_old[at - 1]) + __bfloat162float(u_old[at + 1]);
        value = centre + r * (around - 6.0f * centre);
    }
    u_new[at] = __float2bfloat16(value);
}

extern "C" void stencil_3d_bf16_optimized(__nv_bfloat16* u_new, const __nv_bfloat16* u_old, float r, int nx, int ny,
                                          int nz) {
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    step<<<dim3((nz + 127) / 128, ny, nx), 128, 0, stream>>>(u_new, u_old, r, nx, ny, nz);
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
}
