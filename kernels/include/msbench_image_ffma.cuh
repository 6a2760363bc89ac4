// The correlation of an fp32 image with a filter by FFMA, for little work: small images and small filters.
//
// A thread has kRows x 8 outputs in registers and takes the filter in chunks of kFilterRows x 8 elements, which stay in registers while it
// walks down kRows + kFilterRows - 1 image rows: 16 inputs of a row, four 16-byte reads of shared memory, are used for up to kFilterRows
// output rows. Four lanes lie side by side and eight groups of rows below each other; four floats after each kRows rows of the tile put
// neighbouring groups into other banks. Small images: warps share a tile, split the chunks and meet in shared memory, through which sums
// leave, so that a warp stores runs of 32 columns.
//
// The filter is padded with zeros to whole chunks. Zero times an infinite pixel only ever adds NaNs: where there is padding, an output that
// is not finite is computed again, by the definition.
#pragma once

#include "msbench_image_tile.cuh"
#include "msbench_launch.cuh"

namespace msbench {

// kTeam: warps side by side; kTeams: teams that share a tile and split its chunks; kBlocks: a multiprocessor's, at least.
template <int kRows_, int kFilterRows_, int kTeam_, int kTeams_, int kBlocks_>
struct FfmaPlan {
    static constexpr int kTaps = 8, kColumns = 8, kWarpColumns = 32;  // of a chunk, of a thread, of a warp
    static constexpr int kRows = kRows_, kFilterRows = kFilterRows_, kTeam = kTeam_, kTeams = kTeams_, kBlocks = kBlocks_;
    static constexpr int kThreads = 32 * kTeam * kTeams;
    static constexpr int kTileRows = 8 * kRows, kTileColumns = kWarpColumns * kTeam;
    static constexpr int kGroupSums = kRows * kWarpColumns + 4, kWarpSums = 8 * kGroupSums;

    __host__ __device__ static int filter_rows(int KH) { return (KH + kFilterRows - 1) / kFilterRows * kFilterRows; }
    template <int kAcross>
    static int bytes(int KH) {
        const int rows = kTileRows + filter_rows(KH) - 1, image = rows * (kTileColumns + kAcross * kTaps) + rows / kRows * 4 + 4;
        const int sums = kTeams * kTeam * kWarpSums;
        return (filter_rows(KH) * kAcross * kTaps + (image > sums ? image : sums)) * int(sizeof(float));
    }
};

// Copies kBytes of them, or zeros.
template <int kBytes>
__device__ __forceinline__ void copy_async_or_zero(float* to, const float* from, bool given) {
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    if constexpr (kBytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(given ? 16 : 0) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(given ? 4 : 0) : "memory");
    }
}

