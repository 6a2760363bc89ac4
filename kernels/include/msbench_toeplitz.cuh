// The correlation of a signal in shared memory with a filter, on tensor cores: overlapping rows times a banded matrix of taps.
//
// Outputs 16 m to 16 m + 15 are row m of A B with A[m, k] = x[16 m + k], B[k, j] = w[k - j]; K taps take (K + 15) / 16 steps of 16. A warp has 16
// rows of P such steps of outputs, a contiguous tile, to itself. Rows are consecutive pieces of the signal, so the A of the next 16 outputs is
// the A already in registers, one step on: each is loaded once, by ldmatrix. Columns of B are permuted so that a lane has four outputs
// in a row. Numbers are of one part (bf16), or of two (fp16, msbench_tile_split.cuh).
//
// Zeros of the band times an infinite sample make NaN, never a wrong number: outputs that are not finite are computed again (exact_output).
#pragma once

#include "msbench.cuh"
#include "msbench_mma.cuh"

namespace msbench {

template <MmaType kType_, int P_>
struct Toeplitz {
    static constexpr MmaType kType = kType_;
    static constexpr int P = P_, kParts = kType == MmaType::kBf16 ? 1 : 2;
    static constexpr int kStep = 16, kRows = 16, kTile = kRows * P * kStep;  // a warp's outputs
    static constexpr int kUnit = 32;                                         // bytes of a step's samples of a row, in one part
    static constexpr int kRowBytes = P * kUnit + 16;                         // 16 more, so that eight rows lie in different banks

    int T;       // steps
    int units;   // that a tile reads: 16 samples each
    int copy;    // 16-byte groups from one shifted copy of the filter to the next: 1 modulo 8
    int filter;  // bytes of a part of the filter
    int part;    // bytes of a part of a tile's samples

    __host__ __device__ explicit Toeplitz(int K) {
        T = (K + 2 * kStep - 2) / kStep;
        units = kRows * P + T - 1;
        copy = (T + 7) / 8 * 8 + 1;
        filter = 2 * (8 * copy + 2) * 16;
        part = units * kUnit + (units / P + 1) * 16;
    }

    // Where a unit lies among a tile's samples, and a group of the filter.
    __device__ __forceinline__ static int place(int unit) { return unit * kUnit + unit / P * 16; }
    // Eight copies of the filter, shifted by 0 to 7 taps: group g of copy c has taps 8 (g - 2) - c to 8 (g - 2) - c + 7, and zeros beyond its
    // ends. Even and odd groups lie apart, so that the eight rows that ldmatrix reads at a time lie in different banks.
    __device__ __forceinline__ int group_place(int copy_, int group) const {
        return (group % 2 * (8 * copy + 2) + copy_ * copy + group / 2) * 16;
    }

    // `bits(tap)` has part 0 in the lower half, and part 1 in the upper one; those of 0 are 0.
    template <typename Scalar, class Bits>
    __device__ __forceinline__ void stage_filter(char* shared, const Scalar* w, int K, Bits bits) const {
#pragma unroll 1
        for (int g = threadIdx.x; g < 8 * (2 * T + 2); g += blockDim.x) {
            const int first = 8 * (g / 8 - 2) - g % 8;
            Scalar tap[8];
            unsigned taps[8], words[kParts][4];
#pragma unroll
            for (int e = 0; e < 8; ++e) tap[e] = unsigned(first + e) < unsigned(K) ? w[first + e] : from_float<Scalar>(0.0f);
#pragma unroll
            for (int e = 0; e < 8; ++e) taps[e] = bits(tap[e]);
#pragma unroll
            for (int e = 0; e < 4; ++e)
#pragma unroll
                for (int part = 0; part < kParts; ++part)
                    words[part][e] = __byte_perm(taps[2 * e], taps[2 * e + 1], part == 0 ? 0x5410 : 0x7632);
#pragma unroll
            for (int part = 0; part < kParts; ++part)
                *reinterpret_cast<uint4*>(shared + part * filter + group_place(g % 8, g / 8)) =
                    make_uint4(words[part][0], words[part][1], words[part][2], words[part][3]);
        }
    }

