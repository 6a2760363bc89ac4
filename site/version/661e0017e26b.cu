// Softmax over rows: a block of 256 threads keeps a whole row in its registers: one read, one exponential an element, one write.

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int kMaxColumns = 16384;

template <int kHeld>
__global__ void __launch_bounds__(kThreads) softmax_rows(const scalar_t* x, scalar_t* y, int C) {
    __shared__ float scratch[32];
    x += int64_t(blockIdx.x) * C;
    y += int64_t(blockIdx.x) * C;
    float values[kHeld];
    float maximum = -INFINITY;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int j = i * kThreads + threadIdx.x;
        values[i] = j < C ? msbench::to_float(x[j]) : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) maximum = fmaxf(maximum, values[i]);
    maximum = __reduce_max_sync(0xffffffffu, maximum);
    maximum = msbench::block_reduce(maximum, msbench::Max(), scratch);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        values[i] = expf(values[i] - maximum);
        sum += values[i];
    }
    sum = msbench::block_reduce(sum, msbench::Sum(), scratch);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int j = i * kThreads + threadIdx.x;
        if (j < C) y[j] = msbench::from_float<scalar_t>(values[i] / sum);
    }
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    if (C > kMaxColumns) return cudaErrorInvalidValue;
    if (C <= 4 * kThreads) {
        softmax_rows<4><<<unsigned(N), kThreads, 0, stream>>>(x, y, int(C));
    } else if (C <= 16 * kThreads) {
        softmax_rows<16><<<unsigned(N), kThreads, 0, stream>>>(x, y, int(C));
    } else {
        softmax_rows<64><<<unsigned(N), kThreads, 0, stream>>>(x, y, int(C));
    }
    return cudaGetLastError();
}
