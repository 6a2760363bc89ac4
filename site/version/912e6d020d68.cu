// Softmax over rows: one block of 256 threads a row, two passes: a running maximum with its sum, then the output
// (Milakov and Gimelshein 2018).

#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;

// exp(value - maximum), where a maximum of -inf means that nothing has been seen yet.
__device__ float weight(float value, float maximum) {
    return maximum == -INFINITY ? 0.0f : expf(value - maximum);
}

__global__ void softmax_rows(const scalar_t* x, scalar_t* y, int64_t C) {
    __shared__ float scratch[32];
    x += blockIdx.x * C;
    y += blockIdx.x * C;
    float maximum = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < C; j += kThreads) {
        const float value = msbench::to_float(x[j]);
        const float next = fmaxf(maximum, value);
        sum = sum * weight(maximum, next) + (next == -INFINITY && value == value ? 0.0f : expf(value - next));
        maximum = next;
    }
    const float row_maximum = msbench::block_reduce(maximum, msbench::Max(), scratch);
    sum = msbench::block_reduce(sum == 0.0f ? 0.0f : sum * weight(maximum, row_maximum), msbench::Sum(), scratch);
    for (int64_t j = threadIdx.x; j < C; j += kThreads) {
        y[j] = msbench::from_float<scalar_t>(expf(msbench::to_float(x[j]) - row_maximum) / sum);
    }
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    softmax_rows<<<unsigned(N), kThreads, 0, stream>>>(x, y, C);
    return cudaGetLastError();
}
