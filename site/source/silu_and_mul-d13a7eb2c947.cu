// SiLU of the left half of each row times its right half: what a good programmer writes without measuring.
//
// A thread makes one packet of 16 bytes where rows and addresses allow it, else one element. A row is the grid's y, so
// that there is no division.
#include <msbench.cuh>

constexpr int kThreads = 128;

__device__ inline float silu_and_mul(float gate, float value) {
    return __fdividef(gate, 1.0f + __expf(-gate)) * value;
}

__global__ void __launch_bounds__(kThreads) by_packets(const scalar_t* x, scalar_t* y, int64_t packets) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t row = blockIdx.y;
    if (i >= packets) return;
    const auto gate = msbench::load_packet(x, row * 2 * packets + i);
    const auto value = msbench::load_packet(x, (row * 2 + 1) * packets + i);
    msbench::Packet<scalar_t> result;
#pragma unroll
    for (int k = 0; k < result.kSize; ++k) {
        const float g = msbench::to_float(gate.lane[k]), v = msbench::to_float(value.lane[k]);
        result.lane[k] = msbench::from_float<scalar_t>(silu_and_mul(g, v));
    }
    msbench::store_packet(y, row * packets + i, result);
}

__global__ void __launch_bounds__(kThreads) by_elements(const scalar_t* x, scalar_t* y, int64_t D) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const int64_t row = blockIdx.y;
    if (i >= D) return;
    const float gate = msbench::to_float(x[row * 2 * D + i]), value = msbench::to_float(x[(row * 2 + 1) * D + i]);
    y[row * D + i] = msbench::from_float<scalar_t>(silu_and_mul(gate, value));
}

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    constexpr int kSize = msbench::Packet<scalar_t>::kSize;
    const bool packed = D % kSize == 0 && msbench::packets_allowed(x, y);
    const int64_t width = packed ? D / kSize : D;
    const dim3 blocks(msbench::ceil_div(width, kThreads), B);  // B is at most 2^14
    if (packed) {
        by_packets<<<blocks, kThreads, 0, stream>>>(x, y, width);
    } else {
        by_elements<<<blocks, kThreads, 0, stream>>>(x, y, width);
    }
    return cudaGetLastError();
}
