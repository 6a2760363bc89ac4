// Softmax over rows: one block of 256 threads a row, three passes over it.

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;

__global__ void softmax_rows(const scalar_t* x, scalar_t* y, int64_t C) {
    __shared__ float scratch[32];
    x += blockIdx.x * C;
    y += blockIdx.x * C;
    float maximum = -INFINITY;
    for (int64_t j = threadIdx.x; j < C; j += kThreads) maximum = fmaxf(maximum, msbench::to_float(x[j]));
    maximum = msbench::block_reduce(maximum, msbench::Max(), scratch);
    float sum = 0;
    for (int64_t j = threadIdx.x; j < C; j += kThreads) sum += expf(msbench::to_float(x[j]) - maximum);
    sum = msbench::block_reduce(sum, msbench::Sum(), scratch);
    for (int64_t j = threadIdx.x; j < C; j += kThreads) {
        y[j] = msbench::from_float<scalar_t>(expf(msbench::to_float(x[j]) - maximum) / sum);
    }
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    softmax_rows<<<unsigned(N), kThreads, 0, stream>>>(x, y, C);
    return cudaGetLastError();
}
