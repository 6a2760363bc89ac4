// Rotary position embedding, bf16. 4 bytes an element are moved. The naive version is bound by powf and sincosf; here a frequency is one ex2
// a thread, and a sine with its cosine about 23 instructions without branches, all in all some 35 a pair, below what the memory takes.
// Small cases: bound by the launch (4 to 5 us); large: by the copy rate (about 45 us for 8192 x 4096).

#include <cmath>

namespace {

// Sine and cosine for 0 <= a < 2^16 or so. q·0x3FC90FDA is subtracted exactly, and what is left out of pi/2 is below 1e-10.
__device__ __forceinline__ void sine_cosine(float a, float& sine, float& cosine) {
    const float shifted = fmaf(a, 0.636619772367581343f, 12582912.0f);  // rounds to an integer in the low bits
    const unsigned quadrant = __float_as_uint(shifted);
    const float q = shifted - 12582912.0f;
    float r = fmaf(q, -1.57079625129699707f, a);
    r = fmaf(q, -7.54978941586159635e-8f, r);
    const float s = r * r;
    float p = fmaf(s, -1.9515295891e-4f, 8.3321608736e-3f);
    p = fmaf(p, s, -1.6666654611e-1f);
    const float sin_r = fmaf(p * s, r, r);
    float c = fmaf(s, 2.443315711809948e-5f, -1.388731625493765e-3f);
    c = fmaf(c, s, 4.166664568298827e-2f);
    c = fmaf(c, s, -0.5f);
    const float cos_r = fmaf(c, s, 1.0f);
    const bool odd = quadrant & 1;
    const float first = odd ? cos_r : sin_r;
    const float second = odd ? sin_r : cos_r;
    sine = __uint_as_float(__float_as_uint(first) ^ ((quadrant & 2u) << 30));
    cosine = __uint_as_float(__float_as_uint(second) ^ (((quadrant + 1u) & 2u) << 30));
}

__device__ __forceinline__ unsigned rotate(unsigned pair, float angle) {
    float sine, cosine;
    sine_cosine(angle, sine, cosine);
    const float first = __uint_as_float(pair << 16);
    const float second = __uint_as_float(pair & 0xffff0000u);
    const float low = fmaf(first, cosine, -(second * sine));
    const float high = fmaf(first, sine, second * cosine);
    unsigned result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

enum Access { kPackets, kPairs, kElements };  // 16 bytes, 4 bytes, twice 2 bytes

template <Access A>
constexpr int kWords = A == kPackets ? 4 : 1;  // pairs of an access

template <Access A, bool kStreaming>
__device__ __forceinline__ void load(const scalar_t* from, unsigned (&word)[kWords<A>]) {
    if constexpr (A == kPackets) {
        const uint4 q = kStreaming ? __ldcs(reinterpret_cast<const uint4*>(from)) : __ldg(reinterpret_cast<const uint4*>(from));
        word[0] = q.x;
        word[1] = q.y;
        word[2] = q.z;
        word[3] = q.w;
    } else if constexpr (A == kPairs) {
        word[0] = __ldg(reinterpret_cast<const unsigned*>(from));
    } else {
        const unsigned short* half = reinterpret_cast<const unsigned short*>(from);
        word[0] = static_cast<unsigned>(half[0]) | (static_cast<unsigned>(half[1]) << 16);
    }
}

template <Access A, bool kStreaming>
__device__ __forceinline__ void store(scalar_t* to, const unsigned (&word)[kWords<A>]) {
    if constexpr (A == kPackets) {
        const uint4 q = make_uint4(word[0], word[1], word[2], word[3]);
        if (kStreaming) {
            __stcs(reinterpret_cast<uint4*>(to), q);
        } else {
            *reinterpret_cast<uint4*>(to) = q;
        }
    } else if constexpr (A == kPairs) {
        *reinterpret_cast<unsigned*>(to) = word[0];
    } else {
        unsigned short* half = reinterpret_cast<unsigned short*>(to);
        half[0] = static_cast<unsigned short>(word[0] & 0xffffu);
        half[1] = static_cast<unsigned short>(word[0] >> 16);
    }
}

// `width`: accesses a row. A thread has one of them in each of R rows. Arrays have at most 2^28 elements.
template <Access A, int R>
__global__ void __launch_bounds__(128) rope_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, float slope, int M, int width) {
    constexpr int W = kWords<A>;
    constexpr bool kStreaming = R > 2;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = (blockIdx.y * blockDim.y + threadIdx.y) * R;
    if (column >= width || row >= M) return;
    const int stride = width * (2 * W);
    const int start = row * stride + column * (2 * W);

    unsigned word[R][W];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (R == 1 || row + r < M) load<A, kStreaming>(x + start + r * stride, word[r]);
    }
    float frequency[W];
#pragma unroll
    for (int k = 0; k < W; ++k) {
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(frequency[k]) : "f"(slope * static_cast<float>(column * W + k)));
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (R == 1 || row + r < M) {
            const float position = static_cast<float>(row + r);
#pragma unroll
            for (int k = 0; k < W; ++k) word[r][k] = rotate(word[r][k], position * frequency[k]);
            store<A, kStreaming>(y + start + r * stride, word[r]);
        }
    }
}

template <Access A>
void launch(const scalar_t* x, scalar_t* y, float slope, int M, int D, cudaStream_t stream) {
    const int threads = 128;
    const int width = D / (2 * kWords<A>);
    const int64_t accesses = static_cast<int64_t>(M) * width;
    const int rows = accesses <= 132 * 1024 ? 1 : accesses <= 132 * 4096 ? 2 : 4;  // of a thread
    int across = 1;
    while (across < threads && across < width) across *= 2;
    const dim3 block(across, threads / across);
    const int rows_of_block = static_cast<int>(block.y) * rows;
    const dim3 grid((width + across - 1) / across, (M + rows_of_block - 1) / rows_of_block);
    if (rows == 1) {
        rope_kernel<A, 1><<<grid, block, 0, stream>>>(x, y, slope, M, width);
    } else if (rows == 2) {
        rope_kernel<A, 2><<<grid, block, 0, stream>>>(x, y, slope, M, width);
    } else {
        rope_kernel<A, 4><<<grid, block, 0, stream>>>(x, y, slope, M, width);
    }
}

}  // namespace

extern "C" cudaError_t rope(const scalar_t* x, scalar_t* y, float base, int64_t M, int64_t D, void* workspace,
                            size_t workspace_bytes, cudaStream_t stream) {
    const float slope = static_cast<float>(-2.0 * std::log2(static_cast<double>(base)) / static_cast<double>(D));
    const uintptr_t address = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    if ((address & 15) == 0 && D % 8 == 0) {
        launch<kPackets>(x, y, slope, static_cast<int>(M), static_cast<int>(D), stream);
    } else if ((address & 3) == 0) {
        launch<kPairs>(x, y, slope, static_cast<int>(M), static_cast<int>(D), stream);
    } else {
        launch<kElements>(x, y, slope, static_cast<int>(M), static_cast<int>(D), stream);
    }
    return cudaGetLastError();
}
