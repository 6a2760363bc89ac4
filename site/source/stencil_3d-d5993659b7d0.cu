// One explicit step of the heat equation, one thread per point.

__global__ void stencil_3d_kernel(const scalar_t* u_old, scalar_t* u_new, float r, int64_t nx, int64_t ny, int64_t nz) {
    int64_t k = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t j = blockIdx.y * static_cast<int64_t>(blockDim.y) + threadIdx.y;
    int64_t i = blockIdx.z;
    if (j >= ny || k >= nz) return;
    int64_t at = (i * ny + j) * nz + k;
    if (i == 0 || i == nx - 1 || j == 0 || j == ny - 1 || k == 0 || k == nz - 1) {
        u_new[at] = u_old[at];
        return;
    }
    float centre = static_cast<float>(u_old[at]);
    float neighbours = static_cast<float>(u_old[at - ny * nz]) + static_cast<float>(u_old[at + ny * nz]) +
                       static_cast<float>(u_old[at - nz]) + static_cast<float>(u_old[at + nz]) +
                       static_cast<float>(u_old[at - 1]) + static_cast<float>(u_old[at + 1]);
    u_new[at] = static_cast<scalar_t>(centre + r * (neighbours - 6 * centre));
}

extern "C" cudaError_t stencil_3d(const scalar_t* u_old, scalar_t* u_new, float r, int64_t nx, int64_t ny, int64_t nz,
                                  void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const dim3 threads(32, 8);
    const dim3 blocks((nz + threads.x - 1) / threads.x, (ny + threads.y - 1) / threads.y, nx);
    stencil_3d_kernel<<<blocks, threads, 0, stream>>>(u_old, u_new, r, nx, ny, nz);
    return cudaGetLastError();
}
