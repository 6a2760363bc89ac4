// conv_2d in fp32 on tensor cores: numbers in two fp16 parts (msbench_tile_split.cuh), filter rows as banded matrices (msbench_bands.cuh).
// Small images and small filters by FFMA (msbench_image_ffma.cuh), which starts sooner.
//
// Idea: three MMAs of fp16 give fp32's accuracy at a third of 612 Tflop/s, four times FFMA's rate; bands waste a third of that at KW = 16.
// A block holds its tile of the image in registers, all of it loaded before the first use, until it knows the largest number; then it
// scales and splits it into two planes of shared memory. Each warp walks down the rows on its own. Outputs that the parts may not give
// exactly enough, or that are not finite, are computed again by the definition.
//
// Bound (8192, 16 x 16): 154 Tflop of MMAs with the waste, 252 us at mma.sync's peak; FFMA 671; bytes 126 us.
// Measured (H200, 2026-11-23), us cold: 417 there; 4096 with 16 x 16, 32 x 32: 114, 300; 1024, 32 x 32: 27. By FFMA alone 744; 195, 697; 50; but 70
// instead of 82 at 4096, 8 x 8, and 5.5 instead of 6.1 at 256, 8 x 8. Lost: loading the tile twice in short loops (563); 4 rows a warp (494); blocks of
// 6 warps (428); bands of 4 filter rows (431); wgmma as in msbench_wide_bands.cuh (1459: ptxas serialises it).
#include "msbench_bands.cuh"
#include "msbench_image_ffma.cuh"
#include "msbench_image_tile.cuh"
#include "msbench_launch.cuh"
#include "msbench_tile_split.cuh"

namespace {

using namespace msbench;

// kWidth neighbours of the tile, with zeros beyond the image. `left` of them exist, all or none if they are a packet.
template <int kWidth>
__device__ __forceinline__ void load(float (&v)[kWidth], const float* from, int left) {
    if constexpr (kWidth == 4) {
        const float4 f = left > 0 ? *reinterpret_cast<const float4*>(from) : make_float4(0, 0, 0, 0);
        v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
    } else {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = k < left ? from[k] : 0.0f;
    }
}

template <class P, int kWidth>
__global__ void __launch_bounds__(P::kThreads, P::kBlocks)
    convolve(const float* __restrict__ x, const float* __restrict__ w, float* y, const ImageShape s) {
    extern __shared__ uint4 shared[];
    __shared__ float largest[2][P::kThreads / 32];
    const int rows = P::image_rows(s.KH), part = P::image_bytes(rows);
    char* const tile = reinterpret_cast<char*>(shared);
    unsigned short* const filter = reinterpret_cast<unsigned short*>(tile + P::kParts * part);
    const int64_t row0 = int64_t(blockIdx.y) * P::kTileRows, column0 = int64_t(blockIdx.x) * P::kColumns;

    const float* const corner = x + row0 * s.W + column0;
    const int below = int(s.H - row0), right = int(s.W - column0);
    constexpr int kGroups = P::kPitch / kWidth;  // of a row
    constexpr int kHeld = (P::kMostRows * kGroups + P::kThreads - 1) / P::kThreads;
    const int count = rows * kGroups;
    float held[kHeld][kWidth];
    const typename P::template Filter<float> taps(w, s.KH, s.KW);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
        const int e = k * P::kThreads + threadIdx.x, r = e / kGroups, c = e % kGroups * kWidth;
        load(held[k], corner + (r * s.W + c), e < count && r < below ? right - c : 0);
    }
    taps.prepare(filter);
    float sizes[2] = {};
#pragma unroll
    for (const float tap : taps.element) sizes[1] = fmaxf(sizes[1], finite_size(tap));
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sizes[0] = fmaxf(sizes[0], finite_size(held[k][j]));
#pragma unroll
    for (int k = 0; k < 2; ++k) {  // sizes are ordered as their bits are
        const unsigned most = __reduce_max_sync(0xffffffffu, __float_as_uint(sizes[k]));
        if (threadIdx.x % 32 == 0) largest[k][threadIdx.x / 32] = __uint_as_float(most);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
        for (int n = 0; n < P::kThreads / 32; ++n) sizes[k] = fmaxf(sizes[k], largest[k][n]);
    const TileScale image_scale(sizes[0]), filter_scale(sizes[1]);

    bool small = false;
    LeastHigh least;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
        const int e = k * P::kThreads + threadIdx.x;
        unsigned* const to = reinterpret_cast<unsigned*>(tile) + e * (kWidth / 2);
        if (e >= count) break;
#pragma unroll
        for (int j = 0; j < kWidth; j += 2) {
            const Parts parts(held[k][j] * image_scale.up, held[k][j + 1] * image_scale.up);
            least.note(parts.high);
            to[j / 2] = parts.high, to[j / 2 + part / 4] = parts.low;
        }
    }
    if (least.suspicious()) {  // zeros, most likely
#pragma unroll
        for (int k = 0; k < kHeld; ++k)
#pragma unroll
            for (int j = 0; j < kWidth; ++j) small |= image_scale.too_small(held[k][j]);
    }
    taps.place(filter, s.KH, s.KW, [&](float tap) {
        small |= filter_scale.too_small(tap);
        const Parts parts(tap * filter_scale.up, 0.0f);
        return (parts.high & 0xffff) | parts.low << 16;
    });
    small = __syncthreads_or(small);

