// Tiles of a product of scaled fp16 parts (msbench_split_tiles.cuh), and how one is computed again whose lines hold numbers too far apart
// for these parts.
//
// x = high + middle + low, three bf16 a number, have fp32's range: six of their nine products are exact enough (0.84 * 2^-24) for any finite
// numbers. A line is brought to the same size as its fp16 parts, so that only what lies 2^112 below its largest may be lost. If elements may notice
// that, or are of lines that are not finite, the tile is computed once more, without tensor cores (msbench_plain_tile.cuh).
//
// A block does this after all its tiles, when the ring of stages is free: each thread has a line of either factor and splits 32 k of it while the
// tensor cores multiply those before. Bound: twice the flops of the tile's first attempt.
#pragma once

#include "msbench_async.cuh"
#include "msbench_math.cuh"
#include "msbench_plain_tile.cuh"
#include "msbench_split.cuh"
#include "msbench_tile_split.cuh"
#include "msbench_wgmma.cuh"

namespace msbench {

namespace split_product {

constexpr int kTile = kLineMultiple, kConsumers = 2, kThreads = (1 + kConsumers) * kGroupThreads;
constexpr int kTileRows = 16;  // tile rows walked together
constexpr int kPlaneBytes = kTile * kPanelRowBytes;

struct Shape {
    int M, N, K, panels, slices, slice_panels;  // slice_panels, and all panels, are multiples of kChainPanels
    int64_t pitch;                              // of C
    bool pairs;                                 // of C are aligned
};

// A tile of C and a slice of K.
struct Work {
    int row, column, slice;

    __device__ __forceinline__ Work(int i, int tiles_m, int tiles_n) {
        const int tiles = tiles_m * tiles_n, tile = i % tiles, group = tile / (kTileRows * tiles_n), in_group = tile % (kTileRows * tiles_n);
        const int height = min(kTileRows, tiles_m - group * kTileRows);
        row = (group * kTileRows + in_group % height) * kTile, column = in_group / height * kTile, slice = i / tiles;
    }
};

// Eight numbers as three bf16 each. `least` becomes the smallest magnitude that is not zero, twice its bits less one.
constexpr unsigned kLeastWhole = 30u << 24;  // twice the bits of 2^-97: from here on no part is subnormal
__device__ __forceinline__ void three_parts(const float (&x)[8], unsigned (&parts)[3][4], unsigned& least) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float a = x[2 * i], b = x[2 * i + 1];
        least = min(least, min(2 * __float_as_uint(a) - 1, 2 * __float_as_uint(b) - 1));
#pragma unroll
        for (int p = 0; p < 3; ++p) {
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(parts[p][i]) : "f"(b), "f"(a));
            a -= __uint_as_float(parts[p][i] << 16), b -= __uint_as_float(parts[p][i] & 0xffff0000);
        }
    }
}

// The power of two that a line is divided by, from its unscale: also where that is NaN, but for lines that are not finite.
__device__ __forceinline__ int exponent_of(float unscale) {
    const unsigned bits = __float_as_uint(unscale), field = bits >> 23 & 0xff, largest = bits & 0xff;
    return field < 255 ? int(field) - 127 : largest < 255 ? max(int(largest) - 127 - kTopExponent, -126) : 0;
}

// A thread's line of a tile and a slice of K: group 0 has the rows of A, group 1 the columns of B.
template <class Left>
struct OwnLine {
    const Left& A;
    const Lines& B;
    int group, line, end;
    bool inside;

    __device__ __forceinline__ void operator()(float (&x)[kPanelK], int k0) const {
        if (group == 0) {
#pragma unroll
            for (int i = 0; i < kPanelK; ++i) x[i] = inside && k0 + i < end ? A.value(line, k0 + i) : 0.0f;
        } else {
#pragma unroll
            for (int i = 0; i < kPanelK; ++i) x[i] = inside && k0 + i < end ? B.value(line, k0 + i) : 0.0f;
        }
    }
};

// Where a thread's sum e is in the tile.
struct Place {
    int row, column;

    __device__ __forceinline__ Place(int group, int own, int e)
        : row(group * kGroupRows + own / 32 * 16 + e / 2 % 2 * 8 + own % 32 / 4), column(e / 4 * 8 + own % 4 * 2 + e % 2) {}
};

__device__ __forceinline__ void store_again(float* C, const Shape& shape, const Work& w, const Place& at, float value) {
    float* to = C + (w.row + at.row) * shape.pitch + w.column + at.column;
    if (shape.slices == 1) *to = value;
    else atomicAdd(to, value);
}

__device__ __forceinline__ void meet_again() {
    sync_named(1, kConsumers * kGroupThreads);
}

// The sums of a tile whose bits are set, without tensor cores. Apart, so that the rest keeps its registers.
template <class Left>
__device__ __noinline__ void multiply_plainly(const OwnLine<Left>& load, float* C, const Shape& shape, const Work& w, unsigned char* stages,
                                              int own, int from, uint64_t bits) {
    float sums[kTile / 2];
    plain_tile::multiply(sums, reinterpret_cast<float*>(stages), load.group, own, from, load.end, load, meet_again);
#pragma unroll
    for (int e = 0; e < kTile / 2; ++e) {
        if (bits >> e & 1) store_again(C, shape, w, Place(load.group, own, e), sums[e]);
    }
}

