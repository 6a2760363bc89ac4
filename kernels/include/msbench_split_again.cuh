// A tile of a product of scaled fp16 parts (msbench_split_tiles.cuh) once more, whose lines hold numbers too far apart for these parts.
//
// x = high + middle + low, three bf16 a number, have fp32's range: six of their nine products are exact enough (0.84 * 2^-24) for any finite
// numbers whose products are not too small. A line is brought to the same size as its fp16 parts, so that only products some 2^110 below the largest
// may be lost. If elements may notice that, or are of lines that are not finite, the tile is computed a third time, without tensor cores.
//
// A block does this after all its tiles, when the ring of stages is free: each thread has a line of either factor and splits 32 k of it while the
// tensor cores multiply those before. Bound: twice the flops of the tile's first attempt.
#pragma once

#include "msbench_math.cuh"
#include "msbench_split_works.cuh"
#include "msbench_tile_split.cuh"

namespace msbench {

namespace split_product {

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

// Whether a line's unscale says that it has numbers that are not finite.
__device__ __forceinline__ bool not_finite(float unscale) {
    return (__float_as_uint(unscale) & 0x7f8000ff) == 0x7f8000ff;
}

// The exponent that a line's smallest number which is not zero has once scaled, or less; far up where all are zero. `least`: twice its bits less one.
__device__ __forceinline__ int least_exponent(unsigned least, int exponent) {
    return least == ~0u ? 1 << 20 : (least < 1u << 24 ? -149 : int(least >> 24) - 127) - exponent;
}

constexpr int kAgainParts = 3, kAgainBytes = 2 * kAgainParts * kPlaneBytes;  // of one of two stages
constexpr float kNoticesNothing = 0x1p-80f;  // times K: what is lost is 2^-24 of that, and less
constexpr int kWhole = -83;  // above it, a product has all its parts: either number lies above 2^-97, and no product of parts below 2^-126

// All threads that multiply compute a tile of C, or a slice's part of it. `stages` are free, `odd` has a number for each line, barrier 1
// is theirs.
template <class Left>
__device__ __forceinline__ void multiply_again(const Planes& a, const Planes& b, const Left& A, const Lines& B, float* C, const Shape& shape,
                                               const Work& w, unsigned char* stages, int (&odd)[2][kTile]) {
    const int own = threadIdx.x % kGroupThreads, group = threadIdx.x / kGroupThreads - 1;
    const int line = (group == 0 ? w.row : w.column) + own;
    const bool inside = line < (group == 0 ? shape.M : shape.N);
    const float unscale = inside ? (group == 0 ? a : b).unscales[line] : 1.0f;
    const int exponent = exponent_of(unscale);
    // Not finite: all of the line becomes NaN in each slice; what is finite there might overflow.
    const float scale = !inside ? 0.0f : not_finite(unscale) ? __int_as_float(0x7fffffff) : power_of_two(-exponent);
    const int from = w.slice * shape.slice_panels * kPanelK, end = min(from + shape.slice_panels * kPanelK, shape.K);
    const OwnLine<Left> load = {A, B, group, line, end, inside};
    float x[kPanelK];
    unsigned least = ~0u, of_scaled = ~0u;
    const auto split = [&](int stage) {
        unsigned char* to = stages + stage * kAgainBytes + group * kAgainParts * kPlaneBytes + own / 8 * 512 + own % 8 * 16;
#pragma unroll
        for (int c = 0; c < kPanelK / 8; ++c) {
            float scaled[8];
            unsigned parts[kAgainParts][4];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                least = min(least, 2 * __float_as_uint(x[8 * c + i]) - 1);  // scaled it may be zero
                scaled[i] = x[8 * c + i] * scale;
            }
            three_parts(scaled, parts, of_scaled);
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
    // Begins two panels early, with what the stages happen to hold, so that there is one copy of the code that loads and splits.
    for (int k = from - 2 * kPanelK, stage = 0; k < end; k += kPanelK, stage ^= 1) {
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
        if (k + kPanelK >= from && k + kPanelK < end) split(stage ^ 1);
        load(x, k + 2 * kPanelK);
        mma_wait<0>();
        hold(chain);
#pragma unroll
        for (int j = 0; j < kTile / 2; ++j) sums[j] = k < from ? 0.0f : sums[j] + chain[j];
        meet_again();
    }
    odd[group][own] = least_exponent(least, exponent);
    meet_again();
    uint64_t bad = 0;
    const float harmless = kNoticesNothing * float(shape.K);
#pragma unroll
    for (int e = 0; e < kTile / 2; ++e) {
        const Place at(group, own, e);
        const int row = w.row + at.row, column = w.column + at.column;
        if (row >= shape.M || column >= shape.N) continue;
        if (sums[e] != sums[e] || (odd[0][at.row] + odd[1][at.column] <= kWhole && !(fabsf(sums[e]) >= harmless))) {
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
