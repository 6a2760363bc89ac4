// Merging of two attention states in tiles of 16 tokens by 64 packets' worth of heads (4 heads for D = 128): [T, H, D] is read as
// runs of 1 KiB, and [H, T] as runs of 16 tokens, a whole sector, instead of one sector for each 2-byte log-sum-exp. The weights
// are computed once per token and head, into shared memory, while the values are on their way to registers; each log-sum-exp is
// read and written once, by whole sectors. Bound: memory, 94.6 us for the large case.
#include "msbench.cuh"

using namespace msbench;

constexpr int kThreads = 256;
constexpr int64_t kSmall = 132 * 2 * 4 * kThreads;  // packets that 2 blocks a multiprocessor do at 4 a thread

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

// i / divisor for i < 1024 and divisor <= 1024: scale = ceil(2^20 / divisor).
__device__ inline unsigned quotient(unsigned i, unsigned scale) {
    return (i * scale) >> 20;
}

// One tile: kTokens consecutive tokens of `heads` consecutive heads, at most kTokens * 64 packets, kTokens / 4 a thread.
template <int kTokens>
__global__ void __launch_bounds__(kThreads, 4)
    merge_tiles(const uint4* __restrict__ Va, const uint4* __restrict__ Vb, const scalar_t* __restrict__ la,
                const scalar_t* __restrict__ lb, uint4* __restrict__ V, scalar_t* __restrict__ lse, unsigned T,
                unsigned H, unsigned items, unsigned heads, unsigned items_scale, unsigned run_scale) {
    constexpr int kEach = kTokens * 64 / kThreads;
    __shared__ float2 weights[64 * kTokens];  // [head][token]
    const unsigned first_token = blockIdx.y * kTokens;
    const unsigned first_head = blockIdx.x * heads;
    const unsigned run = heads * items;  // packets of one token in this tile, which follow one another in memory
    uint4 a[kEach];
    uint4 b[kEach];
    unsigned at[kEach];    // the packet
    unsigned pair[kEach];  // its weights
    bool inside[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        const unsigned i = j * kThreads + threadIdx.x;
        const unsigned token = quotient(i, run_scale);
        const unsigned rest = i - token * run;
        const unsigned head = quotient(rest, items_scale);
        inside[j] = token < kTokens && first_token + token < T && first_head + head < H;
        at[j] = ((first_token + token) * H + first_head) * items + rest;
        pair[j] = head * kTokens + token;
        if (inside[j]) {
            a[j] = __ldcs(Va + at[j]);
            b[j] = __ldcs(Vb + at[j]);
        }
    }
    for (unsigned i = threadIdx.x; i < heads * kTokens; i += kThreads) {
        const unsigned token = first_token + i % kTokens;
        const unsigned head = first_head + i / kTokens;
        if (token < T && head < H) {
            const unsigned where = head * T + token;
            const Weights w = weights_of(la[where], lb[where]);
            weights[i] = make_float2(w.a, w.b);
            lse[where] = from_float<scalar_t>(w.most + logf(w.sum));
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
        if (inside[j]) {
            const float2 w = weights[pair[j]];
            __stcs(V + at[j], merged(a[j], b[j], w.x, w.y));
        }
    }
}

template <int kTokens>
void launch(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb, scalar_t* V, scalar_t* lse,
            int64_t T, int64_t H, int64_t items, cudaStream_t stream) {
    const int64_t fitting = 64 / items;  // items is at most 64
    const int64_t heads = fitting < H ? fitting : H;
    const int64_t one = 1 << 20;
    const dim3 grid(static_cast<unsigned>(ceil_div(H, heads)), static_cast<unsigned>(ceil_div(T, kTokens)));
    merge_tiles<kTokens><<<grid, kThreads, 0, stream>>>(
        reinterpret_cast<const uint4*>(Va), reinterpret_cast<const uint4*>(Vb), la, lb, reinterpret_cast<uint4*>(V),
        lse, static_cast<unsigned>(T), static_cast<unsigned>(H), static_cast<unsigned>(items),
        static_cast<unsigned>(heads), static_cast<unsigned>(ceil_div(one, items)),
        static_cast<unsigned>(ceil_div(one, heads * items)));
}

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    if (D % 8 == 0 && packets_allowed(Va, Vb, V)) {
        const int64_t items = D / 8;
        if (T * H * items <= kSmall) {
            launch<8>(Va, Vb, la, lb, V, lse, T, H, items, stream);
        } else {
            launch<16>(Va, Vb, la, lb, V, lse, T, H, items, stream);
        }
    } else {
        const int64_t total = T * H * D;  // at most 2^31
        merge_elements<<<static_cast<unsigned>(ceil_div(total, kThreads)), kThreads, 0, stream>>>(
            Va, Vb, la, lb, V, lse, static_cast<unsigned>(T), static_cast<unsigned>(H), static_cast<unsigned>(D),
            static_cast<unsigned>(total));
    }
    return cudaGetLastError();
}
