// SiLU of the left half of each row times its right half.
//
// Large sizes: a 16-byte packet a thread, 128 threads a block, one row in the grid's second dimension. New here, for small ones
// (fewer than 2^20 outputs, when 16-byte packets give a multiprocessor fewer than 8 warps of each scheduler's 16): an 8-byte
// packet a thread in blocks of 64 threads, 256 columns. That gives four times as many blocks, so that every multiprocessor has
// some (B=16,D=4096: 256 blocks instead of 64), and half as many instructions one after another in a thread, which are also half
// as many to fetch into a cold instruction cache. Expected: up to 4 % of the cases that are bound by the launch.
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

// One packet of `Packets` (uint2: 4 elements, uint4: 8) a thread. D is a multiple of its elements, x and y are aligned to its size;
// `columns` is D in packets.
__device__ inline uint2 both(const uint2& gate, const uint2& value) {
    return {both(gate.x, value.x), both(gate.y, value.y)};
}

__device__ inline uint4 both(const uint4& gate, const uint4& value) {
    return {both(gate.x, value.x), both(gate.y, value.y), both(gate.z, value.z), both(gate.w, value.w)};
}

template <typename Packets, int kBlock>
__global__ void __launch_bounds__(kBlock) silu_packets(const Packets* __restrict__ x, Packets* __restrict__ y, int columns) {
    const int column = blockIdx.x * kBlock + threadIdx.x;
    if (column >= columns) return;
    const int row = blockIdx.y;
    const Packets* from = x + (2 * row * columns + column);
    const Packets gate = from[0];
    const Packets value = from[columns];
    y[row * columns + column] = both(gate, value);
}

template <typename Packets, int kBlock>
void launch_packets(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, cudaStream_t stream) {
    const int columns = static_cast<int>(D / (sizeof(Packets) / sizeof(scalar_t)));
    const dim3 grid(static_cast<unsigned>(msbench::ceil_div(columns, kBlock)), static_cast<unsigned>(B));
    silu_packets<Packets, kBlock><<<grid, kBlock, 0, stream>>>(reinterpret_cast<const Packets*>(x),
                                                               reinterpret_cast<Packets*>(y), columns);
}

bool aligned(const scalar_t* x, const scalar_t* y, size_t bytes) {
    return ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & (bytes - 1)) == 0;
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
    const bool small = B * D < int64_t{1} << 20;
    if (D % 8 == 0 && !small && aligned(x, y, 16)) {
        launch_packets<uint4, kThreads>(x, y, B, D, stream);
    } else if (D % 4 == 0 && aligned(x, y, 8)) {
        launch_packets<uint2, 64>(x, y, B, D, stream);
    } else {
        const dim3 grid(static_cast<unsigned>(msbench::ceil_div(D, kThreads)), static_cast<unsigned>(B));
        silu_any<<<grid, kThreads, 0, stream>>>(x, y, static_cast<int>(D));
    }
    return cudaGetLastError();
}