constexpr int kAgainParts = 3, kAgainBytes = 2 * kAgainParts * kPlaneBytes;  // of one of two stages
constexpr float kNoticesNothing = 0x1p-80f;  // times K: what lies 2^112 below the largest is 2^-24 of that, and less

// All threads that multiply compute a tile of C, or a slice's part of it. `stages` are free, `odd` has a number for each line, barrier 1
// is theirs.
template <class Left>
__device__ __forceinline__ void multiply_again(const Planes& a, const Planes& b, const Left& A, const Lines& B, float* C, const Shape& shape,
                                               const Work& w, unsigned char* stages, int (&odd)[2][kTile]) {
    const int own = threadIdx.x % kGroupThreads, group = threadIdx.x / kGroupThreads - 1;
    const int line = (group == 0 ? w.row : w.column) + own;
    const bool inside = line < (group == 0 ? shape.M : shape.N);
    const float scale = inside ? power_of_two(-exponent_of((group == 0 ? a : b).unscales[line])) : 0.0f;
    const int from = w.slice * shape.slice_panels * kPanelK, end = min(from + shape.slice_panels * kPanelK, shape.K);
    const OwnLine<Left> load = {A, B, group, line, end, inside};
    float x[kPanelK];
    unsigned least = ~0u;
    const auto split = [&](int stage) {
        unsigned char* to = stages + stage * kAgainBytes + group * kAgainParts * kPlaneBytes + own / 8 * 512 + own % 8 * 16;
#pragma unroll
        for (int c = 0; c < kPanelK / 8; ++c) {
            float scaled[8];
            unsigned parts[kAgainParts][4];
#pragma unroll
            for (int i = 0; i < 8; ++i) scaled[i] = x[8 * c + i] * scale;
            three_parts(scaled, parts, least);
#pragma unroll
            for (int p = 0; p < kAgainParts; ++p) {
                *reinterpret_cast<uint4*>(to + p * kPlaneBytes + c * 128) = make_uint4(parts[p][0], parts[p][1], parts[p][2], parts[p][3]);
            }
        }
        fence_shared_writes();
    };
    float sums[kTile / 2], chain[kTile / 2];
#pragma unroll
    for (int j = 0; j < kTile / 2; ++j) sums[j] = 0.0f;
    load(x, from);
    split(0);
    load(x, from + kPanelK);
    meet_again();
    for (int k = from, stage = 0; k < end; k += kPanelK, stage ^= 1) {
        const SharedAddress of = shared_address(stages) + stage * kAgainBytes, of_a = of + group * kGroupRows * kPanelRowBytes,
                            of_b = of + kAgainParts * kPlaneBytes;
        mma_fence();
#pragma unroll
        for (int step = 0; step < kPanelK / kMmaK; ++step) {
            const auto multiply_parts = [&](int part_a, int part_b) {
                multiply_add<MmaType::kBf16>(chain, descriptor_cores(of_a + part_a * kPlaneBytes + step * 256, 128, 512),
                                             descriptor_cores(of_b + part_b * kPlaneBytes + step * 256, 128, 512), step > 0 || part_a != 2);
            };
            multiply_parts(2, 0), multiply_parts(0, 2), multiply_parts(1, 1);  // small products first
            multiply_parts(1, 0), multiply_parts(0, 1), multiply_parts(0, 0);
        }
        mma_commit();
        if (k + kPanelK < end) split(stage ^ 1);
        load(x, k + 2 * kPanelK);
        mma_wait<0>();
        hold(chain);
#pragma unroll
        for (int j = 0; j < kTile / 2; ++j) sums[j] += chain[j];
        meet_again();
    }
    odd[group][own] = least < kLeastWhole;
    meet_again();
    uint64_t bad = 0;
    const float harmless = kNoticesNothing * float(shape.K);
#pragma unroll
    for (int e = 0; e < kTile / 2; ++e) {
        const Place at(group, own, e);
        const int row = w.row + at.row, column = w.column + at.column;
        if (row >= shape.M || column >= shape.N) continue;
        if (sums[e] != sums[e] || ((odd[0][at.row] | odd[1][at.column]) && !(fabsf(sums[e]) >= harmless))) {
            bad |= uint64_t(1) << e;
        } else {
            store_again(C, shape, w, at, Unscale(exponent_of(a.unscales[row]) + exponent_of(b.unscales[column]))(sums[e]));
        }
    }
    meet_again();  // `odd` has been read
    odd[0][0] = 0;
    meet_again();
    if (bad) odd[0][0] = 1;
    meet_again();
    if (odd[0][0]) multiply_plainly(load, C, shape, w, stages, own, from, bad);
}

}  // namespace split_product

}  // namespace msbench
