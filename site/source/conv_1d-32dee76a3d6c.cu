// conv_1d in fp32 on tensor cores: two fp16 parts, scaled for each tile (msbench_tile_split.cuh), times a banded matrix of taps
// (msbench_toeplitz.cuh). Few outputs by FFMA (msbench_short_signal.cuh).
//
// Idea: a warp has a contiguous tile to itself: its largest sample by redux, no block barrier after the filter. The next tile waits in
// registers while this one is multiplied. Outputs that the parts may not give exactly enough, or that are not finite, are
// computed again by the definition.
//
// Bound (N = 2^25, K = 128): bytes, 63 us; MMA 47 us, FFMA would be 168.
// Measured for this design (H200, 2026-11-23), us cold: 93 there (K = 1: 73, 256: 150). Lost: LDS of pairs instead of ldmatrix (115); 16 warps a
// multiprocessor, with spills (105); prefetch to L2 instead of registers (118).
#include "msbench_launch.cuh"
#include "msbench_short_signal.cuh"
#include "msbench_tile_split.cuh"
#include "msbench_toeplitz.cuh"

namespace {

using namespace msbench;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int64_t kFew = 100000;    // outputs: short signals up to here (measured: 65536 and 99927 are few, 131072 are not),
constexpr int64_t kSome = 3 << 20;  // one step of outputs a row up to here (2^21 are some, 2^22 are not),
constexpr int kLongSteps = 4;       // this many beyond

template <int P>
using Tile = Toeplitz<MmaType::kFp16, P>;

template <int P>
__host__ __device__ int shared_bytes(const Tile<P>& tile) {
    return 2 * tile.filter + kWarps * 2 * tile.part;
}

__device__ __forceinline__ float warp_largest(float size) {  // sizes are ordered as their bits are
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(size)));
}

