// y = x·P(x), P(x) = (1 + erf(x/√2))/2 the normal distribution.
//
// Bound: two arrays' bytes, one launch; see msbench_packets.cuh. P(-a) = 2^Q(a) with one polynomial for all a >= 0, and
// P(a) = 1 - P(-a): some 16 instructions an element, of 30 that a bf16 map has time for at full bandwidth, and no cancellation where
// x is negative.
//
// From 2^15 to 2^17 elements, packets of 16 bytes in blocks of two warps: as many blocks as with two elements a thread in blocks of
// eight warps, which spread the misses as well, and a quarter of the warps to start.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

struct Gelu {
    __device__ float operator()(float x) const {
        const float a = fabsf(x);
        // Minimax of log2(erfc(a/√2)/2) on [0, 5.4] for an error of P that may be 2^-23·(1 + 6·P): within a 20th of that. Beyond, it
        // falls faster than the logarithm and to -∞, so that P(-∞) = 0.
        float q = -2.43237767e-6f;
        q = fmaf(q, a, 3.46706222e-5f);
        q = fmaf(q, a, -1.64497305e-4f);
        q = fmaf(q, a, -1.87221565e-4f);
        q = fmaf(q, a, 7.12559682e-3f);
        q = fmaf(q, a, -5.25360149e-2f);
        q = fmaf(q, a, -0.459196489f);
        q = fmaf(q, a, -1.15110633f);
        q = fmaf(q, a, -1.0f);
        const float below = msbench::exp2_fast(q);
        return x * (x < 0.0f ? below : 1.0f - below);
    }
};

constexpr int kPacket = 16 / sizeof(scalar_t), kThreads = 64;

__global__ void __launch_bounds__(kThreads) packets_of_two_warps(const scalar_t* x, scalar_t* y, int packets) {
    const int at = blockIdx.x * kThreads + threadIdx.x;
    if (at < packets) msbench::store_group(y, at, msbench::mapped<scalar_t>(Gelu(), msbench::load_group<kPacket>(x, at)));
}

}  // namespace

extern "C" cudaError_t gelu(const scalar_t* x, scalar_t* y, int64_t N, void*, size_t, cudaStream_t stream) {
    const bool medium = N >= 1 << 15 && N < msbench::kManyElements;
    if (!medium || N % kPacket != 0 || !msbench::packets_allowed(x, y)) return msbench::map(stream, N, Gelu(), y, x);
    const int packets = static_cast<int>(N / kPacket);
    packets_of_two_warps<<<static_cast<unsigned>(msbench::ceil_div(packets, kThreads)), kThreads, 0, stream>>>(x, y, packets);
    return cudaGetLastError();
}
