// Softmax over rows, bf16, fp32 arithmetic. A row lives in the registers of its block; one barrier a row, since warps use their own maxima
// and rescale: y = exp(x - m_warp) * (exp(m_warp - m) / sum). A warp with nothing above -inf uses 0 in place of its maximum; a row of -inf
// only, or with NaN or +inf, comes out NaN as defined.
// Expected bound: launch latency plus one memory round trip for few rows; copy bandwidth for many.

__device__ __forceinline__ float exp_of(float d) {
    return exp2f(d * 1.4426950408889634f);
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const unsigned a = static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low)));
    const unsigned b = static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high)));
    return a | (b << 16);
}

constexpr int min_blocks(int threads) {
    return threads >= 1024 ? 1 : threads >= 512 ? 3 : threads >= 256 ? 6 : 8;
}

template <int T, int P, bool kPackets>
__global__ void __launch_bounds__(T, min_blocks(T)) softmax_rows(const uint16_t* __restrict__ x, uint16_t* __restrict__ y, int C) {
    constexpr int kWarps = T / 32;
    constexpr int E = 8 * P;
    const float nothing = __uint_as_float(0xff800000u);  // -inf
    const int tid = threadIdx.x;
    const int64_t start = static_cast<int64_t>(blockIdx.x) * C;
    float v[E];
    if constexpr (kPackets) {
        uint4 raw[P];
#pragma unroll
        for (int p = 0; p < P; ++p) {
            const int at = (tid + p * T) * 8;
            raw[p] = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);
            if (at < C) raw[p] = __ldcs(reinterpret_cast<const uint4*>(x + start + at));
        }
#pragma unroll
        for (int p = 0; p < P; ++p) {
            const unsigned words[4] = {raw[p].x, raw[p].y, raw[p].z, raw[p].w};
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                v[8 * p + 2 * w] = __uint_as_float(words[w] << 16);
                v[8 * p + 2 * w + 1] = __uint_as_float(words[w] & 0xffff0000u);
            }
        }
    } else {
        unsigned raw[E];
#pragma unroll
        for (int e = 0; e < E; ++e) {
            const int at = tid + e * T;
            raw[e] = 0xff80u;
            if (at < C) raw[e] = static_cast<unsigned>(__ldg(x + start + at));
        }
#pragma unroll
        for (int e = 0; e < E; ++e) v[e] = __uint_as_float(raw[e] << 16);
    }

    float maximum = v[0];
#pragma unroll
    for (int e = 1; e < E; ++e) maximum = fmaxf(maximum, v[e]);
#pragma unroll
    for (int d = 16; d > 0; d /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, d));

    float factor;
    if constexpr (kWarps == 1) {
        float sum = 0.f;
#pragma unroll
        for (int e = 0; e < E; ++e) {
            // Beyond the row exp gives 0, except where the row is NaN anyway.
            v[e] = exp_of(v[e] - maximum);
            sum += v[e];
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        factor = 1.f / sum;
    } else {
        __shared__ float2 pairs[kWarps];
        const int lane = tid % 32;
        const int warp = tid / 32;
        const float base = maximum == nothing ? 0.f : maximum;
        float sum = 0.f;
#pragma unroll
        for (int e = 0; e < E; ++e) {
            v[e] = exp_of(v[e] - base);
            sum += v[e];
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) pairs[warp] = make_float2(maximum, sum);
        __syncthreads();
        const float2 pair = pairs[lane % kWarps];  // kWarps is a power of two
        float whole = pair.x;
#pragma unroll
        for (int d = kWarps / 2; d > 0; d /= 2) whole = fmaxf(whole, __shfl_xor_sync(0xffffffffu, whole, d));
        float total = pair.y * exp_of(pair.x - whole);
#pragma unroll
        for (int d = kWarps / 2; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
        factor = exp_of(maximum - whole) / total;
    }

    if constexpr (kPackets) {
#pragma unroll
        for (int p = 0; p < P; ++p) {
            const int at = (tid + p * T) * 8;
            if (at < C) {
                uint4 out;
                out.x = pack(v[8 * p] * factor, v[8 * p + 1] * factor);
                out.y = pack(v[8 * p + 2] * factor, v[8 * p + 3] * factor);
                out.z = pack(v[8 * p + 4] * factor, v[8 * p + 5] * factor);
                out.w = pack(v[8 * p + 6] * factor, v[8 * p + 7] * factor);
                __stcs(reinterpret_cast<uint4*>(y + start + at), out);
            }
        }
    } else {
#pragma unroll
        for (int e = 0; e < E; ++e) {
            const int at = tid + e * T;
            if (at < C) y[start + at] = __bfloat16_as_ushort(__float2bfloat16_rn(v[e] * factor));
        }
    }
}

template <bool kPackets>
static void launch(const uint16_t* x, uint16_t* y, int N, int C, cudaStream_t stream) {
    if (C <= 256) softmax_rows<32, 1, kPackets><<<N, 32, 0, stream>>>(x, y, C);
    else if (C <= 512) softmax_rows<64, 1, kPackets><<<N, 64, 0, stream>>>(x, y, C);
    else if (C <= 1024) softmax_rows<128, 1, kPackets><<<N, 128, 0, stream>>>(x, y, C);
    else if (C <= 2048) softmax_rows<256, 1, kPackets><<<N, 256, 0, stream>>>(x, y, C);
    else if (C <= 4096) softmax_rows<512, 1, kPackets><<<N, 512, 0, stream>>>(x, y, C);
    else if (C <= 8192) softmax_rows<512, 2, kPackets><<<N, 512, 0, stream>>>(x, y, C);
    else softmax_rows<1024, 2, kPackets><<<N, 1024, 0, stream>>>(x, y, C);
}

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(x);
    uint16_t* to = reinterpret_cast<uint16_t*>(y);
    const int rows = static_cast<int>(N);
    const int columns = static_cast<int>(C);
    const bool packets = columns % 8 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (packets) launch<true>(from, to, rows, columns, stream);
    else launch<false>(from, to, rows, columns, stream);
    return cudaGetLastError();
}
