// The correlation of image rows in shared memory with a filter, on tensor cores: each filter row as a banded matrix.
//
// Eight neighbouring outputs of a row depend on KW + 7 inputs of each of KH image rows. With positions m of 8 columns each,
// D[m, n] += A[m, k] B[k, n], A[m, k] = x[row][8 m + k], B[k, n] = w[a][k - n]: D is 16 positions, so 128 columns, of one output row.
// The 8 x 8 blocks of A are overlapping pieces of one image row, 16 bytes apart: ldmatrix takes them as they lie, without bank
// conflicts, and each block serves all output rows that a filter row leads to. Bands stay in registers, kChunkRows filter rows at a
// time, while a warp walks down the image rows. Blocks pair up to K = 16; an odd last one pairs with that of the next image row, so
// that no half of an MMA is wasted. KW / (8 kBlocksK) of the products are useful.
//
// Bands come from two copies of the filter in shared memory, the second shifted by an element, so that a lane's pair is one word.
// Numbers are of one part (bf16), or of two (fp16: high + low / 2048, see conv_2d/best/fp32.cu), whose sums are kept apart since
// the accumulator truncates.
//
// Zeros of a band times an infinite input make NaN, never a wrong number: who stores has to look (finish in msbench_image_tile.cuh).
#pragma once

#include "msbench.cuh"
#include "msbench_mma.cuh"

namespace msbench {

// kBlocksK = ceil((KW + 7) / 8): blocks of 8 inputs that 8 neighbouring outputs depend on. kRows: output rows of a warp. kWarps: below
// each other; kTeams: such columns of warps, which split the filter's rows; kBlocks: of a multiprocessor, at least.
template <MmaType kType_, int kBlocksK_, int kRows_, int kChunkRows_, int kWarps_, int kTeams_, int kBlocks_>
struct Bands {
    static constexpr MmaType kType = kType_;
    static constexpr int kParts = kType == MmaType::kBf16 ? 1 : 2;
    static constexpr int kBlocksK = kBlocksK_, kRows = kRows_, kChunkRows = kChunkRows_;
    static_assert(kChunkRows % 2 == 0, "filter rows pair up");
    static constexpr int kWarps = kWarps_, kTeams = kTeams_, kThreads = 32 * kWarps * kTeams, kBlocks = kBlocks_;
    static constexpr int kTileRows = kRows * kWarps, kColumns = 128;  // outputs of a block
    static constexpr int kPitch = kColumns + 8 * kBlocksK - 8;        // inputs of a row that they depend on
    static constexpr int kFilterPitch = 8 * kBlocksK + 8;             // a filter row between zeros
    static constexpr int kPairs = 2;                                  // of outputs of a lane, beside each other
    static constexpr int kMostRows = kTileRows + 31;

    // Image rows of a tile, bytes of the filter, and of one part of image rows.
    __host__ __device__ static int filter_rows(int KH) { return (KH + kChunkRows - 1) / kChunkRows * kChunkRows; }
    __host__ __device__ static int image_rows(int KH) { return kTileRows + filter_rows(KH) - 1; }
    __host__ __device__ static int filter_bytes(int KH) { return kParts * 2 * filter_rows(KH) * kFilterPitch * 2; }
    __host__ __device__ static int image_bytes(int rows) { return rows * kPitch * 2; }

    __device__ __forceinline__ static int team() { return threadIdx.x / 32 / kWarps; }
    __device__ __forceinline__ static int first_row() { return int(threadIdx.x / 32) % kWarps * kRows; }  // of the warp's outputs

    // The filter on its way to shared memory, with zeros around it: loaded before anything is waited for.
    template <typename T>
    struct Filter {
        static constexpr int kHeld = 32 * kFilterPitch / kThreads;
        T element[kHeld];

        __device__ __forceinline__ Filter(const T* w, int KH, int KW) {
#pragma unroll
            for (int k = 0; k < kHeld; ++k) {
                const int e = k * kThreads + threadIdx.x, a = e / kFilterPitch, b = e % kFilterPitch - 8;
                element[k] = a < KH && unsigned(b) < unsigned(KW) ? w[a * KW + b] : from_float<T>(0.0f);
            }
        }
        __device__ __forceinline__ void prepare(unsigned short*) const {}
        // Into both copies. `bits(element)` has part 0 in the lower half, and part 1 in the upper one.
        template <class Bits>
        __device__ __forceinline__ void place(unsigned short* filter, int KH, int, Bits bits) const {
            const int size = filter_rows(KH) * kFilterPitch;
#pragma unroll
            for (int k = 0; k < kHeld; ++k) {
                const int e = k * kThreads + threadIdx.x;
                if (e >= size) break;
                const unsigned parts = bits(element[k]);
#pragma unroll
                for (int part = 0; part < kParts; ++part) {
                    unsigned short* const to = filter + part * 2 * size + e;
                    to[0] = static_cast<unsigned short>(parts >> 16 * part);
                    if (e > 0) to[size - 1] = to[0];
                }
            }
        }
    };