// kAcross: chunks of the filter beside each other. kWidth: elements that a copy takes.
template <class P, int kAcross, int kWidth>
__global__ void __launch_bounds__(P::kThreads, P::kBlocks)
    correlate_ffma(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ y, const ImageShape s) {
    extern __shared__ float4 ffma_shared[];
    constexpr int kTaps = P::kTaps, kColumns = P::kColumns, kRows = P::kRows, kFilterRows = P::kFilterRows;
    constexpr int kFilterPitch = kAcross * kTaps, kPitch = P::kTileColumns + kFilterPitch;
    const int filter_rows = P::filter_rows(s.KH), rows = P::kTileRows + filter_rows - 1;
    float* const filter = reinterpret_cast<float*>(ffma_shared);
    float* const tile = filter + filter_rows * kFilterPitch;
    const int row0 = blockIdx.y * P::kTileRows, column0 = blockIdx.x * P::kTileColumns;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, team = warp / P::kTeam, strip = warp % P::kTeam;

    // The tile of the image, with zeros beyond its edges.
    constexpr int kCopies = kPitch / kWidth;
    const int below = s.H - row0, right = s.W - column0;
    const float* const corner = x + int64_t(row0) * s.W + column0;
    for (int e = threadIdx.x; e < rows * kCopies; e += P::kThreads) {
        const int r = e / kCopies, c = e % kCopies * kWidth;
        const bool inside = r < below && c < right;  // with packets, W is a multiple of four
        copy_async_or_zero<kWidth * 4>(tile + r * kPitch + r / kRows * 4 + c, inside ? corner + (r * s.W + c) : x, inside);
    }
    for (int e = threadIdx.x; e < filter_rows * kFilterPitch; e += P::kThreads) {
        const int a = e / kFilterPitch, b = e % kFilterPitch;
        const bool inside = a < s.KH && b < s.KW;
        copy_async_or_zero<4>(filter + e, inside ? w + (a * s.KW + b) : w, inside);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();

    const int group = lane / 4;
    const float* const first = tile + group * (kRows * kPitch + 4) + strip * P::kWarpColumns + lane % 4 * kColumns;
    const auto load = [](const float* p, float* v) { *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(p); };
    alignas(16) float sum[kRows][kColumns] = {};
    for (int chunk = team; chunk < filter_rows / kFilterRows * kAcross; chunk += P::kTeams) {
        const int a0 = chunk / kAcross * kFilterRows, b0 = chunk % kAcross * kTaps;
        alignas(16) float tap[kFilterRows][kTaps], in[kColumns + kTaps];
#pragma unroll
        for (int a = 0; a < kFilterRows; ++a)
#pragma unroll
            for (int b = 0; b < kTaps; b += 4) load(filter + (a0 + a) * kFilterPitch + b0 + b, tap[a] + b);
#pragma unroll
        for (int t = 0; t < kRows + kFilterRows - 1; ++t) {
            const float* const from = first + (a0 + t) * kPitch + (a0 + t) / kRows * 4 + b0;
#pragma unroll
            for (int c = 0; c < kColumns + kTaps; c += 4) load(from + c, in + c);
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                const int a = t - i;
                if (a < 0 || a >= kFilterRows) continue;
#pragma unroll
                for (int b = 0; b < kTaps; ++b)
#pragma unroll
                    for (int c = 0; c < kColumns; ++c) sum[i][c] = fmaf(tap[a][b], in[b + c], sum[i][c]);
            }
        }
    }

    __syncthreads();
    float* const sums = tile + warp * P::kWarpSums + group * P::kGroupSums + lane % 4 * kColumns;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int c = 0; c < kColumns; c += 4)
            *reinterpret_cast<float4*>(sums + i * P::kWarpColumns + c) = *reinterpret_cast<const float4*>(sum[i] + c);
    if (P::kTeams > 1) __syncthreads();
    else __syncwarp();
    const bool padded = filter_rows != s.KH || kFilterPitch != s.KW;
    const int64_t j = column0 + strip * P::kWarpColumns + lane;
    const int count = int(min(s.rows - row0, int64_t(P::kTileRows)));
    if (j >= s.columns) return;
    const float* const column = tile + strip * P::kWarpSums + lane;
#pragma unroll 8
    for (int i = team; i < count; i += P::kTeams) {
        float total = 0;
#pragma unroll
        for (int k = 0; k < P::kTeams; ++k)
            total += column[k * P::kTeam * P::kWarpSums + i / kRows * P::kGroupSums + i % kRows * P::kWarpColumns];
        if (padded && !(fabsf(total) < __builtin_huge_valf())) total = exact_output(x, w, s, row0 + i, j);
        y[(row0 + i) * s.columns + j] = total;
    }
}

// KW is at most 8 kAcross.
template <class P, int kAcross>
cudaError_t launch_ffma(const float* x, const float* w, float* y, const ImageShape& s, cudaStream_t stream) {
    const dim3 blocks(unsigned(ceil_div(s.columns, P::kTileColumns)), unsigned(ceil_div(s.rows, P::kTileRows)));
    const bool packets = packets_allowed(x) && s.W % 4 == 0;
    const auto kernel = packets ? correlate_ffma<P, kAcross, 4> : correlate_ffma<P, kAcross, 1>;
    return Launch(blocks, P::kThreads, stream).shared(P::template bytes<kAcross>(s.KH))(kernel, x, w, y, s);
}

}  // namespace msbench
