// conv_1d in fp32 on tensor cores: two fp16 parts, scaled for each tile (msbench_tile_split.cuh), times a banded matrix of taps
// (msbench_toeplitz.cuh). Few outputs by FFMA (msbench_short_signal.cuh).
//
// Idea: a warp has a contiguous tile to itself: its largest sample by redux, no block barrier after the filter. Long signals: the next
// tiles come by bulk copies while one is multiplied, and outputs leave by one, through the place of the split samples. Some outputs,
// where latency counts: the tile comes into registers, and leaves from there. Outputs that the parts may not give exactly enough, or
// that are not finite, are found in registers and computed again by the definition, few of them by all lanes together.
//
// Bound (N = 2^25, K = 128): bytes, 63 us; MMA 47 us, FFMA would be 168.
// Measured for this design (H200, 2026-11-26), us cold: 90 there (K = 1: 70, 32: 71). Lost: tiles in registers (95; K = 1: 76), also with
// bulk stores (93); one tile ahead and stores from registers (92; K = 256: 145); 16 warps a multiprocessor (96), also with half of the
// accumulators, in two rounds over the samples (94); tiles of 512 (100); LDS of pairs instead of ldmatrix (115); prefetch to L2 (118).
// Some outputs: bulk copies take 0.3 us more.
#include "msbench_async.cuh"
#include "msbench_bulk_store.cuh"
#include "msbench_launch.cuh"
#include "msbench_short_signal.cuh"
#include "msbench_tile_split.cuh"
#include "msbench_toeplitz.cuh"

namespace {

using namespace msbench;

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kMostStages = 2, kThirdOfShared = 74 << 10;  // two tiles ahead where three blocks fit on a multiprocessor
constexpr int64_t kFew = 100000;    // outputs: by FFMA up to here (measured: 65536 and 99927 are few, 131072 are not);
constexpr int64_t kSome = 3 << 20;  // one step of outputs a row up to here (2^21 are some, 2^22 are not),
constexpr int kLongSteps = 4;       // this many beyond
constexpr int64_t kShortFilter = 64, kFewForShort = 1 << 20;  // these filters by FFMA up to so many outputs (measured: 128 not at 2^18)

template <int P>
using Tile = Toeplitz<MmaType::kFp16, P>;

// Of a warp: a tile's parts, in whose place its outputs leave, and the samples of so many tiles as they came.
template <int P>
__host__ __device__ int warp_bytes(const Tile<P>& tile, int stages) {
    return 2 * tile.part + stages * tile.units * Tile<P>::kStep * int(sizeof(float));
}

__device__ __forceinline__ float warp_largest(float size) {  // sizes are ordered as their bits are
    return __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(size)));
}

// Computes outputs again that the lanes have marked: bit b is number place(b) of the tile whose samples begin at x. A lane by itself takes
// long for one, for which the kernel would wait where it is one of the last.
template <class Place, class Store>
__device__ __forceinline__ void compute_again(unsigned marked, const float* x, const float* w, int K, Place place, Store store) {
    constexpr int kAlone = 8;  // up to so many lanes at a time, the warp computes each output together
    for (unsigned lanes; (lanes = __ballot_sync(0xffffffffu, marked != 0)) != 0; marked &= marked - 1) {
        const int at = marked != 0 ? place(__ffs(marked) - 1) : 0;
        float v = 0;
        if (__popc(lanes) > kAlone) {
            if (marked != 0) v = exact_output(x + at, w, K);
        } else {
            for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
                const int owner = __ffs(rest) - 1;
                const float sum = exact_output_by_warp(x + __shfl_sync(0xffffffffu, at, owner), w, K);
                if (int(threadIdx.x) % 32 == owner) v = sum;
            }
        }
        if (marked != 0) store(at, v);
    }
}

