// Merging of two attention states: V = (wa Va + wb Vb) / (wa + wb), lse = m + ln(wa + wb), by token and head.
//
// A block takes a tile of tokens of one head; the weights of a row are computed once, into shared memory, and lse is written as
// whole sectors. New here: 32 tokens a block and two packets a thread, in tokens t and t + 16, so that each thread has four
// 16-byte loads in flight before the barrier instead of two, a barrier serves twice the bytes, and half as many blocks start.
// Va, Vb and V pass once, so they are streamed (evict first). Expected: 2 % for large sizes; small ones may stay as they are.
#include "msbench.cuh"

namespace {

constexpr int kThreads = 256;  // of the kernel for any alignment
constexpr int kTokens = 32;    // of a block; a thread has a packet in two of them, kHalf apart
constexpr int kHalf = kTokens / 2;

struct Weights {
    float a, b;  // sum to 1
    float lse;
};

__device__ inline float finite(scalar_t l) {
    const float value = __bfloat162float(l);
    return isinf(value) ? -3.402823466e+38f : value;
}

// NaN in either log-sum-exp makes both weights and the result NaN.
__device__ inline Weights weights(scalar_t la, scalar_t lb) {
    const float a = finite(la);
    const float b = finite(lb);
    const float most = fmaxf(a, b);
    const float weight_a = expf(a - most);
    const float weight_b = expf(b - most);
    const float sum = weight_a + weight_b;
    return {weight_a / sum, weight_b / sum, most + logf(sum)};
}

__device__ inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ inline uint32_t merged(uint32_t a, uint32_t b, const float2& weight) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(weight.x * low(a) + weight.y * low(b),
                                                      weight.x * high(a) + weight.y * high(b));
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline uint4 merged(const uint4& a, const uint4& b, const float2& weight) {
    return {merged(a.x, b.x, weight), merged(a.y, b.y, weight), merged(a.z, b.z, weight), merged(a.w, b.w, weight)};
}

// P = D / 8 packets a row; Va, Vb and V are aligned to 16 bytes. At least kHalf * P threads a block, one block a head and tile.
__global__ void __launch_bounds__(1024)
    merge_tile(const uint4* __restrict__ Va, const uint4* __restrict__ Vb, const scalar_t* __restrict__ la,
               const scalar_t* __restrict__ lb, uint4* __restrict__ V, scalar_t* __restrict__ lse, uint32_t T, uint32_t H,
               uint32_t P) {
    __shared__ float2 of_row[kTokens];
    const uint32_t head = blockIdx.x;
    const uint32_t first = blockIdx.y * kTokens;
    const uint32_t row = threadIdx.x / P;
    const uint32_t i = ((first + row) * H + head) * P + (threadIdx.x - row * P);
    const uint32_t j = i + kHalf * H * P;
    const bool inside = row < kHalf && first + row < T;
    const bool both = row < kHalf && first + row + kHalf < T;
    uint4 a[2] = {}, b[2] = {};
    if (inside) {
        a[0] = __ldcs(Va + i);
        b[0] = __ldcs(Vb + i);
    }
    if (both) {
        a[1] = __ldcs(Va + j);
        b[1] = __ldcs(Vb + j);
    }
    if (threadIdx.x < kTokens && first + threadIdx.x < T) {
        const uint32_t at = head * T + first + threadIdx.x;
        const Weights weight = weights(la[at], lb[at]);
        of_row[threadIdx.x] = make_float2(weight.a, weight.b);
        lse[at] = __float2bfloat16_rn(weight.lse);
    }
    __syncthreads();
    if (inside) __stcs(V + i, merged(a[0], b[0], of_row[row]));
    if (both) __stcs(V + j, merged(a[1], b[1], of_row[row + kHalf]));
}

__global__ void __launch_bounds__(kThreads)
    merge_any(const scalar_t* __restrict__ Va, const scalar_t* __restrict__ Vb, const scalar_t* __restrict__ la,
              const scalar_t* __restrict__ lb, scalar_t* __restrict__ V, scalar_t* __restrict__ lse, uint32_t T,
              uint32_t H, uint32_t D, uint32_t count) {
    const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= count) return;
    const float a = __bfloat162float(Va[i]);
    const float b = __bfloat162float(Vb[i]);
    const uint32_t row = i / D;
    const uint32_t token = row / H;
    const uint32_t at = (row - token * H) * T + token;
    const Weights weight = weights(la[at], lb[at]);
    V[i] = __float2bfloat16_rn(weight.a * a + weight.b * b);
    if (i == row * D) lse[at] = __float2bfloat16_rn(weight.lse);
}

}  // namespace

// T H D is at most 2^31, so that unsigned 32-bit indices are enough.
extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    if (D % 8 == 0 && msbench::packets_allowed(Va, Vb, V)) {
        const uint32_t P = static_cast<uint32_t>(D / 8);
        const dim3 grid(static_cast<unsigned>(H), static_cast<unsigned>(msbench::ceil_div(T, kTokens)));
        const unsigned threads = (kHalf * P + 31) / 32 * 32;
        merge_tile<<<grid, threads, 0, stream>>>(reinterpret_cast<const uint4*>(Va), reinterpret_cast<const uint4*>(Vb), la,
                                                 lb, reinterpret_cast<uint4*>(V), lse, static_cast<uint32_t>(T),
                                                 static_cast<uint32_t>(H), P);
    } else {
        const int64_t count = T * H * D;
        merge_any<<<static_cast<unsigned>(msbench::ceil_div(count, kThreads)), kThreads, 0, stream>>>(
            Va, Vb, la, lb, V, lse, static_cast<uint32_t>(T), static_cast<uint32_t>(H), static_cast<uint32_t>(D),
            static_cast<uint32_t>(count));
    }
    return cudaGetLastError();
}
