// Rotary position embedding: pair p of row m turns by m·base^(-2p/D).
//
// Bound: two arrays' bytes, one launch, and some ten instructions an element. A thread has a packet of one row, and finds its
// frequencies while it is on its way: a power of two each, so that several rows a thread, which would share them, gain nothing. Sine
// and cosine are the fast ones, which are good to 2^-21.2 within ±π and nowhere else, so the angle is reduced first.

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t);
constexpr int kAcross = 64, kDown = 4;  // threads of a block: packets of a row, rows

// The angle less a multiple of 2π, in [-π, π]. Up to 2^14 the multiple is below 2^12, so that its product with the first part of 2π
// and the difference round only once.
__device__ float reduced(float angle) {
    constexpr float kTurns = 0.159154943f, kFirst = 6.28318548f, kRest = -1.74845553e-7f;  // 1/2π; 2π in two parts
    constexpr float kToInteger = 12582912.0f;                                              // 3·2^22
    const float turns = fmaf(angle, kTurns, kToInteger) - kToInteger;
    return fmaf(-turns, kRest, fmaf(-turns, kFirst, angle));
}

// Neighbours of a row: a packet, or a pair that may lie anywhere.
template <int kWidth>
__device__ msbench::Group<scalar_t, kWidth> load(const scalar_t* x, int64_t at) {
    if constexpr (kWidth == 2) return {x[2 * at], x[2 * at + 1]};
    else return msbench::load_group<kWidth>(x, at);
}

template <int kWidth>
__device__ void store(scalar_t* y, int64_t at, const msbench::Group<scalar_t, kWidth>& group) {
    if constexpr (kWidth == 2) y[2 * at] = group.lane[0], y[2 * at + 1] = group.lane[1];
    else msbench::store_group(y, at, group);
}

// Rows of `groups` of kWidth; slope = -2·log2(base)/D.
template <int kWidth>
__global__ void __launch_bounds__(kAcross* kDown) rope_rows(const scalar_t* x, scalar_t* y, float slope, int rows, int groups) {
    const int group = blockIdx.x * kAcross + threadIdx.x, row = blockIdx.y * kDown + threadIdx.y;
    if (group >= groups || row >= rows) return;
    const int64_t at = static_cast<int64_t>(row) * groups + group;
    const auto pairs = msbench::operands(load<kWidth>(x, at));
    msbench::Group<float, kWidth> turned;
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) {
        const float frequency = msbench::exp2_fast(slope * (group * (kWidth / 2) + k / 2));
        const float angle = reduced(static_cast<float>(row) * frequency);
        const float sine = __sinf(angle), cosine = __cosf(angle), even = pairs.lane[k], odd = pairs.lane[k + 1];
        turned.lane[k] = even * cosine - odd * sine;
        turned.lane[k + 1] = even * sine + odd * cosine;
    }
    store(y, at, msbench::rounded<scalar_t>(turned));
}

}  // namespace

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void*, size_t,
                            cudaStream_t stream) {
    const float slope = static_cast<float>(-2.0 * log2(static_cast<double>(base)) / D);
    const bool packets = D % kPacket == 0 && msbench::packets_allowed(x, y);
    const int groups = static_cast<int>(D / (packets ? kPacket : 2));
    const dim3 blocks(static_cast<unsigned>(msbench::ceil_div(groups, kAcross)), static_cast<unsigned>(msbench::ceil_div(M, kDown)));
    const auto kernel = packets ? rope_rows<kPacket> : rope_rows<2>;
    kernel<<<blocks, dim3(kAcross, kDown), 0, stream>>>(x, y, slope, static_cast<int>(M), groups);
    return cudaGetLastError();
}
