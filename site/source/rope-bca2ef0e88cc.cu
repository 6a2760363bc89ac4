// Rotary position embedding, fp32: reads and writes each element once, so it is bound by memory (89 us for 256 MiB) or by launch.
//
// A thread holds one 16-byte packet of columns (two pairs) for 1, 2 or 4 rows: all its loads are in flight before it
// computes, and base^(-2p/D) (one exp2 of a factor that the host computes in double) is found once for all its rows.
// Sine and cosine: reduction by pi/2 in three fused steps (angles stay below 2^15, so no slow path is needed) and
// polynomials to about 1 ulp; no local memory, no branches. Expected near the copy ceiling when large.
// Columns that are not a multiple of 4, few columns, unaligned arrays: one pair per thread by flat number.

__device__ __forceinline__ float frequency(uint32_t pair, float scale) {
    return exp2f(static_cast<float>(pair) * scale);  // scale = -2·log2(base)/D
}

// Sine and cosine of 0 <= angle <= 2^15 or so.
__device__ __forceinline__ void sine_cosine(float angle, float& sine, float& cosine) {
    const float shifted = fmaf(angle, 0.636619747f, 12582912.0f);
    const int quadrant = __float_as_int(shifted);
    const float turns = shifted - 12582912.0f;
    float r = fmaf(turns, -0x1.921fb0p+00f, angle);
    r = fmaf(turns, -0x1.5110b0p-22f, r);
    r = fmaf(turns, -0x1.846988p-48f, r);
    const float z = r * r;
    float s = fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = fmaf(s * z, r, r);
    float c = fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = fmaf(c, z, -0.5f);
    c = fmaf(c, z, 1.0f);
    const bool swap = quadrant & 1;
    const float sine_of = swap ? c : s;
    const float cosine_of = swap ? s : c;
    sine = __int_as_float(__float_as_int(sine_of) ^ ((quadrant & 2) << 30));
    cosine = __int_as_float(__float_as_int(cosine_of) ^ (((quadrant + 1) & 2) << 30));
}

__device__ __forceinline__ float2 turn(float first, float second, float angle) {
    float sine, cosine;
    sine_cosine(angle, sine, cosine);
    return make_float2(first * cosine - second * sine, first * sine + second * cosine);
}

// blockDim = (packets of columns, rows); each thread has rows row, row + blockDim.y, ... of its block's part.
template <int kRows>
__global__ void __launch_bounds__(128) rope_packets(const float4* __restrict__ x, float4* __restrict__ y, float scale,
                                                    uint32_t M, uint32_t row_packets) {
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= row_packets) return;
    const uint32_t row = blockIdx.y * (blockDim.y * kRows) + threadIdx.y;
    float4 v[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        const uint32_t r = row + i * blockDim.y;
        v[i] = make_float4(0, 0, 0, 0);
        if (r < M) v[i] = __ldcs(x + (r * row_packets + column));  // at most 2^26 packets
    }
    const float f0 = frequency(2 * column, scale);
    const float f1 = frequency(2 * column + 1, scale);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
        const uint32_t r = row + i * blockDim.y;
        if (r < M) {
            const float position = static_cast<float>(r);
            const float2 a = turn(v[i].x, v[i].y, position * f0);
            const float2 b = turn(v[i].z, v[i].w, position * f1);
            __stcs(y + (r * row_packets + column), make_float4(a.x, a.y, b.x, b.y));
        }
    }
}

template <bool kAligned>
__global__ void __launch_bounds__(128) rope_pairs(const float* __restrict__ x, float* __restrict__ y, float scale,
                                                  uint32_t total, uint32_t pairs) {
    const uint32_t index = blockIdx.x * 128u + threadIdx.x;  // at most 2^27 pairs
    if (index >= total) return;
    float2 v;
    if (kAligned) {
        v = __ldcs(reinterpret_cast<const float2*>(x) + index);
    } else {
        v.x = x[2 * index];
        v.y = x[2 * index + 1];
    }
    const uint32_t row = index / pairs;
    const uint32_t pair = index - row * pairs;
    const float2 turned = turn(v.x, v.y, static_cast<float>(row) * frequency(pair, scale));
    if (kAligned) {
        __stcs(reinterpret_cast<float2*>(y) + index, turned);
    } else {
        y[2 * index] = turned.x;
        y[2 * index + 1] = turned.y;
    }
}

template <int kRows>
static void launch_packets(const scalar_t* x, scalar_t* y, float scale, uint32_t M, uint32_t row_packets, cudaStream_t stream) {
    const uint32_t wide = row_packets >= 128 ? 128 : row_packets > 32 ? 64 : 32;
    const uint32_t high = 128 / wide;
    const dim3 grid((row_packets + wide - 1) / wide, (M + high * kRows - 1) / (high * kRows));
    rope_packets<kRows><<<grid, dim3(wide, high), 0, stream>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y),
                                                               scale, M, row_packets);
}

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const float scale = static_cast<float>(-2.0 * log2(static_cast<double>(base)) / static_cast<double>(D));
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    if (D % 4 == 0 && D >= 128 && addresses % 16 == 0) {
        const uint32_t row_packets = static_cast<uint32_t>(D / 4);
        const int64_t packets = M * (D / 4);
        const int64_t wave = 132 * 2048;
        if (packets <= wave) {
            launch_packets<1>(x, y, scale, static_cast<uint32_t>(M), row_packets, stream);
        } else if (packets <= 4 * wave) {
            launch_packets<2>(x, y, scale, static_cast<uint32_t>(M), row_packets, stream);
        } else {
            launch_packets<4>(x, y, scale, static_cast<uint32_t>(M), row_packets, stream);
        }
    } else {
        const uint32_t pairs = static_cast<uint32_t>(D / 2);
        const uint32_t total = static_cast<uint32_t>(M) * pairs;
        const uint32_t blocks = (total + 127) / 128;
        if (addresses % 8 == 0) {
            rope_pairs<true><<<blocks, 128, 0, stream>>>(x, y, scale, total, pairs);
        } else {
            rope_pairs<false><<<blocks, 128, 0, stream>>>(x, y, scale, total, pairs);
        }
    }
    return cudaGetLastError();
}