// Three blocks a multiprocessor: 168 registers a thread.
template <int P>
__global__ void __launch_bounds__(kThreads, P == 1 ? 4 : 3)
    conv_tiles(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int N, int K, int shift, int tiles) {
    extern __shared__ __align__(128) char shared[];
    using Shape = Tile<P>;
    constexpr int kMain = Shape::kTile / 4 / 32;  // packets of a lane; those beyond the tile follow, one of them held
    const Shape shape(K);
    const Signal<float> signal{x, N, shift};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, outputs = N - K + 1, packets = shape.units * 4;
    char* const samples = shared + 2 * shape.filter + warp * 2 * shape.part;

    Packet<float> held[kMain + 1];
    const auto index = [&](int n) { return min(lane + 32 * n, packets - 1); };
    const auto fetch = [&](int tile) {
        const int start = tile * Shape::kTile;
        if (signal.covers(start, shape.units * Shape::kStep)) {
            const float4* const from = reinterpret_cast<const float4*>(signal.at(start));
#pragma unroll
            for (int n = 0; n <= kMain; ++n) reinterpret_cast<float4&>(held[n]) = n < kMain ? __ldcs(from + lane + 32 * n) : from[index(n)];
        } else {
#pragma unroll
            for (int n = 0; n <= kMain; ++n) held[n] = signal.packet(start + index(n) * 4);
        }
    };
    // f(packet, number) for all packets of the tile: those held, then the rest, from L1.
    const auto for_each = [&](int tile, auto f) {
#pragma unroll
        for (int n = 0; n <= kMain; ++n) f(held[n], n);
#pragma unroll 1
        for (int n = kMain + 1; 32 * n < packets; ++n) f(signal.packet(tile * Shape::kTile + index(n) * 4), n);
    };

    int tile = blockIdx.x * kWarps + warp;
    if (tile < tiles) fetch(tile);
    float size = 0;
#pragma unroll 4
    for (int k = lane; k < K; k += 32) size = fmaxf(size, finite_size(w[k]));
    const TileScale filter_scale(warp_largest(size));
    bool small_taps = false;
    shape.stage_filter(shared, w, K, [&](float tap) {
        small_taps |= filter_scale.too_small(tap);
        const Parts parts(tap * filter_scale.up, 0.0f);
        return (parts.high & 0xffff) | parts.low << 16;
    });
    small_taps = __syncthreads_or(small_taps);

    const bool whole_stores = (reinterpret_cast<uintptr_t>(y - shift) & 15) == 0;
    for (const int stride = gridDim.x * kWarps; tile < tiles; tile += stride) {
        size = 0;
        for_each(tile, [&](const Packet<float>& p, int) {
#pragma unroll
            for (int e = 0; e < 4; ++e) size = fmaxf(size, fabsf(p.lane[e]));
        });
        size = warp_largest(size);
        if (size == __builtin_huge_valf()) {
            size = 0;
            for_each(tile, [&](const Packet<float>& p, int) {
#pragma unroll
                for (int e = 0; e < 4; ++e) size = fmaxf(size, finite_size(p.lane[e]));
            });
            size = warp_largest(size);
        }
        const TileScale scale(size);
        LeastHigh least;
        for_each(tile, [&](const Packet<float>& p, int n) {
            const Parts a(p.lane[0] * scale.up, p.lane[1] * scale.up), b(p.lane[2] * scale.up, p.lane[3] * scale.up);
            least.note(a.high), least.note(b.high);
            char* const to = samples + (n < kMain ? Shape::place(lane / 4) + lane % 4 * 8 + n * (8 / P * Shape::kRowBytes)
                                                  : Shape::place(index(n) / 4) + index(n) % 4 * 8);
            *reinterpret_cast<uint2*>(to) = make_uint2(a.high, b.high);
            *reinterpret_cast<uint2*>(to + shape.part) = make_uint2(a.low, b.low);
        });
        bool small = false;
        if (__any_sync(0xffffffffu, least.suspicious())) {  // zeros, most likely
            for_each(tile, [&](const Packet<float>& p, int) {
#pragma unroll
                for (int e = 0; e < 4; ++e) small |= scale.too_small(p.lane[e]);
            });
        }
        small = __any_sync(0xffffffffu, small) || small_taps;
        const int exponent = scale.exponent + filter_scale.exponent;
        if (tile + stride < tiles) fetch(tile + stride);
        __syncwarp();
        float sum[P][2][4];
        shape.correlate(sum, samples, shared);

        const Unscale unscale(exponent);
        const int first = tile * Shape::kTile - shift;  // output
        const bool whole = whole_stores && first >= 0 && first + Shape::kTile <= outputs;
        float test = 0;  // NaN if an output is not finite
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float v[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) v[e] = unscale(sum[p][e / 2][2 * h + e % 2]), test = fmaf(v[e], 0.0f, test);
                const int i = first + ((lane / 4 + 8 * h) * P + p) * Shape::kStep + lane % 4 * 4;
                if (whole) __stcs(reinterpret_cast<float4*>(y + i), make_float4(v[0], v[1], v[2], v[3]));
                else
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (i + e >= 0 && i + e < outputs) y[i + e] = v[e];
            }
        __syncwarp();  // the samples are read: their place may be filled
        if (__any_sync(0xffffffffu, small || test != 0.0f)) {
            const float least_exact = small ? unscale.least_exact(K) : 0.0f;
            for (int i = max(first, 0) + lane; i < min(first + Shape::kTile, outputs); i += 32)
                if (!(fabsf(y[i]) >= least_exact && fabsf(y[i]) < __builtin_huge_valf())) y[i] = exact_output(x + i, w, K);
        }
    }
}

template <int P>
cudaError_t launch(const float* x, const float* w, float* y, int N, int K, cudaStream_t stream) {
    const int shift = int(reinterpret_cast<uintptr_t>(x) / sizeof(float) % 4), bytes = shared_bytes(Tile<P>(K));
    const cudaError_t error = cudaFuncSetAttribute(conv_tiles<P>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    const int64_t tiles = ceil_div(N - K + 1 + shift, Tile<P>::kTile), blocks = ceil_div(tiles, kWarps);
    const int64_t most = resident_blocks(conv_tiles<P>, kThreads, bytes);
    return Launch(unsigned(blocks < most ? blocks : most), kThreads, stream)
        .shared(bytes)(conv_tiles<P>, x, w, y, N, K, shift, int(tiles));
}

}  // namespace

extern "C" cudaError_t conv_1d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K, void*, size_t,
                               cudaStream_t stream) {
    const int64_t outputs = N - K + 1;
    if (outputs <= kFew) return correlate_short_signal(x, w, y, N, K, stream);
    if (outputs <= kSome) return launch<1>(x, w, y, int(N), int(K), stream);
    return launch<kLongSteps>(x, w, y, int(N), int(K), stream);
}