// Three blocks a multiprocessor: 168 registers a thread. stages: tiles that come at a time, 0 if they come into registers.
template <int P, bool kStaged>
__global__ void __launch_bounds__(kThreads, P == 1 ? 4 : 3)
    conv_tiles(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, int N, int K, int shift, int tiles, int stages) {
    extern __shared__ __align__(128) char shared[];
    __shared__ Barrier barriers[kWarps][kMostStages];
    using Shape = Tile<P>;
    constexpr int kMain = Shape::kTile / 4 / 32;  // packets of a lane; those beyond the tile follow, one of them held
    const Shape shape(K);
    const Signal<float> signal{x, N, shift};
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, outputs = N - K + 1, packets = shape.units * 4;
    char* const samples = shared + 2 * shape.filter + warp * warp_bytes(shape, stages);
    Packet<float>* const staged = reinterpret_cast<Packet<float>*>(samples + 2 * shape.part);
    Barrier* const arrived = barriers[warp];

    Packet<float> held[kMain + 1];
    const auto index = [&](int n) { return min(lane + 32 * n, packets - 1); };
    const auto fetch = [&](int tile, int stage) {
        const int start = tile * Shape::kTile;
        const bool whole = signal.covers(start, shape.units * Shape::kStep);
        if constexpr (!kStaged) {
            const float4* const from = reinterpret_cast<const float4*>(signal.at(start));
#pragma unroll
            for (int n = 0; n <= kMain; ++n) {
                if (whole) reinterpret_cast<float4&>(held[n]) = n < kMain ? __ldcs(from + lane + 32 * n) : from[index(n)];
                else held[n] = signal.packet(start + index(n) * 4);
            }
        } else if (whole) {
            if (lane == 0) {
                arrived[stage].expect(packets * 16);
                copy_bulk(staged + stage * packets, signal.at(start), packets * 16, arrived[stage]);
            }
        } else {
            for (int n = lane; n < packets; n += 32) staged[stage * packets + n] = signal.packet(start + n * 4);
            __syncwarp();
            if (lane == 0) arrived[stage].arrive();
        }
    };

    int tile = blockIdx.x * kWarps + warp;
    const int stride = gridDim.x * kWarps;
    if constexpr (kStaged) {
        if (lane == 0) {
            for (int s = 0; s < stages; ++s) arrived[s].init(1);
            fence_barriers();
        }
        __syncwarp();
        for (int s = 0; s < stages; ++s)
            if (tile + s * stride < tiles) fetch(tile + s * stride, s);
    } else if (tile < tiles) fetch(tile, 0);
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
    int stage = 0, parity = 0;
    for (; tile < tiles; tile += stride) {
        const Packet<float>* const here = staged + stage * packets;
        if constexpr (kStaged) {
            arrived[stage].wait(parity);
#pragma unroll
            for (int n = 0; n <= kMain; ++n) held[n] = here[n < kMain ? lane + 32 * n : index(n)];
        }
        // f(packet, number) for all packets of the tile: those held, then the rest.
        const auto for_each = [&](auto f) {
#pragma unroll
            for (int n = 0; n <= kMain; ++n) f(held[n], n);
#pragma unroll 1
            for (int n = kMain + 1; 32 * n < packets; ++n) f(kStaged ? here[index(n)] : signal.packet(tile * Shape::kTile + index(n) * 4), n);
        };
        size = 0;
        for_each([&](const Packet<float>& p, int) {
#pragma unroll
            for (int e = 0; e < 4; ++e) size = fmaxf(size, fabsf(p.lane[e]));
        });
        size = warp_largest(size);
        if (size == __builtin_huge_valf()) {
            size = 0;
            for_each([&](const Packet<float>& p, int) {
#pragma unroll
                for (int e = 0; e < 4; ++e) size = fmaxf(size, finite_size(p.lane[e]));
            });
            size = warp_largest(size);
        }
        const TileScale scale(size);
        if constexpr (kStaged) {
            if (lane == 0) wait_for_bulk_reads();
            __syncwarp();
        }
        LeastHigh least;
        for_each([&](const Packet<float>& p, int n) {
            const Parts a(p.lane[0] * scale.up, p.lane[1] * scale.up), b(p.lane[2] * scale.up, p.lane[3] * scale.up);
            least.note(a.high), least.note(b.high);
            char* const to = samples + (n < kMain ? Shape::place(lane / 4) + lane % 4 * 8 + n * (8 / P * Shape::kRowBytes)
                                                  : Shape::place(index(n) / 4) + index(n) % 4 * 8);
            *reinterpret_cast<uint2*>(to) = make_uint2(a.high, b.high);
            *reinterpret_cast<uint2*>(to + shape.part) = make_uint2(a.low, b.low);
        });
        bool small = false;
        if (__any_sync(0xffffffffu, least.suspicious())) {  // zeros, most likely
            for_each([&](const Packet<float>& p, int) {
#pragma unroll
                for (int e = 0; e < 4; ++e) small |= scale.too_small(p.lane[e]);
            });
        }
        small = __any_sync(0xffffffffu, small) || small_taps;
        __syncwarp();
        const int next = tile + (kStaged ? stages : 1) * stride;
        if (next < tiles) fetch(next, stage);
        if (kStaged && ++stage == stages) stage = 0, parity ^= 1;
        float sum[P][2][4];
        shape.correlate(sum, samples, shared);

        const Unscale unscale(scale.exponent + filter_scale.exponent);
        const int first = tile * Shape::kTile - shift;  // output
        const bool whole = whole_stores && first >= 0 && first + Shape::kTile <= outputs;
        float* const results = reinterpret_cast<float*>(samples);
        // The lane's output number e of four, of step p, in the upper or lower half of the rows.
        const auto place = [&](int p, int h, int e) { return ((lane / 4 + 8 * h) * P + p) * Shape::kStep + lane % 4 * 4 + e; };
        __syncwarp();  // the samples are read: their place may be filled
        float test = 0;  // NaN if an output is not finite
#pragma unroll
        for (int p = 0; p < P; ++p)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float v[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) v[e] = unscale(sum[p][e / 2][2 * h + e % 2]), test = fmaf(v[e], 0.0f, test);
                const int at = place(p, h, 0), i = first + at;
                if (kStaged) *reinterpret_cast<float4*>(results + at) = make_float4(v[0], v[1], v[2], v[3]);
                else if (whole) __stcs(reinterpret_cast<float4*>(y + i), make_float4(v[0], v[1], v[2], v[3]));
                else
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (i + e >= 0 && i + e < outputs) y[i + e] = v[e];
            }
        if (__any_sync(0xffffffffu, small || test != 0.0f)) {
            const float least_exact = small ? unscale.least_exact(K) : 0.0f;
            unsigned marked = 0;
#pragma unroll
            for (int b = 0; b < 8 * P; ++b) {
                const float v = fabsf(unscale(sum[b / 8][b % 4 / 2][b / 4 % 2 * 2 + b % 2]));
                const int i = first + place(b / 8, b / 4 % 2, b % 4);
                if (!(v >= least_exact && v < __builtin_huge_valf()) && i >= 0 && i < outputs) marked |= 1u << b;
            }
            float* const to = kStaged ? results : y + first;
            compute_again(
                marked, x + first, w, K, [&](int b) { return place(b / 8, b / 4 % 2, b % 4); }, [&](int at, float v) { to[at] = v; });
        }
        if (kStaged && whole) {
            fence_shared_writes();
            __syncwarp();
            if (lane == 0) store_bulk(y + first, results, Shape::kTile * int(sizeof(float)));
        } else if (kStaged) {
            __syncwarp();
            for (int n = lane; n < Shape::kTile; n += 32)
                if (first + n >= 0 && first + n < outputs) y[first + n] = results[n];
        }
        __syncwarp();
    }
    if (kStaged && lane == 0) wait_for_bulk_stores();
}