    // All products of a warp's tile. sum[p][i]: outputs 4 (l % 4) + 2 i and the next of step p of rows l / 4 and l / 4 + 8 in lane l.
    __device__ __forceinline__ void correlate(float (&sum)[P][2][4], const char* samples, const char* taps_) const {
        const int lane = threadIdx.x % 32;
        const SharedAddress row = shared_address(samples + lane % 16 * kRowBytes + lane / 16 * 16);
        const int column = lane % 8 / 2 * 4 + lane / 16 * 2 + lane % 2;  // of column lane % 8 of MMA tile lane / 16
        const SharedAddress taps = shared_address(taps_ + group_place(column % 8, lane / 8 % 2 - column / 8 + 2));
        float all[kParts][P][2][4] = {};  // with two parts: high times high, and high times low
        unsigned a[kParts][P][4];
#pragma unroll
        for (int k = 0; k < kParts; ++k)
#pragma unroll
            for (int p = 0; p + 1 < P; ++p) load_matrices(a[k][p], row + k * part + p * kUnit);
        const auto step = [&](int t, int u) {  // u: t modulo P
            unsigned b[kParts][4];
#pragma unroll
            for (int k = 0; k < kParts; ++k) {
                load_matrices(a[k][(u + P - 1) % P], row + k * part + place(t + P - 1));
                load_matrices(b[k], taps + k * filter + t * 16);
            }
#pragma unroll
            for (int product = 0; product < 2 * kParts - 1; ++product)  // high high, then high low and low high
#pragma unroll
                for (int p = 0; p < P; ++p)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const auto& v = b[product == 1];
                        mma<kType>(all[product != 0][p][i], a[product == 2][(u + p) % P], v[2 * i], v[2 * i + 1]);
                    }
        };
        constexpr int U = P < 4 ? 4 : P;
        int t = 0;
#pragma unroll 1
        for (; t + U <= T; t += U)
#pragma unroll
            for (int u = 0; u < U; ++u) step(t + u, u);
#pragma unroll
        for (int u = 0; u + 1 < U; ++u)
            if (t + u < T) step(t + u, u);
#pragma unroll
        for (int e = 0; e < 8 * P; ++e) {
            const float high = (&all[0][0][0][0])[e], low = (&all[kParts - 1][0][0][0])[e];
            (&sum[0][0][0])[e] = kParts == 1 ? high : fmaf(low, 1.0f / 2048, high);
        }
    }
};

// ---------------------------------------------------------------- the signal

// A position counts samples from the 16-byte boundary at or before the first. Whole packets lie at multiples of their size.
template <typename T>
struct Signal {
    static constexpr int kPacket = Packet<T>::kSize;
    const T* x;
    int N, shift;

    __device__ __forceinline__ bool covers(int position, int count) const {
        return position >= shift && position + count <= N + shift;
    }
    __device__ __forceinline__ const T* at(int position) const { return x + (position - shift); }
    __device__ __forceinline__ Packet<T> packet(int position) const {  // zeros beyond the ends
        if (covers(position, kPacket)) return load_packet(at(position), 0);
        Packet<T> p;
#pragma unroll
        for (int e = 0; e < kPacket; ++e) p.lane[e] = covers(position + e, 1) ? *at(position + e) : from_float<T>(0.0f);
        return p;
    }
};

// An output by the definition; x begins at its first sample.
template <typename T>
__device__ __noinline__ float exact_output(const T* x, const T* w, int K) {
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < K; ++k) sum = fmaf(to_float(w[k]), to_float(x[k]), sum);
    return sum;
}

// The same by all lanes of a warp.
template <typename T>
__device__ __noinline__ float exact_output_by_warp(const T* x, const T* w, int K) {
    float sum = 0;
#pragma unroll 4
    for (int k = threadIdx.x % 32; k < K; k += 32) sum = fmaf(to_float(w[k]), to_float(x[k]), sum);
    return warp_reduce(sum, Sum());
}

}  // namespace msbench
