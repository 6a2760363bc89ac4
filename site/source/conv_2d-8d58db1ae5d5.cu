// Valid cross-correlation of an image with a filter, one thread per output.

__global__ void conv_2d_kernel(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t rows, int64_t columns,
                               int64_t W, int64_t KH, int64_t KW) {
    int64_t j = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    int64_t i = blockIdx.y * static_cast<int64_t>(blockDim.y) + threadIdx.y;
    if (i >= rows || j >= columns) return;
    float sum = 0;
    for (int64_t a = 0; a < KH; ++a) {
        for (int64_t b = 0; b < KW; ++b) {
            sum += static_cast<float>(w[a * KW + b]) * static_cast<float>(x[(i + a) * W + j + b]);
        }
    }
    y[i * columns + j] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t conv_2d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t H, int64_t W, int64_t KH,
                               int64_t KW, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const int64_t rows = H - KH + 1, columns = W - KW + 1;
    const dim3 threads(32, 8);
    const dim3 blocks((columns + threads.x - 1) / threads.x, (rows + threads.y - 1) / threads.y);
    conv_2d_kernel<<<blocks, threads, 0, stream>>>(x, w, y, rows, columns, W, KH, KW);
    return cudaGetLastError();
}
