// C = A B in fp32 on the tensor cores: fp16 in two scaled parts (msbench_split.cuh), three products of 16-bit numbers.
//
// The tensor cores truncate when they add, so that one chain over all of K would err by 51 to 82 * 2^-24 of the sum of sizes: chains of 96 k
// are added to fp32 registers (0.5 * 2^-24). The two cross products have chains of their own, added with the factor 1 / 2048.
// 128 x 128 tiles: two warp groups multiply, one thread copies, a ring of six stages of 32 k. Few tiles: K in slices, added to C by red.
//
// Results of lines that the split could not hold are looked at again: those too small to be exact enough, or of lines with NaN, are
// computed by the definition.
//
// Bound: 6 M N K flops at 786 to 820 TFLOP/s.
#pragma once

#include "msbench_async.cuh"
#include "msbench_split.cuh"
#include "msbench_wgmma.cuh"

namespace msbench {

namespace split_product {

constexpr int kTile = kLineMultiple, kConsumers = 2, kThreads = (1 + kConsumers) * kGroupThreads;
constexpr int kStages = 2 * kChainPanels, kTileRows = 16;  // tile rows walked together
constexpr int kPlaneBytes = kTile * kPanelRowBytes, kStageBytes = 2 * kPlanes * kPlaneBytes;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;

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

// An element of C, or a slice's part of it, by the definition; in runs, so that no chain is long.
template <class Left>
__device__ __noinline__ float by_definition(const Left& A, const Lines& B, int row, int column, int from, int end) {
    constexpr int kRun = 256;
    float total = 0;
    for (int start = from; start < end; start += kRun) {
        float sum = 0;
#pragma unroll 8
        for (int k = start; k < min(start + kRun, end); ++k) sum = fmaf(A.value(row, k), B.value(column, k), sum);
        total += sum;
    }
    return total;
}

// Left: Lines, or what else has made the planes of A, and knows its numbers.
template <class Left>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const Planes a, const Planes b, const __grid_constant__ Left A, const __grid_constant__ Lines B, float* C,
             const __grid_constant__ Shape shape) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring<kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int M = shape.M, N = shape.N, K = shape.K, tiles_m = (M + kTile - 1) / kTile, tiles_n = (N + kTile - 1) / kTile;
    const int works = tiles_m * tiles_n * shape.slices;
    if (threadIdx.x == 0) ring.init(kConsumers * 4);  // each warp
    __syncthreads();
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    RingPosition<kStages> at;
    if (group == 0) {
        give_up_registers<40>();
        if (threadIdx.x > 0) return;
        for (int i = blockIdx.x; i < works; i += gridDim.x) {
            const Work w(i, tiles_m, tiles_n);
            const int first = w.slice * shape.slice_panels, end = min(first + shape.slice_panels, shape.panels);
            for (int panel = first; panel < end; ++panel, at.advance()) {
                ring.acquire(at, kStageBytes);
                unsigned char* to = stages + at.stage * kStageBytes;
#pragma unroll
                for (int p = 0; p < kPlanes; ++p) {
                    copy_bulk(to + p * kPlaneBytes, a.panel(panel, p, w.row), kPlaneBytes, ring.filled[at.stage]);
                    copy_bulk(to + (kPlanes + p) * kPlaneBytes, b.panel(panel, p, w.column), kPlaneBytes, ring.filled[at.stage]);
                }
            }
        }
        return;
    }

