// Softmax: a row lives in the registers of one block; two block reductions (maximum, sum); one read and one write.
// Bound: launch latency for the small cases, copy bandwidth for N=8192, C=8192 (about 65 us).

template <int W>
__device__ __forceinline__ float reduce_max(float v, float* scratch) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    if (W > 1) {
        const int lane = threadIdx.x & 31;
        if (lane == 0) scratch[threadIdx.x >> 5] = v;
        __syncthreads();
        v = scratch[lane & (W - 1)];
#pragma unroll
        for (int d = W / 2; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    }
    return v;
}

template <int W>
__device__ __forceinline__ float reduce_sum(float v, float* scratch) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if (W > 1) {
        const int lane = threadIdx.x & 31;
        if (lane == 0) scratch[threadIdx.x >> 5] = v;
        __syncthreads();
        v = scratch[lane & (W - 1)];
#pragma unroll
        for (int d = W / 2; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    }
    return v;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    const uint32_t a = __bfloat16_as_ushort(__float2bfloat16_rn(low));
    const uint32_t b = __bfloat16_as_ushort(__float2bfloat16_rn(high));
    return a | (b << 16);
}

// T threads (a power of two of warps), K packets of 8 elements each.
template <int T, int K, bool PACKETS>
__global__ void __launch_bounds__(T) softmax_rows(const uint16_t* __restrict__ x, uint16_t* __restrict__ y, int C) {
    constexpr int W = T / 32;
    __shared__ float maxima[32];
    __shared__ float sums[32];
    const int64_t base = static_cast<int64_t>(blockIdx.x) * C;
    const uint16_t* row = x + base;
    uint16_t* out = y + base;
    const int t = threadIdx.x;
    const float lowest = __uint_as_float(0xff800000u);
    float v[K * 8];
    if (PACKETS) {
        uint4 p[K];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int at = (k * T + t) * 8;
            p[k] = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);  // -infinity
            if (at < C) p[k] = __ldg(reinterpret_cast<const uint4*>(row + at));
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            v[8 * k + 0] = __uint_as_float(p[k].x << 16);
            v[8 * k + 1] = __uint_as_float(p[k].x & 0xffff0000u);
            v[8 * k + 2] = __uint_as_float(p[k].y << 16);
            v[8 * k + 3] = __uint_as_float(p[k].y & 0xffff0000u);
            v[8 * k + 4] = __uint_as_float(p[k].z << 16);
            v[8 * k + 5] = __uint_as_float(p[k].z & 0xffff0000u);
            v[8 * k + 6] = __uint_as_float(p[k].w << 16);
            v[8 * k + 7] = __uint_as_float(p[k].w & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int e = 0; e < K * 8; ++e) {
            const int at = e * T + t;
            v[e] = lowest;
            if (at < C) v[e] = __uint_as_float(static_cast<uint32_t>(__ldg(row + at)) << 16);
        }
    }
    float maximum = lowest;
#pragma unroll
    for (int e = 0; e < K * 8; ++e) maximum = fmaxf(maximum, v[e]);
    maximum = reduce_max<W>(maximum, maxima);
    float even = 0.f, odd = 0.f;
#pragma unroll
    for (int e = 0; e < K * 8; e += 2) {
        v[e] = exp2f((v[e] - maximum) * 1.4426950408889634f);
        v[e + 1] = exp2f((v[e + 1] - maximum) * 1.4426950408889634f);
        even += v[e];
        odd += v[e + 1];
    }
    const float sum = reduce_sum<W>(even + odd, sums);
    const float scale = 1.0f / sum;
    if (PACKETS) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int at = (k * T + t) * 8;
            if (at < C) {
                uint4 p;
                p.x = pack(v[8 * k + 0] * scale, v[8 * k + 1] * scale);
                p.y = pack(v[8 * k + 2] * scale, v[8 * k + 3] * scale);
                p.z = pack(v[8 * k + 4] * scale, v[8 * k + 5] * scale);
                p.w = pack(v[8 * k + 6] * scale, v[8 * k + 7] * scale);
                __stcs(reinterpret_cast<uint4*>(out + at), p);
            }
        }
    } else {
#pragma unroll
        for (int e = 0; e < K * 8; ++e) {
            const int at = e * T + t;
            if (at < C) out[at] = __bfloat16_as_ushort(__float2bfloat16_rn(v[e] * scale));
        }
    }
}

template <bool PACKETS>
static void launch(const uint16_t* x, uint16_t* y, int N, int C, cudaStream_t stream) {
    if (C <= 256) softmax_rows<32, 1, PACKETS><<<N, 32, 0, stream>>>(x, y, C);
    else if (C <= 512) softmax_rows<64, 1, PACKETS><<<N, 64, 0, stream>>>(x, y, C);
    else if (C <= 1024) softmax_rows<128, 1, PACKETS><<<N, 128, 0, stream>>>(x, y, C);
    else if (C <= 2048) softmax_rows<256, 1, PACKETS><<<N, 256, 0, stream>>>(x, y, C);
    else if (C <= 4096) softmax_rows<512, 1, PACKETS><<<N, 512, 0, stream>>>(x, y, C);
    else if (C <= 8192) softmax_rows<512, 2, PACKETS><<<N, 512, 0, stream>>>(x, y, C);
    else softmax_rows<1024, 2, PACKETS><<<N, 1024, 0, stream>>>(x, y, C);
}

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void* workspace,
                               size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    const uint16_t* source = reinterpret_cast<const uint16_t*>(x);
    uint16_t* target = reinterpret_cast<uint16_t*>(y);
    const bool packets = C % 8 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (packets) launch<true>(source, target, static_cast<int>(N), static_cast<int>(C), stream);
    else launch<false>(source, target, static_cast<int>(N), static_cast<int>(C), stream);
    return cudaGetLastError();
}
