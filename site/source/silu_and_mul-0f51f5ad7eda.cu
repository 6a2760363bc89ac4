// SiLU of the left half of each row times its right half.
//
// Every thread handles one 16-byte packet: 8 elements of the left half, the 8 of the right half beside them, and 8 of y, so that a
// multiprocessor has 64 KiB of loads in flight. A block has 128 threads, 1024 columns of one row; the grid's second dimension is
// the row, so nothing is divided. exp and the reciprocal are the fast ones. Expected: the copy bandwidth for large sizes,
// launch plus one DRAM latency for small ones.
#include "msbench.cuh"

namespace {

constexpr int kThreads = 128;

// A sigmoid below 2^-126 may become 0; NaN and the infinities come out as by the definition (-inf * 0 is NaN).
__device__ inline float silu_times(float gate, float value) {
    return gate * __fdividef(1.0f, 1.0f + __expf(-gate)) * value;
}

__device__ inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ inline uint32_t both(uint32_t gate, uint32_t value) {
    const uint32_t a = __bfloat16_as_ushort(__float2bfloat16_rn(silu_times(low(gate), low(value))));
    const uint32_t b = __bfloat16_as_ushort(__float2bfloat16_rn(silu_times(high(gate), high(value))));
    return a | b << 16;
}

// D is a multiple of 8, x and y are aligned to 16 bytes; D8 = D / 8.
__global__ void __launch_bounds__(kThreads) silu_packets(const uint4* __restrict__ x, uint4* __restrict__ y, int D8) {
    const int column = blockIdx.x * kThreads + threadIdx.x;
    if (column >= D8) return;
    const int row = blockIdx.y;
    const uint4 gate = x[row * 2 * D8 + column];
    const uint4 value = x[row * 2 * D8 + D8 + column];
    y[row * D8 + column] = {both(gate.x, value.x), both(gate.y, value.y), both(gate.z, value.z), both(gate.w, value.w)};
}

__global__ void __launch_bounds__(kThreads) silu_any(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int D) {
    const int column = blockIdx.x * kThreads + threadIdx.x;
    if (column >= D) return;
    const int row = blockIdx.y;
    const float gate = __bfloat162float(x[row * 2 * D + column]);
    const float value = __bfloat162float(x[row * 2 * D + D + column]);
    y[row * D + column] = __float2bfloat16_rn(silu_times(gate, value));
}

}  // namespace

// 2 B D is at most 2^29, so that 32-bit indices are enough; B is at most 16384, so that it fits the grid's second dimension.
extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    if (D % 8 == 0 && msbench::packets_allowed(x, y)) {
        const int D8 = static_cast<int>(D / 8);
        const dim3 grid(static_cast<unsigned>(msbench::ceil_div(D8, kThreads)), static_cast<unsigned>(B));
        silu_packets<<<grid, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(x), reinterpret_cast<uint4*>(y), D8);
    } else {
        const dim3 grid(static_cast<unsigned>(msbench::ceil_div(D, kThreads)), static_cast<unsigned>(B));
        silu_any<<<grid, kThreads, 0, stream>>>(x, y, static_cast<int>(D));
    }
    return cudaGetLastError();
}
