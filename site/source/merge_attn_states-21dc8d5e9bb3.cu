// Two attention states joined by their log-sum-exps.
//
// Bound: three times V's bytes, one launch. The grid's y is the token and a block has whole rows of some heads, so that nothing divides
// before the first load. Each thread finds its row's weights from one exponential of the distance of the log-sum-exps. The logarithm of 1 to 2
// is the special function unit's, within 3·2^-24 of 8 that the bound allows: logf costs 1.4 % (H100, 2026-11-25).

#include <algorithm>

#include "msbench_math.cuh"
#include "msbench_packets.cuh"

namespace {

constexpr int kPacket = 16 / sizeof(scalar_t), kThreads = 256;
constexpr float kLn2 = 0.693147181f;

// An infinite log-sum-exp counts as the lowest number.
__device__ float finite(scalar_t l) {
    const float value = msbench::to_float(l);
    return isinf(value) ? -3.402823466e+38f : value;
}

struct Merge {
    float share_a, share_b;
    __device__ float operator()(float a, float b) const { return share_a * a + share_b * b; }
};

// The smaller of two weights whose larger is 1. Held at 2^-126 where float64 has no zero yet: of an infinite V it gives infinity.
__device__ float smaller_weight(float distance) {
    const float power = -msbench::kLog2e * distance;
    const float weight = msbench::exp2_fast(power);
    return power < -126.0f && power > -1075.0f ? 0x1p-126f : weight;
}

// A row is `groups` of kWidth elements; a block has blockDim.y heads of one token.
template <int kWidth>
__global__ void __launch_bounds__(kThreads) merge(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la,
                                                  const scalar_t* lb, scalar_t* V, scalar_t* lse, int T, int H, int groups) {
    const int token = blockIdx.y;
    const int head = blockIdx.x * blockDim.y + threadIdx.y;
    if (head >= H) return;
    const int row = token * H + head, state = head * T + token;
    for (int at = threadIdx.x; at < groups; at += blockDim.x) {
        const int64_t place = static_cast<int64_t>(row) * groups + at;
        const auto first = msbench::load_group<kWidth>(Va, place), second = msbench::load_group<kWidth>(Vb, place);
        const float a = finite(la[state]), b = finite(lb[state]);
        const float weight = smaller_weight(fabsf(a - b));
        const float most = msbench::reciprocal_fast(1.0f + weight), least = weight * most;
        const Merge merged = a >= b ? Merge{most, least} : Merge{least, most};
        msbench::store_group(V, place, msbench::mapped<scalar_t>(merged, first, second));
        if (at == 0) lse[state] = msbench::from_float<scalar_t>(fmaxf(a, b) + kLn2 * __log2f(1.0f + weight));
    }
}

}  // namespace

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void*, size_t,
                                         cudaStream_t stream) {
    const bool packets = D % kPacket == 0 && msbench::packets_allowed(Va, Vb, V);
    const int groups = static_cast<int>(packets ? D / kPacket : D), across = std::min(groups, kThreads);
    const dim3 threads(across, kThreads / across);
    const dim3 blocks(static_cast<unsigned>(msbench::ceil_div(H, threads.y)), static_cast<unsigned>(T));
    const auto kernel = packets ? merge<kPacket> : merge<1>;
    kernel<<<blocks, threads, 0, stream>>>(Va, Vb, la, lb, V, lse, static_cast<int>(T), static_cast<int>(H), groups);
    return cudaGetLastError();
}
