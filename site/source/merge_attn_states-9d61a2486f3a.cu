// Merging of two attention states: 4 packets of 16 bytes per thread and array (2 where the problem is small); all 8 loads of the
// values are issued first, with streaming hints, then the loads of the log-sum-exps, whose addresses come from multiplications
// instead of divisions. Bound: memory, 94.6 us for the large case.
#include "msbench.cuh"

using namespace msbench;

constexpr int kThreads = 256;
constexpr int64_t kSmall = 132 * 4 * 4 * kThreads;  // packets that 4 blocks a multiprocessor do at 4 a thread

__device__ inline float finite(scalar_t l) {
    const float value = to_float(l);
    return isinf(value) ? -3.402823466e+38f : value;
}

struct Weights {
    float a, b, most, sum;
};

__device__ inline Weights weights_of(scalar_t la, scalar_t lb) {
    const float a = finite(la);
    const float b = finite(lb);
    Weights w;
    w.most = fmaxf(a, b);
    const float weight_a = expf(a - w.most);
    const float weight_b = expf(b - w.most);
    w.sum = weight_a + weight_b;
    const float inverse = 1.0f / w.sum;
    w.a = weight_a * inverse;
    w.b = weight_b * inverse;
    return w;
}

// Two outputs from a word of each array: the lower half of a word moves up by 16 bits to become a float, the upper is masked.
__device__ inline uint32_t merged(uint32_t a, uint32_t b, float weight_a, float weight_b) {
    const float lower = fmaf(weight_a, __uint_as_float(a << 16), weight_b * __uint_as_float(b << 16));
    const float upper =
        fmaf(weight_a, __uint_as_float(a & 0xffff0000u), weight_b * __uint_as_float(b & 0xffff0000u));
    union {
        __nv_bfloat162_raw raw;
        uint32_t word;
    } out;
    out.raw = static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(lower, upper));
    return out.word;
}

__device__ inline uint4 merged(const uint4& a, const uint4& b, float weight_a, float weight_b) {
    return make_uint4(merged(a.x, b.x, weight_a, weight_b), merged(a.y, b.y, weight_a, weight_b),
                      merged(a.z, b.z, weight_a, weight_b), merged(a.w, b.w, weight_a, weight_b));
}

__global__ void __launch_bounds__(kThreads)
    merge_elements(const scalar_t* __restrict__ Va, const scalar_t* __restrict__ Vb, const scalar_t* __restrict__ la,
                   const scalar_t* __restrict__ lb, scalar_t* __restrict__ V, scalar_t* __restrict__ lse, unsigned T,
                   unsigned H, unsigned D, unsigned total) {
    const unsigned i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= total) return;
    const unsigned row = i / D;
    const unsigned token = row / H;
    const unsigned at = (row - token * H) * T + token;
    const Weights w = weights_of(la[at], lb[at]);
    V[i] = from_float<scalar_t>(fmaf(w.a, to_float(Va[i]), w.b * to_float(Vb[i])));
    if (i == row * D) lse[at] = from_float<scalar_t>(w.most + logf(w.sum));
}

// Quotient by a divisor known to the host: scale = ceil(2^36 / divisor). Exact for i < 2^28 and divisors up to 2^7, and for
// i < 2^22 and divisors up to 2^14, since i * (scale * divisor - 2^36) < 2^36.
__device__ inline unsigned quotient(unsigned i, uint64_t scale) {
    return static_cast<unsigned>((i * scale) >> 36);
}

template <int kEach>
__global__ void __launch_bounds__(kThreads, 4)
    merge_packets(const uint4* __restrict__ Va, const uint4* __restrict__ Vb, const scalar_t* __restrict__ la,
                  const scalar_t* __restrict__ lb, uint4* __restrict__ V, scalar_t* __restrict__ lse, unsigned T,
                  unsigned H, unsigned items, uint64_t items_scale, uint64_t heads_scale, unsigned total) {
    const unsigned first = blockIdx.x * (kThreads * kEach) + threadIdx.x;
    uint4 a[kEach];
    uint4 b[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = first + j * kThreads;
        if (i < total) {
            a[j] = __ldcs(Va + i);
            b[j] = __ldcs(Vb + i);
        }
    }
    scalar_t sum_a[kEach];
    scalar_t sum_b[kEach];
    unsigned at[kEach];
    bool leads[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = first + j * kThreads;
        if (i < total) {
            const unsigned row = quotient(i, items_scale);
            const unsigned token = quotient(row, heads_scale);
            at[j] = (row - token * H) * T + token;
            leads[j] = i == row * items;
            sum_a[j] = la[at[j]];
            sum_b[j] = lb[at[j]];
        }
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = first + j * kThreads;
        if (i < total) {
            const Weights w = weights_of(sum_a[j], sum_b[j]);
            __stcs(V + i, merged(a[j], b[j], w.a, w.b));
            if (leads[j]) lse[at[j]] = from_float<scalar_t>(w.most + logf(w.sum));
        }
    }
}

template <int kEach>
void launch(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb, scalar_t* V, scalar_t* lse,
            int64_t T, int64_t H, int64_t items, cudaStream_t stream) {
    const int64_t total = T * H * items;
    const uint64_t one = uint64_t(1) << 36;
    merge_packets<kEach><<<static_cast<unsigned>(ceil_div(total, kThreads * kEach)), kThreads, 0, stream>>>(
        reinterpret_cast<const uint4*>(Va), reinterpret_cast<const uint4*>(Vb), la, lb, reinterpret_cast<uint4*>(V),
        lse, static_cast<unsigned>(T), static_cast<unsigned>(H), static_cast<unsigned>(items),
        (one + items - 1) / items, (one + H - 1) / H, static_cast<unsigned>(total));
}

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    if (D % 8 == 0 && packets_allowed(Va, Vb, V)) {
        const int64_t items = D / 8;
        if (T * H * items <= kSmall) {
            launch<2>(Va, Vb, la, lb, V, lse, T, H, items, stream);
        } else {
            launch<4>(Va, Vb, la, lb, V, lse, T, H, items, stream);
        }
    } else {
        const int64_t total = T * H * D;  // at most 2^31
        merge_elements<<<static_cast<unsigned>(ceil_div(total, kThreads)), kThreads, 0, stream>>>(
            Va, Vb, la, lb, V, lse, static_cast<unsigned>(T), static_cast<unsigned>(H), static_cast<unsigned>(D),
            static_cast<unsigned>(total));
    }
    return cudaGetLastError();
}
