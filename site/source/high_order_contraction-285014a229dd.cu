// Contraction over two indices, one thread per element of C.

__global__ void contraction_kernel(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t a, int64_t b, int64_t c,
                                   int64_t x, int64_t y) {
    int64_t element = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
    if (element >= a * b * c) return;
    int64_t ic = element % c;
    int64_t ib = element / c % b;
    int64_t ia = element / (b * c);
    float sum = 0;
    for (int64_t ix = 0; ix < x; ++ix) {
        const scalar_t* row = A + ((ia * x + ix) * b + ib) * y;
        const scalar_t* column = B + (ix * c + ic) * y;
        for (int64_t iy = 0; iy < y; ++iy) sum += static_cast<float>(row[iy]) * static_cast<float>(column[iy]);
    }
    C[element] = static_cast<scalar_t>(sum);
}

extern "C" cudaError_t high_order_contraction(const scalar_t* A, const scalar_t* B, scalar_t* C, int64_t a, int64_t b,
                                              int64_t c, int64_t x, int64_t y, void* workspace, size_t workspace_bytes,
                                              cudaStream_t stream) {
    const int threads = 256;
    const int64_t blocks = (a * b * c + threads - 1) / threads;
    contraction_kernel<<<blocks, threads, 0, stream>>>(A, B, C, a, b, c, x, y);
    return cudaGetLastError();
}
