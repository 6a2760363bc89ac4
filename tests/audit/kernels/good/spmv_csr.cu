// One warp a row.
#include <cuda_runtime.h>

__global__ void rows_of(int rows, const float* values, const int* columns, const int* offsets, const float* x, float* y) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int k = offsets[row] + lane; k < offsets[row + 1]; k += 32) sum += values[k] * x[columns[k]];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) y[row] = sum;
}

extern "C" void spmv_csr(int rows, const float* values, const int* col_indices, const int* row_offsets, const float* x,
                         float* y) {
    rows_of<<<(rows + 3) / 4, 128>>>(rows, values, col_indices, row_offsets, x, y);
    cudaDeviceSynchronize();
}
