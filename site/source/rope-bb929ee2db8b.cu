// Rotary position embedding, bf16. Memory-bound: 8 bytes a pair. 16-byte packets of 4 pairs; a thread computes its 4 frequencies once
// (ex2) and uses them for several rows, whose loads are all in flight before the arithmetic. The angle is at most 16383 radians, so
// a two-step Cody-Waite reduction with FMA to [-pi/4, pi/4] and two short polynomials give sine and cosine to about an ulp without branches.
// Expected bound: 44 us at M = 8192, D = 4096; launch and one memory latency for the small cases.
#include <cmath>

namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float frequency(uint32_t pair, float step) {
    return exp2f(static_cast<float>(pair) * step);
}

// For 0 <= a < 2^16 or so.
__device__ __forceinline__ void sine_cosine(float a, float& sine, float& cosine) {
    const float shifted = fmaf(a, 0.636619772f, 12582912.0f);
    const uint32_t quadrant = __float_as_uint(shifted);
    const float j = shifted - 12582912.0f;
    float r = fmaf(j, -1.57079601287841797f, a);   // exact
    r = fmaf(j, -3.13916473e-7f, r);
    const float s = r * r;
    float p = fmaf(-1.9515295891e-4f, s, 8.3321608736e-3f);
    p = fmaf(p, s, -1.6666654611e-1f);
    p = fmaf(p * s, r, r);
    float q = fmaf(2.443315711809948e-5f, s, -1.388731625493765e-3f);
    q = fmaf(q, s, 4.166664568298827e-2f);
    q = fmaf(q, s, -0.5f);
    q = fmaf(q, s, 1.0f);
    const bool swapped = quadrant & 1;
    const float first = swapped ? q : p;
    const float second = swapped ? p : q;
    sine = __uint_as_float(__float_as_uint(first) ^ ((quadrant << 30) & 0x80000000u));
    cosine = __uint_as_float(__float_as_uint(second) ^ (((quadrant + 1) << 30) & 0x80000000u));
}

__device__ __forceinline__ uint32_t rotate(uint32_t pair, float angle) {
    const float first = __uint_as_float(pair << 16);
    const float second = __uint_as_float(pair & 0xffff0000u);
    float sine, cosine;
    sine_cosine(angle, sine, cosine);
    const float low = fmaf(first, cosine, -(second * sine));
    const float high = fmaf(first, sine, second * cosine);
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// `width`: packets of 4 pairs in a row. A thread does one packet in each of Rows rows, blockDim.y apart.
template <int Rows, bool Stream>
__global__ void __launch_bounds__(kThreads)
rope_packets(const uint4* x, uint4* y, float step, uint32_t rows, uint32_t width) {
    const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t first_row = blockIdx.y * (blockDim.y * Rows) + threadIdx.y;
    if (column >= width) return;

    uint4 v[Rows];
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
        const uint32_t row = first_row + r * blockDim.y;
        if (row < rows) {
            const uint4* source = x + (static_cast<uint64_t>(row) * width + column);
            v[r] = Stream ? __ldcs(source) : __ldg(source);
        }
    }
    float f[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) f[k] = frequency(4 * column + k, step);
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
        const uint32_t row = first_row + r * blockDim.y;
        if (row < rows) {
            const float m = static_cast<float>(row);
            uint4 o;
            o.x = rotate(v[r].x, m * f[0]);
            o.y = rotate(v[r].y, m * f[1]);
            o.z = rotate(v[r].z, m * f[2]);
            o.w = rotate(v[r].w, m * f[3]);
            uint4* target = y + (static_cast<uint64_t>(row) * width + column);
            if (Stream) {
                __stcs(target, o);
            } else {
                *target = o;
            }
        }
    }
}

// One pair per thread, as one word or, where the addresses do not allow it, as two elements. At most 2^27 pairs.
template <bool Words>
__global__ void __launch_bounds__(kThreads)
rope_pairs(const uint16_t* x, uint16_t* y, float step, uint32_t pairs, uint32_t pairs_in_row) {
    const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= pairs) return;
    uint32_t v;
    if (Words) {
        v = __ldg(reinterpret_cast<const uint32_t*>(x) + i);
    } else {
        v = __ldg(x + 2ull * i) | static_cast<uint32_t>(__ldg(x + 2ull * i + 1)) << 16;
    }
    const uint32_t row = i / pairs_in_row;
    const uint32_t pair = i - row * pairs_in_row;
    const uint32_t o = rotate(v, static_cast<float>(row) * frequency(pair, step));
    if (Words) {
        reinterpret_cast<uint32_t*>(y)[i] = o;
    } else {
        y[2ull * i] = static_cast<uint16_t>(o);
        y[2ull * i + 1] = static_cast<uint16_t>(o >> 16);
    }
}

}  // namespace

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace;
    (void)workspace_bytes;
    if (M <= 0 || D <= 1) return cudaSuccess;
    const float step = static_cast<float>(-2.0 * std::log2(static_cast<double>(base)) / static_cast<double>(D));
    const uintptr_t address = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    if (D % 8 == 0 && (address & 15) == 0) {
        const uint32_t width = static_cast<uint32_t>(D / 8);
        const uint32_t rows = static_cast<uint32_t>(M);
        uint32_t across = 1;
        while (across < width && across < kThreads) across *= 2;
        const dim3 block(across, kThreads / across);
        const unsigned grid_x = (width + across - 1) / across;
        const uint4* in = reinterpret_cast<const uint4*>(x);
        uint4* out = reinterpret_cast<uint4*>(y);
        if (M * width <= 132 * 2048) {
            const dim3 grid(grid_x, (rows + block.y - 1) / block.y);
            rope_packets<1, false><<<grid, block, 0, stream>>>(in, out, step, rows, width);
        } else {
            const dim3 grid(grid_x, (rows + 4 * block.y - 1) / (4 * block.y));
            rope_packets<4, true><<<grid, block, 0, stream>>>(in, out, step, rows, width);
        }
    } else {
        const uint32_t pairs_in_row = static_cast<uint32_t>(D / 2);
        const uint32_t pairs = static_cast<uint32_t>(M) * pairs_in_row;
        const unsigned blocks = (pairs + kThreads - 1) / kThreads;
        const uint16_t* in = reinterpret_cast<const uint16_t*>(x);
        uint16_t* out = reinterpret_cast<uint16_t*>(y);
        if ((address & 3) == 0) {
            rope_pairs<true><<<blocks, kThreads, 0, stream>>>(in, out, step, pairs, pairs_in_row);
        } else {
            rope_pairs<false><<<blocks, kThreads, 0, stream>>>(in, out, step, pairs, pairs_in_row);
        }
    }
    return cudaGetLastError();
}
