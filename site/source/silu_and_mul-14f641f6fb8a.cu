// y = gate/(1 + e^-gate)·value of rows [gate | value].
//
// Bound: three times y's bytes, one launch. A thread has a packet of 16 bytes of y, or of 8 where y is short, as more threads spread the misses;
// rows are the grid's y, so that nothing divides before the first load. Rows that packets don't fit go by elements.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t), kHalf = kPacket / 2, kThreads = 256;
constexpr int kHalfThreads = sizeof(scalar_t) == 4 ? 512 : 256;  // of those with 8 bytes; in fp32 0.03 us less than 256 (H200)
constexpr int64_t kFew = 1 << 20;  // elements of y up to which a thread has 8 bytes

struct SiluAndMul {
    __device__ float operator()(float gate, float value) const { return msbench::gated(gate, value, -msbench::kLog2e); }
};

// `groups` of kWidth a row of y.
template <int kWidth, int kThreads>
__global__ void __launch_bounds__(kThreads) silu_rows(const scalar_t* x, scalar_t* y, int groups) {
    const int64_t row = blockIdx.y;
    const int at = blockIdx.x * kThreads + threadIdx.x;
    if (at >= groups) return;
    const auto gate = msbench::load_group<kWidth>(x, row * 2 * groups + at);
    const auto value = msbench::load_group<kWidth>(x, (row * 2 + 1) * groups + at);
    msbench::store_group(y, row * groups + at, msbench::mapped<scalar_t>(SiluAndMul(), gate, value));
}

}  // namespace

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void*, size_t,
                                    cudaStream_t stream) {
    const bool packets = D % kPacket == 0 && msbench::packets_allowed(x, y), half = packets && B * D <= kFew;
    const int groups = static_cast<int>(half ? D / kHalf : packets ? D / kPacket : D);
    const int threads = half ? kHalfThreads : kThreads;
    const dim3 blocks(static_cast<unsigned>(msbench::ceil_div(groups, threads)), static_cast<unsigned>(B));
    const auto kernel = half ? silu_rows<kHalf, kHalfThreads> : packets ? silu_rows<kPacket, kThreads> : silu_rows<1, kThreads>;
    kernel<<<blocks, threads, 0, stream>>>(x, y, groups);
    return cudaGetLastError();
}