    get_registers<232>();
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int at_row = (group - 1) * kGroupRows + warp * 16 + lane / 4, at_column = lane % 4 * 2;  // in the tile
    const SharedAddress a_start = shared_address(stages) + (group - 1) * kGroupRows * kPanelRowBytes,
                        b_start = shared_address(stages) + kPlanes * kPlaneBytes;
    for (int i = blockIdx.x; i < works; i += gridDim.x) {
        const Work w(i, tiles_m, tiles_n);
        const int first = w.slice * shape.slice_panels, end = min(first + shape.slice_panels, shape.panels);
        float sums[kTile / 2], chain[kTile / 2];
#pragma unroll
        for (int j = 0; j < kTile / 2; ++j) sums[j] = 0.0f;
        const auto multiply_planes = [&](int s, int plane_a, int plane_b, int step, bool keep) {
            const unsigned offset = s * kStageBytes + step * 256;  // two chunks of eight lines
            multiply_add<MmaType::kFp16>(chain, descriptor_cores(a_start + offset + plane_a * kPlaneBytes, 128, 512),
                                         descriptor_cores(b_start + offset + plane_b * kPlaneBytes, 128, 512), keep);
        };
        const auto add_chain = [&](float factor) {
            mma_commit();
            mma_wait<0>();
#pragma unroll
            for (int j = 0; j < kTile / 2; ++j) sums[j] = fmaf(chain[j], factor, sums[j]);
        };
        for (int panel = first; panel < end; panel += kChainPanels) {
            RingPosition<kStages> ahead = at;
#pragma unroll
            for (int q = 0; q < kChainPanels; ++q, ahead.advance()) {
                ring.wait(ahead);
                mma_fence();
#pragma unroll
                for (int step = 0; step < kPanelK / kMmaK; ++step) {
                    multiply_planes(ahead.stage, 0, 1, step, q + step > 0);
                    multiply_planes(ahead.stage, 1, 0, step, true);
                }
            }
            add_chain(1 / kLowScale);
            ahead = at;
            mma_fence();
#pragma unroll
            for (int q = 0; q < kChainPanels; ++q, ahead.advance()) {
#pragma unroll
                for (int step = 0; step < kPanelK / kMmaK; ++step) multiply_planes(ahead.stage, 0, 0, step, q + step > 0);
            }
            add_chain(1.0f);
#pragma unroll
            for (int q = 0; q < kChainPanels; ++q, at.advance()) {
                if (lane == 0) ring.release(at.stage);
            }
        }

        unsigned odd_rows = 0, odd_columns = 0;  // lines that are not wholly represented
#pragma unroll
        for (int j = 0; j < kTile / 8; ++j) {
            const float2 v = *reinterpret_cast<const float2*>(b.unscales + w.column + 8 * j + at_column);
            odd_columns |= __float_as_uint(v.x) >> 31 << 2 * j | __float_as_uint(v.y) >> 31 << (2 * j + 1);
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[4 * j + e] *= fabsf(e % 2 ? v.y : v.x);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = w.row + at_row + 8 * h;
            if (row >= M) continue;
            const float u = a.unscales[row];
            const unsigned odd = __float_as_uint(u) >> 31 ? ~0u : odd_columns;
            odd_rows |= __float_as_uint(u) >> 31 << h;
            float* to = C + row * shape.pitch;
#pragma unroll
            for (int j = 0; j < kTile / 8; ++j) {
                const int column = w.column + 8 * j + at_column;
                const float x = sums[4 * j + 2 * h] * fabsf(u), y = sums[4 * j + 2 * h + 1] * fabsf(u);
                if (column >= N) continue;
                if (shape.slices == 1) {
                    if (shape.pairs) {
                        *reinterpret_cast<float2*>(to + column) = make_float2(x, y);
                    } else {
                        to[column] = x;
                        if (column + 1 < N) to[column + 1] = y;
                    }
                } else if (shape.pairs && !odd) {
                    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to + column), "f"(x), "f"(y) : "memory");
                } else {
                    if (!(odd >> 2 * j & 1)) atomicAdd(to + column, x);
                    if (column + 1 < N && !(odd >> (2 * j + 1) & 1)) atomicAdd(to + column + 1, y);
                }
            }
        }
        // A sum that is large enough does not notice elements that were too small for 22 bits.
        for (int e = 0; e < 2 * kTile / 4 && (odd_rows | odd_columns); ++e) {
            const int h = e / (kTile / 4), j = e % (kTile / 4);
            const int row = w.row + at_row + 8 * h, column = w.column + j / 2 * 8 + at_column + j % 2;
            if (row >= M || column >= N || !(odd_rows >> h & 1 | odd_columns >> j & 1)) continue;
            float* to = C + row * shape.pitch + column;
            const float enough = kLargeEnough * float(K) * fabsf(a.unscales[row]) * fabsf(b.unscales[column]);  // may be NaN
            if (shape.slices > 1) {
                atomicAdd(to, by_definition(A, B, row, column, first * kPanelK, min(end * kPanelK, K)));
            } else if (!(fabsf(*to) >= enough)) {
                *to = by_definition(A, B, row, column, 0, K);
            }
        }
    }
}

}  // namespace split_product

}  // namespace msbench