template <int P>
cudaError_t launch(const float* x, const float* w, float* y, int N, int K, cudaStream_t stream) {
    constexpr bool kStaged = P > 1;
    const auto kernel = conv_tiles<P, kStaged>;
    const Tile<P> shape(K);
    const auto bytes_of = [&](int stages) { return 2 * shape.filter + kWarps * warp_bytes(shape, stages); };
    const int stages = !kStaged ? 0 : bytes_of(kMostStages) <= kThirdOfShared ? kMostStages : 1, bytes = bytes_of(stages);
    const int shift = int(reinterpret_cast<uintptr_t>(x) / sizeof(float) % 4);
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    const int64_t tiles = ceil_div(N - K + 1 + shift, Tile<P>::kTile), blocks = ceil_div(tiles, kWarps);
    const int64_t most = resident_blocks(kernel, kThreads, bytes);
    return Launch(unsigned(blocks < most ? blocks : most), kThreads, stream)
        .shared(bytes)(kernel, x, w, y, N, K, shift, int(tiles), stages);
}

}  // namespace

extern "C" cudaError_t conv_1d(const scalar_t* x, const scalar_t* w, scalar_t* y, int64_t N, int64_t K, void*, size_t,
                               cudaStream_t stream) {
    const int64_t outputs = N - K + 1;
    if (outputs <= kFew || (K <= kShortFilter && outputs <= kFewForShort)) return correlate_short_signal(x, w, y, N, K, stream);
    if (outputs <= kSome) return launch<1>(x, w, y, int(N), int(K), stream);
    return launch<kLongSteps>(x, w, y, int(N), int(K), stream);
}
