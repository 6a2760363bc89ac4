// Softmax over rows: one warp a row, three passes over it, maximum and sum combined by shuffles.

#include "msbench.cuh"

namespace {

constexpr int kWarps = 4;

__global__ void softmax_rows(const scalar_t* x, scalar_t* y, int64_t N, int64_t C) {
    const int lane = threadIdx.x % 32;
    const int64_t row = int64_t(blockIdx.x) * kWarps + threadIdx.x / 32;
    if (row >= N) return;
    x += row * C;
    y += row * C;
    float maximum = -INFINITY;
    for (int64_t j = lane; j < C; j += 32) maximum = fmaxf(maximum, msbench::to_float(x[j]));
    maximum = msbench::warp_reduce(maximum, msbench::Max());
    float sum = 0;
    for (int64_t j = lane; j < C; j += 32) sum += expf(msbench::to_float(x[j]) - maximum);
    sum = msbench::warp_reduce(sum, msbench::Sum());
    for (int64_t j = lane; j < C; j += 32)
        y[j] = msbench::from_float<scalar_t>(expf(msbench::to_float(x[j]) - maximum) / sum);
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    softmax_rows<<<unsigned(msbench::ceil_div(N, kWarps)), kWarps * 32, 0, stream>>>(x, y, N, C);
    return cudaGetLastError();
}
