// SiLU and multiply: flat over the 16-byte packets of y as before (4 packets per thread and streaming hints where the problem is
// large). Two outputs share one reciprocal: 1/a = b/(ab), 1/b = a/(ab), so that the special-function unit does 3 operations
// instead of 4 per pair; words are unpacked by a shift and a mask and packed by one conversion for two. The least problems run
// in blocks of 64 so that every multiprocessor gets one. Bound: 70.4 us large, launch else.
#include "msbench.cuh"

using namespace msbench;

constexpr int kScalarThreads = 256;
constexpr int64_t kFew = 132 * 256;       // packets, too few for two blocks of 128 on each multiprocessor
constexpr int64_t kOneWave = 132 * 2048;  // packets, one for each thread that the device holds

__device__ inline float gated(float gate, float value) {
    return __fdividef(gate, 1.0f + __expf(-gate)) * value;
}

// Two outputs from a word of gates and a word of values. Both denominators are at least 1, so that their product is at least
// either; where it is too large, infinite or not a number, one must not touch the other, and each is divided alone.
__device__ inline uint32_t gated_pair(uint32_t gates, uint32_t values) {
    const float gate_0 = __uint_as_float(gates << 16);
    const float gate_1 = __uint_as_float(gates & 0xffff0000u);
    const float value_0 = __uint_as_float(values << 16);
    const float value_1 = __uint_as_float(values & 0xffff0000u);
    const float below_0 = 1.0f + __expf(-gate_0);
    const float below_1 = 1.0f + __expf(-gate_1);
    const float both = below_0 * below_1;
    float silu_0;
    float silu_1;
    if (both < 1e36f) {
        const float inverse = __fdividef(1.0f, both);
        silu_0 = gate_0 * (inverse * below_1);
        silu_1 = gate_1 * (inverse * below_0);
    } else {
        silu_0 = __fdividef(gate_0, below_0);
        silu_1 = __fdividef(gate_1, below_1);
    }
    union {
        __nv_bfloat162_raw raw;
        uint32_t word;
    } out;
    out.raw = static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(silu_0 * value_0, silu_1 * value_1));
    return out.word;
}

// `scale` = ceil(2^36 / packets): exact for i < 2^25 and packets <= 2^11, since i * (scale * packets - 2^36) < 2^36.
template <int kThreads, int kEach>
__global__ void __launch_bounds__(kThreads) packets_kernel(const uint4* __restrict__ x, uint4* __restrict__ y,
                                                           unsigned packets, uint64_t scale, unsigned total) {
    const unsigned first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
    uint4 gate[kEach];
    uint4 value[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = first + j * kThreads;
        if (i < total) {
            const unsigned row = static_cast<unsigned>((i * scale) >> 36);
            const unsigned at = i + row * packets;
            gate[j] = __ldcs(x + at);
            value[j] = __ldcs(x + at + packets);
        }
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = first + j * kThreads;
        if (i < total) {
            uint4 out;
            out.x = gated_pair(gate[j].x, value[j].x);
            out.y = gated_pair(gate[j].y, value[j].y);
            out.z = gated_pair(gate[j].z, value[j].z);
            out.w = gated_pair(gate[j].w, value[j].w);
            __stcs(y + i, out);
        }
    }
}

__global__ void __launch_bounds__(kScalarThreads) elements_kernel(const scalar_t* __restrict__ x,
                                                                  scalar_t* __restrict__ y, int D) {
    const int column = blockIdx.x * kScalarThreads + threadIdx.x;
    if (column >= D) return;
    const int64_t row = blockIdx.y;
    const scalar_t* gates = x + row * 2 * D;
    y[row * D + column] = from_float<scalar_t>(gated(to_float(gates[column]), to_float(gates[D + column])));
}

template <int kThreads, int kEach>
void launch(const scalar_t* x, scalar_t* y, int64_t packets, int64_t total, cudaStream_t stream) {
    const uint64_t scale = ((uint64_t(1) << 36) + packets - 1) / packets;
    packets_kernel<kThreads, kEach><<<static_cast<unsigned>(ceil_div(total, kThreads * kEach)), kThreads, 0, stream>>>(
        reinterpret_cast<const uint4*>(x), reinterpret_cast<uint4*>(y), static_cast<unsigned>(packets), scale,
        static_cast<unsigned>(total));
}

extern "C" cudaError_t silu_and_mul(const scalar_t* x, scalar_t* y, int64_t B, int64_t D, void* workspace,
                                    size_t workspace_bytes, cudaStream_t stream) {
    if (D % 8 == 0 && packets_allowed(x, y)) {
        const int64_t packets = D / 8;
        const int64_t total = B * packets;
        if (total <= kFew) {
            launch<64, 1>(x, y, packets, total, stream);
        } else if (total <= kOneWave) {
            launch<128, 1>(x, y, packets, total, stream);
        } else {
            launch<256, 4>(x, y, packets, total, stream);
        }
    } else {
        const dim3 grid(static_cast<unsigned>(ceil_div(D, kScalarThreads)), static_cast<unsigned>(B));
        elements_kernel<<<grid, kScalarThreads, 0, stream>>>(x, y, static_cast<int>(D));
    }
    return cudaGetLastError();
}
