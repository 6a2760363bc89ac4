// Max pooling, one thread per output. Padding is skipped; a NaN stays, since nothing compares greater than it.

__global__ void max_pooling_2d_kernel(const scalar_t* x, scalar_t* y, int64_t outputs, int64_t rows, int64_t columns,
                                      int64_t H, int64_t W, int64_t k, int64_t stride, int64_t padding) {
    int64_t at = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (at >= outputs) return;
    int64_t j = at % columns;
    int64_t i = at / columns % rows;
    const scalar_t* image = x + at / columns / rows * H * W;
    float largest = -INFINITY;
    for (int64_t a = 0; a < k; ++a) {
        for (int64_t b = 0; b < k; ++b) {
            int64_t row = i * stride - padding + a;
            int64_t column = j * stride - padding + b;
            if (row < 0 || row >= H || column < 0 || column >= W) continue;
            float value = static_cast<float>(image[row * W + column]);
            if (value > largest || isnan(value)) largest = value;
        }
    }
    y[at] = static_cast<scalar_t>(largest);
}

extern "C" cudaError_t max_pooling_2d(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, int64_t H, int64_t W,
                                      int64_t k, int64_t stride, int64_t padding, void* workspace,
                                      size_t workspace_bytes, cudaStream_t stream) {
    const int64_t rows = (H + 2 * padding - k) / stride + 1;
    const int64_t columns = (W + 2 * padding - k) / stride + 1;
    const int64_t outputs = N * C * rows * columns;
    const int threads = 256;
    const int64_t blocks = (outputs + threads - 1) / threads;
    max_pooling_2d_kernel<<<static_cast<unsigned>(blocks), threads, 0, stream>>>(x, y, outputs, rows, columns, H, W, k,
                                                                                 stride, padding);
    return cudaGetLastError();
}