    __device__ __forceinline__ static void correlate(float (&sum)[kRows][4], char* tile, int part_bytes, const unsigned short* filter, int KH);
};

// Adds up what the teams have, in the first team. `scratch`: 16 bytes for each thread and row, which nobody reads any more.
template <class B>
__device__ __forceinline__ void add_teams(float (&sum)[B::kRows][4], float4* scratch) {
    constexpr int kStep = 32 * B::kWarps;  // of threads, from a team to the next
    float4* const mine = scratch + threadIdx.x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < B::kRows; ++i)
        if (B::team() > 0) mine[i * B::kThreads] = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
    __syncthreads();
    if (B::team() > 0) return;
#pragma unroll
    for (int i = 0; i < B::kRows; ++i)
#pragma unroll
        for (int other = 1; other < B::kTeams; ++other) {
            const float4 f = mine[i * B::kThreads + other * kStep];
            sum[i][0] += f.x, sum[i][1] += f.y, sum[i][2] += f.z, sum[i][3] += f.w;
        }
}

// The sums of a warp's rows, in the first team's warps. sum[i]: columns 2 l, 2 l + 1, 64 + 2 l, 64 + 2 l + 1 of row i in lane l. Parts of the
// tile are part_bytes apart; teams write to it, too.
template <MmaType kType, int kBlocksK, int kRows, int kChunkRows, int kWarps, int kTeams, int kBlocks>
__device__ __forceinline__ void Bands<kType, kBlocksK, kRows, kChunkRows, kWarps, kTeams, kBlocks>::correlate(
    float (&sum)[kRows][4], char* tile, int part_bytes, const unsigned short* filter, int KH) {
    const int lane = threadIdx.x % 32, rows = filter_rows(KH), size = rows * kFilterPitch;
    // The lane's element of a band: k - n = 2 (lane % 4) - lane / 4, and the next one; an even place in one of the copies.
    const int place = 2 * (lane % 4) - lane / 4 + 8;
    const unsigned short* const bands = filter + place % 2 * size + place / 2 * 2;
    SharedAddress side_by_side = shared_address(tile) + image_bytes(first_row() + team() * kChunkRows) + lane % 16 * 16 + lane / 16 * 16;
    SharedAddress one_below = side_by_side + lane / 16 * (kPitch * 2 - 16);
    float all[kParts][kRows][4] = {};  // with two parts: high times high, and high times low
    for (int a0 = team() * kChunkRows; a0 < rows; a0 += kTeams * kChunkRows) {
        unsigned band[kParts][kChunkRows][kBlocksK];
#pragma unroll
        for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int a = 0; a < kChunkRows; ++a)
#pragma unroll
                for (int c = 0; c < kBlocksK; ++c)
                    band[part][a][c] = *reinterpret_cast<const unsigned*>(bands + part * 2 * size + (a0 + a) * kFilterPitch + 8 * c);
#pragma unroll
        for (int t = 0; t < kRows + kChunkRows - 1; ++t) {
#pragma unroll
            for (int c = 0; c < kBlocksK; c += 2) {
                const bool beside = c + 1 < kBlocksK;  // otherwise the last block of this row and of the next
                if (!beside && t == kRows + kChunkRows - 2) continue;
#pragma unroll
                for (int part = 0; part < kParts; ++part) {
                    unsigned a[4];
                    load_matrices(a, (beside ? side_by_side : one_below) + part * part_bytes + (t * kPitch + c * 8) * 2);
#pragma unroll
                    for (int other = 0; part + other < kParts; ++other)
#pragma unroll
                        for (int i = 0; i < kRows; ++i) {
                            const int row = t - i;
                            if (row < 0 || row >= kChunkRows || (!beside && row % 2 == 1)) continue;
                            mma<kType>(all[part + other][i], a, band[other][row][c],
                                          beside ? band[other][row][(c + 1) % kBlocksK] : band[other][(row + 1) % kChunkRows][c]);
                        }
                }
            }
        }
        side_by_side += image_bytes(kTeams * kChunkRows), one_below += image_bytes(kTeams * kChunkRows);
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[i][k] = kParts == 1 ? all[0][i][k] : fmaf(all[kParts - 1][i][k], 1.0f / 2048, all[0][i][k]);
    if constexpr (kTeams > 1) add_teams<Bands>(sum, reinterpret_cast<float4*>(tile));
}

}  // namespace msbench
