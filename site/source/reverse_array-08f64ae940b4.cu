// y[i] = x[N - 1 - i], every bit of it.
//
// Bound: two arrays' bytes, one launch. A thread moves a group of 16 bytes and turns it around in registers, where the groups of x
// that N - 1 - i cuts out are on 16 bytes too: N a whole number of groups, and both arrays aligned. Else it moves an element.

#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t), kThreads = 256;

template <int kWidth>
__global__ void __launch_bounds__(kThreads) reverse(const scalar_t* x, scalar_t* y, int64_t groups) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (at >= groups) return;
    const auto group = msbench::load_group<kWidth>(x, groups - 1 - at);
    msbench::Group<scalar_t, kWidth> turned;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) turned.lane[k] = group.lane[kWidth - 1 - k];
    msbench::store_group(y, at, turned);
}

}  // namespace

extern "C" cudaError_t reverse_array(const scalar_t* x, scalar_t* y, int64_t N, void*, size_t, cudaStream_t stream) {
    const bool packets = N % kPacket == 0 && msbench::packets_allowed(x, y);
    const int64_t groups = packets ? N / kPacket : N;
    const auto kernel = packets ? reverse<kPacket> : reverse<1>;
    kernel<<<static_cast<unsigned>(msbench::ceil_div(groups, kThreads)), kThreads, 0, stream>>>(x, y, groups);
    return cudaGetLastError();
}
