// Merging of attention states at the speed of memory. A group of 1 to 32 lanes has one row (token and head): its up to four packets
// of each input for each lane are loaded at once, then the two log-sum-exps, whose weights are computed once for each thread and
// not for each element. Rows lie one after the other, so the groups of a warp access contiguous memory; all of T=512,H=32,D=128
// is one wave. Expected: the memory bound, about 8 to 9 us for T=512,H=32,D=128 and about 265 us for T=16384,H=32,D=128.

namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // packets for each lane: 32 lanes and 4 packets of 4 floats are the longest row, 512

__device__ __forceinline__ float4 load_once(const float4* at) {
    float4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(at));
    return v;
}

__device__ __forceinline__ float finite(float l) {
    return isinf(l) ? -3.402823466e+38f : l;
}

struct Weights {
    float a, b;     // divided by their sum
    float most, sum;
};

__device__ __forceinline__ Weights weights_of(float la, float lb) {
    const float a = finite(la), b = finite(lb);
    Weights w;
    w.most = fmaxf(a, b);
    const float weight_a = __expf(a - w.most), weight_b = __expf(b - w.most);
    w.sum = weight_a + weight_b;
    const float inverse = __frcp_rn(w.sum);
    w.a = weight_a * inverse;
    w.b = weight_b * inverse;
    return w;
}

// Rows of whole packets. token = row / H by multiplication: (umulhi(row, magic) + row) >> shift.
template <int kGroup>
__global__ void __launch_bounds__(kThreads, 4)
packets_kernel(const float* __restrict__ Va, const float* __restrict__ Vb, const float* __restrict__ la,
               const float* __restrict__ lb, float* __restrict__ V, float* __restrict__ lse, uint32_t T, uint32_t H,
               uint32_t row_packets, uint32_t rows, uint32_t magic, uint32_t shift) {
    const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
    const uint32_t row = thread / kGroup, lane = thread % kGroup;
    if (row >= rows) return;
    const uint32_t start = row * row_packets + lane;
    const float4* from_a = reinterpret_cast<const float4*>(Va) + start;
    const float4* from_b = reinterpret_cast<const float4*>(Vb) + start;
    float4 a[kEach], b[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
        if (lane + k * kGroup < row_packets) {
            a[k] = load_once(from_a + k * kGroup);
            b[k] = load_once(from_b + k * kGroup);
        } else {
            a[k] = b[k] = make_float4(0, 0, 0, 0);
        }
    }
    const uint32_t token = (__umulhi(row, magic) + row) >> shift;
    const uint32_t at = (row - token * H) * T + token;
    const Weights w = weights_of(__ldg(la + at), __ldg(lb + at));
    float4* to = reinterpret_cast<float4*>(V) + start;
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
        if (lane + k * kGroup < row_packets) {
            float4 v;
            v.x = fmaf(w.a, a[k].x, w.b * b[k].x);
            v.y = fmaf(w.a, a[k].y, w.b * b[k].y);
            v.z = fmaf(w.a, a[k].z, w.b * b[k].z);
            v.w = fmaf(w.a, a[k].w, w.b * b[k].w);
            __stcs(to + k * kGroup, v);
        }
    }
    if (lane == 0) lse[at] = w.most + logf(w.sum);
}

// Any row length and alignment: one warp for each row.
__global__ void __launch_bounds__(kThreads)
elements_kernel(const float* __restrict__ Va, const float* __restrict__ Vb, const float* __restrict__ la,
                const float* __restrict__ lb, float* __restrict__ V, float* __restrict__ lse, uint32_t T, uint32_t H,
                uint32_t D, uint32_t rows) {
    const uint32_t row = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const uint32_t token = row / H;
    const uint32_t at = (row - token * H) * T + token;
    const Weights w = weights_of(__ldg(la + at), __ldg(lb + at));
    const size_t start = static_cast<size_t>(row) * D;
#pragma unroll 4
    for (uint32_t i = lane; i < D; i += 32) {
        V[start + i] = fmaf(w.a, __ldg(Va + start + i), w.b * __ldg(Vb + start + i));
    }
    if (lane == 0) lse[at] = w.most + logf(w.sum);
}

}  // namespace

extern "C" size_t merge_attn_states_workspace(int64_t T, int64_t H, int64_t D) {
    return 0;
}

extern "C" cudaError_t merge_attn_states(const scalar_t* Va, const scalar_t* Vb, const scalar_t* la, const scalar_t* lb,
                                         scalar_t* V, scalar_t* lse, int64_t T, int64_t H, int64_t D, void* workspace,
                                         size_t workspace_bytes, cudaStream_t stream) {
    const uint32_t rows = static_cast<uint32_t>(T * H);
    const uint32_t t = static_cast<uint32_t>(T), h = static_cast<uint32_t>(H), d = static_cast<uint32_t>(D);
    const bool packets = d % 4 == 0 && d <= 512 &&
                         ((reinterpret_cast<uintptr_t>(Va) | reinterpret_cast<uintptr_t>(Vb) | reinterpret_cast<uintptr_t>(V)) & 15) == 0;
    if (!packets) {
        const uint32_t per_block = kThreads / 32;
        elements_kernel<<<(rows + per_block - 1) / per_block, kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, d, rows);
        return cudaGetLastError();
    }
    uint32_t shift = 0;
    while ((uint64_t{1} << shift) < h) ++shift;
    const uint32_t magic = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - h) / h + 1);
    const uint32_t row_packets = d / 4;
    const auto blocks = [&](uint32_t group) {
        return static_cast<uint32_t>((static_cast<uint64_t>(rows) * group + kThreads - 1) / kThreads);
    };
    if (row_packets <= 4) {
        packets_kernel<1><<<blocks(1), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    } else if (row_packets <= 8) {
        packets_kernel<2><<<blocks(2), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    } else if (row_packets <= 16) {
        packets_kernel<4><<<blocks(4), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    } else if (row_packets <= 32) {
        packets_kernel<8><<<blocks(8), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    } else if (row_packets <= 64) {
        packets_kernel<16><<<blocks(16), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    } else {
        packets_kernel<32><<<blocks(32), kThreads, 0, stream>>>(Va, Vb, la, lb, V, lse, t, h, row_packets, rows, magic, shift);
    }
    return cudaGetLastError();
}
