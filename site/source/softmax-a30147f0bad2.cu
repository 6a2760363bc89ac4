// Softmax over rows held in registers: one read, one write, one exponential per element, two block reductions.
// Bound: one read and one write of the matrix (63 us for 8192 x 8192), launch-bound for few rows.

__device__ __forceinline__ uint4 load_stream(const uint4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ float low_half(unsigned u) {
    return __uint_as_float(u << 16);
}

__device__ __forceinline__ float high_half(unsigned u) {
    return __uint_as_float(u & 0xffff0000u);
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    return static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
           (static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16);
}

__device__ __forceinline__ float minus_infinity() {
    return __uint_as_float(0xff800000u);
}

__device__ __forceinline__ float exponential(float x, float maximum) {
    return exp2f((x - maximum) * 1.4426950408889634f);
}

template <bool kMax>
__device__ __forceinline__ float combine(float a, float b) {
    return kMax ? fmaxf(a, b) : a + b;
}

template <bool kMax>
__device__ __forceinline__ float warp_reduce(float x) {
#pragma unroll
    for (int d = 16; d > 0; d /= 2) x = combine<kMax>(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// Over the T threads of a row (a warp, or the block), in all of them. `scratch` is used by one call only.
template <int T, bool kMax>
__device__ __forceinline__ float row_reduce(float x, float* scratch) {
    x = warp_reduce<kMax>(x);
    if constexpr (T > 32) {
        constexpr int kWarps = T / 32;
        const int lane = threadIdx.x & 31;
        if (lane == 0) scratch[threadIdx.x / 32] = x;
        __syncthreads();
        if constexpr (kWarps <= 8) {
            x = scratch[0];
#pragma unroll
            for (int w = 1; w < kWarps; ++w) x = combine<kMax>(x, scratch[w]);
        } else {
            x = lane < kWarps ? scratch[lane] : (kMax ? minus_infinity() : 0.0f);
            x = warp_reduce<kMax>(x);
        }
    }
    return x;
}

// T threads per row, V packets of 8 elements per thread; `blockDim.x` is a multiple of T, and T if T > 32.
template <int T, int V>
__global__ void __launch_bounds__(T < 128 ? 128 : T, T >= 512 ? 1024 / T : (T < 128 ? 8 : 1024 / T))
    softmax_vector(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int N, int C) {
    __shared__ float scratch[2][32];
    const int t = threadIdx.x % T;
    const int row = blockIdx.x * (blockDim.x / T) + threadIdx.x / T;
    if (row >= N) return;  // whole warps of rows of one warp
    const int packets = C / 8;
    const uint4* from = reinterpret_cast<const uint4*>(x + size_t(row) * C);
    uint4* to = reinterpret_cast<uint4*>(y + size_t(row) * C);
    uint4 raw[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        raw[j] = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);  // -infinity
        if (t + j * T < packets) raw[j] = load_stream(from + t + j * T);
    }
    float e[V][8];
    float maximum = minus_infinity();
#pragma unroll
    for (int j = 0; j < V; ++j) {
        e[j][0] = low_half(raw[j].x);
        e[j][1] = high_half(raw[j].x);
        e[j][2] = low_half(raw[j].y);
        e[j][3] = high_half(raw[j].y);
        e[j][4] = low_half(raw[j].z);
        e[j][5] = high_half(raw[j].z);
        e[j][6] = low_half(raw[j].w);
        e[j][7] = high_half(raw[j].w);
#pragma unroll
        for (int c = 0; c < 8; ++c) maximum = fmaxf(maximum, e[j][c]);
    }
    maximum = row_reduce<T, true>(maximum, scratch[0]);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < V; ++j) {
#pragma unroll
        for (int c = 0; c < 8; ++c) e[j][c] = exponential(e[j][c], maximum);
        sum += ((e[j][0] + e[j][1]) + (e[j][2] + e[j][3])) + ((e[j][4] + e[j][5]) + (e[j][6] + e[j][7]));
    }
    sum = row_reduce<T, false>(sum, scratch[1]);
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < V; ++j) {
        if (t + j * T < packets) {
            uint4 o;
            o.x = pack(e[j][0] * inverse, e[j][1] * inverse);
            o.y = pack(e[j][2] * inverse, e[j][3] * inverse);
            o.z = pack(e[j][4] * inverse, e[j][5] * inverse);
            o.w = pack(e[j][6] * inverse, e[j][7] * inverse);
            __stcs(to + t + j * T, o);
        }
    }
}

// A block of T threads per row, E elements per thread.
template <int T, int E>
__global__ void __launch_bounds__(T)
    softmax_elements(const __nv_bfloat16* __restrict__ x, __nv_bfloat16* __restrict__ y, int C) {
    __shared__ float scratch[2][32];
    const int t = threadIdx.x;
    const unsigned short* from = reinterpret_cast<const unsigned short*>(x) + size_t(blockIdx.x) * C;
    __nv_bfloat16* to = y + size_t(blockIdx.x) * C;
    float e[E];
#pragma unroll
    for (int j = 0; j < E; ++j) {
        unsigned bits = 0xff80u;
        if (t + j * T < C) bits = __ldg(from + t + j * T);
        e[j] = __uint_as_float(bits << 16);
    }
    float maximum = minus_infinity();
#pragma unroll
    for (int j = 0; j < E; ++j) maximum = fmaxf(maximum, e[j]);
    maximum = row_reduce<T, true>(maximum, scratch[0]);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < E; ++j) {
        e[j] = exponential(e[j], maximum);
        sum += e[j];
    }
    sum = row_reduce<T, false>(sum, scratch[1]);
    const float inverse = 1.0f / sum;
#pragma unroll
    for (int j = 0; j < E; ++j) {
        if (t + j * T < C) to[t + j * T] = __float2bfloat16_rn(e[j] * inverse);
    }
}

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void* workspace,
                               size_t workspace_bytes, cudaStream_t stream) {
    const int n = int(N), c = int(C);
    const bool vectors =
        C % 8 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (vectors) {
        if (c <= 256) {
            if (n <= 1024) softmax_vector<32, 1><<<n, 32, 0, stream>>>(x, y, n, c);
            else softmax_vector<32, 1><<<(n + 3) / 4, 128, 0, stream>>>(x, y, n, c);
        } else if (c <= 1024) {
            softmax_vector<128, 1><<<n, 128, 0, stream>>>(x, y, n, c);
        } else if (c <= 2048) {
            softmax_vector<256, 1><<<n, 256, 0, stream>>>(x, y, n, c);
        } else if (c <= 4096) {
            softmax_vector<512, 1><<<n, 512, 0, stream>>>(x, y, n, c);
        } else if (c <= 8192) {
            softmax_vector<256, 4><<<n, 256, 0, stream>>>(x, y, n, c);
        } else {
            softmax_vector<1024, 2><<<n, 1024, 0, stream>>>(x, y, n, c);
        }
    } else {
        if (c <= 256) softmax_elements<64, 4><<<n, 64, 0, stream>>>(x, y, c);
        else if (c <= 1024) softmax_elements<256, 4><<<n, 256, 0, stream>>>(x, y, c);
        else if (c <= 4096) softmax_elements<512, 8><<<n, 512, 0, stream>>>(x, y, c);
        else softmax_elements<1024, 16><<<n, 1024, 0, stream>>>(x, y, c);
    }
    return cudaGetLastError();
}
