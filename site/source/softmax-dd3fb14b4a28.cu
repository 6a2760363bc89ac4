// Softmax: one block a row, the row in registers, one barrier. Exponentials are relative to the warp's maximum and scaled afterwards.
// Bound: launch for the small cases, copy bandwidth (4 bytes an element at 4.26 TB/s) for the large one.

__device__ __forceinline__ float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000u)); }

// The largest of the warp's values, none of which is NaN.
__device__ __forceinline__ float warp_maximum(float x) {
    const int bits = __float_as_int(x);
    const int key = bits ^ ((bits >> 31) & 0x7fffffff);
    const int largest = __reduce_max_sync(0xffffffffu, key);
    return __int_as_float(largest ^ ((largest >> 31) & 0x7fffffff));
}

__device__ __forceinline__ float warp_total(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const unsigned l = static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low)));
    const unsigned h = static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high)));
    return l | (h << 16);
}

// kCount packets of eight (kPackets) or single elements a thread.
template <int kThreads, int kCount, bool kPackets>
__global__ void __launch_bounds__(kThreads) softmax_kernel(const unsigned short* __restrict__ x, unsigned short* __restrict__ y,
                                                           int C) {
    constexpr int kWidth = kPackets ? 8 : 1;
    constexpr int kHeld = kCount * kWidth;
    constexpr int kWarps = kThreads / 32;
    const int64_t offset = static_cast<int64_t>(blockIdx.x) * C;
    const int t = threadIdx.x;
    const int lane = t & 31;
    const int warp = t >> 5;

    float v[kHeld];
    if constexpr (kPackets) {
        const uint4* from = reinterpret_cast<const uint4*>(x + offset);
        const int packets = C / 8;
        const unsigned fill = 0xff80ff80u;  // -infinity twice
        uint4 q[kCount];
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            q[i] = make_uint4(fill, fill, fill, fill);
            if (i * kThreads + t < packets) q[i] = __ldcs(from + i * kThreads + t);
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            v[8 * i] = __uint_as_float(q[i].x << 16);
            v[8 * i + 1] = __uint_as_float(q[i].x & 0xffff0000u);
            v[8 * i + 2] = __uint_as_float(q[i].y << 16);
            v[8 * i + 3] = __uint_as_float(q[i].y & 0xffff0000u);
            v[8 * i + 4] = __uint_as_float(q[i].z << 16);
            v[8 * i + 5] = __uint_as_float(q[i].z & 0xffff0000u);
            v[8 * i + 6] = __uint_as_float(q[i].w << 16);
            v[8 * i + 7] = __uint_as_float(q[i].w & 0xffff0000u);
        }
    } else {
        const unsigned short* from = x + offset;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            v[i] = minus_infinity();
            if (i * kThreads + t < C) v[i] = __uint_as_float(static_cast<unsigned>(__ldg(from + i * kThreads + t)) << 16);
        }
    }

    float own = minus_infinity();
#pragma unroll
    for (int i = 0; i < kHeld; ++i) own = fmaxf(own, v[i]);
    const float warp_max = warp_maximum(own);
    // Nothing but -infinity (or NaN) in this warp: its exponentials are 0, not exp(-inf + inf).
    const float reference = warp_max == minus_infinity() ? 0.0f : warp_max;
    float s0 = 0.0f, s1 = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        v[i] = __expf(v[i] - reference);
        if (i % 2 == 0) {
            s0 += v[i];
        } else {
            s1 += v[i];
        }
    }
    const float warp_sum = warp_total(s0 + s1);

    float scale;
    if constexpr (kWarps == 1) {
        scale = 1.0f / warp_sum;
    } else {
        __shared__ float maxima[kWarps];
        __shared__ float sums[kWarps];
        if (lane == 0) {
            maxima[warp] = warp_max;
            sums[warp] = warp_sum;
        }
        __syncthreads();
        float m = minus_infinity();
        float s = 0.0f;
        if (lane < kWarps) {
            m = maxima[lane];
            s = sums[lane];
        }
        const float maximum = warp_maximum(m);
        float part = 0.0f;
        if (lane < kWarps) part = s * __expf(m - maximum);
        const float sum = warp_total(part);
        scale = __expf(warp_max - maximum) * (1.0f / sum);
    }

    if constexpr (kPackets) {
        uint4* to = reinterpret_cast<uint4*>(y + offset);
        const int packets = C / 8;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (i * kThreads + t < packets) {
                uint4 q;
                q.x = pack(v[8 * i] * scale, v[8 * i + 1] * scale);
                q.y = pack(v[8 * i + 2] * scale, v[8 * i + 3] * scale);
                q.z = pack(v[8 * i + 4] * scale, v[8 * i + 5] * scale);
                q.w = pack(v[8 * i + 6] * scale, v[8 * i + 7] * scale);
                __stcs(to + i * kThreads + t, q);
            }
        }
    } else {
        unsigned short* to = y + offset;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (i * kThreads + t < C) to[i * kThreads + t] = __bfloat16_as_ushort(__float2bfloat16_rn(v[i] * scale));
        }
    }
}

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void* workspace, size_t workspace_bytes,
                               cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    const unsigned short* from = reinterpret_cast<const unsigned short*>(x);
    unsigned short* to = reinterpret_cast<unsigned short*>(y);
    const unsigned rows = static_cast<unsigned>(N);
    const int c = static_cast<int>(C);
    const bool packets = C % 8 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (packets) {
        if (C <= 256) {
            softmax_kernel<32, 1, true><<<rows, 32, 0, stream>>>(from, to, c);
        } else if (C <= 512) {
            softmax_kernel<64, 1, true><<<rows, 64, 0, stream>>>(from, to, c);
        } else if (C <= 1024) {
            softmax_kernel<128, 1, true><<<rows, 128, 0, stream>>>(from, to, c);
        } else if (C <= 2048) {
            softmax_kernel<256, 1, true><<<rows, 256, 0, stream>>>(from, to, c);
        } else if (C <= 4096) {
            softmax_kernel<512, 1, true><<<rows, 512, 0, stream>>>(from, to, c);
        } else if (C <= 8192) {
            softmax_kernel<512, 2, true><<<rows, 512, 0, stream>>>(from, to, c);
        } else {
            softmax_kernel<1024, 2, true><<<rows, 1024, 0, stream>>>(from, to, c);
        }
    } else {
        if (C <= 128) {
            softmax_kernel<32, 4, false><<<rows, 32, 0, stream>>>(from, to, c);
        } else if (C <= 1024) {
            softmax_kernel<256, 4, false><<<rows, 256, 0, stream>>>(from, to, c);
        } else if (C <= 4096) {
            softmax_kernel<512, 8, false><<<rows, 512, 0, stream>>>(from, to, c);
        } else {
            softmax_kernel<1024, 16, false><<<rows, 1024, 0, stream>>>(from, to, c);
        }
    }
    return cudaGetLastError();
}