    float sum[P::kRows][4];
    P::correlate(sum, tile, part, filter, s.KH);
    const Unscale unscale(image_scale.exponent + filter_scale.exponent);
#pragma unroll
    for (int i = 0; i < P::kRows; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[i][k] = unscale(sum[i][k]);
    finish<P>(sum, x, w, y, s, row0 + P::first_row(), column0, small ? unscale.least_exact(s.KH * s.KW) : 0.0f);
}

template <class P>
cudaError_t launch(const float* x, const float* w, float* y, const ImageShape& s, cudaStream_t stream) {
    const int bytes = P::kParts * P::image_bytes(P::image_rows(s.KH)) + P::filter_bytes(s.KH);
    const dim3 blocks(unsigned(ceil_div(s.columns, P::kColumns)), unsigned(ceil_div(s.rows, P::kTileRows)));
    const bool packets = packets_allowed(x) && s.W % 4 == 0;
    return Launch(blocks, P::kThreads, stream).shared(bytes)(packets ? convolve<P, 4> : convolve<P, 2>, x, w, y, s);
}

template <int kBlocksK>
using Tensor = Bands<MmaType::kFp16, kBlocksK, 8, kBlocksK <= 3 ? 8 : 4, 4, 1, 3>;

//                      rows  filter rows  team  teams  blocks
using Small = FfmaPlan<2, 4, 1, 8, 1>;
using SmallFilter = FfmaPlan<4, 4, 4, 1, 5>;
constexpr int64_t kSmall = 200000;  // outputs: 256 x 256 and 1024 x 1024 lie on either side

}  // namespace

extern "C" cudaError_t conv_2d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t H, int64_t W, int64_t KH,
                               int64_t KW, void*, size_t, cudaStream_t stream) {
    const ImageShape s = {int(H), int(W), int(KH), int(KW), H - KH + 1, W - KW + 1};
    if (s.rows * s.columns <= kSmall) {
        if (KW <= 8) return launch_ffma<Small, 1>(x, w, y, s, stream);
        return KW <= 16 ? launch_ffma<Small, 2>(x, w, y, s, stream) : launch_ffma<Small, 4>(x, w, y, s, stream);
    }
    if (KH <= 8 && KW <= 8) return launch_ffma<SmallFilter, 1>(x, w, y, s, stream);
    if (KW <= 9) return launch<Tensor<2>>(x, w, y, s, stream);
    return KW <= 17 ? launch<Tensor<3>>(x, w, y, s, stream) : launch<Tensor<5>>(x, w, y, s, stream);
}
