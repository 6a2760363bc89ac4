// C = A B in fp32 on the tensor cores: fp16 in two scaled parts (msbench_split.cuh), three products of 16-bit numbers.
//
// The tensor cores truncate when they add, so that one chain over all of K would err by 51 to 82 * 2^-24 of the sum of sizes: chains of 96 k
// are added to fp32 registers (0.5 * 2^-24). The two cross products have chains of their own, added with the factor 1 / 2048.
// 128 x 128 tiles: two warp groups multiply, one thread copies, a ring of six stages of 32 k. Few tiles: K in slices, added to C by red.
//
// Where a line has lost something in the split, a sum that is large enough does not notice: it is off by at most what both lines have lost
// times 2^15, which no element exceeds. A tile with a sum that may notice, or with a line that is not finite, is computed again at the
// end (msbench_split_again.cuh).
//
// Bound: 6 M N K flops at 786 to 820 TFLOP/s.
#pragma once

#include "msbench_split_again.cuh"

namespace msbench {

namespace split_product {

constexpr int kStages = 2 * kChainPanels, kStageBytes = 2 * kPlanes * kPlaneBytes;
constexpr int kSharedBytes = kStages * kStageBytes + 1024;
constexpr int kAgainWords = 64;  // bits of a block's tiles; more than these share them
constexpr float kLargeEnough = 0x1p39f;  // times what both lines have lost: what that does is 2^-24 of such a sum
static_assert(2 * kAgainBytes <= kStages * kStageBytes && plain_tile::kBytes <= kStages * kStageBytes, "stages of tiles computed again fit");

// Left: Lines, or what else has made the planes of A, and knows its numbers.
template <class Left>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const Planes a, const Planes b, const __grid_constant__ Left A, const __grid_constant__ Lines B, float* C,
             const __grid_constant__ Shape shape) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring<kStages> ring;
    __shared__ unsigned again[kAgainWords];
    __shared__ int odd[2][kTile];
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int M = shape.M, N = shape.N, tiles_m = (M + kTile - 1) / kTile, tiles_n = (N + kTile - 1) / kTile;
    const int works = tiles_m * tiles_n * shape.slices;
    if (threadIdx.x == 0) ring.init(kConsumers * 4);  // each warp
    if (threadIdx.x < kAgainWords) again[threadIdx.x] = 0;
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
    int bit = 0;  // of the tile, in `again`
    for (int i = blockIdx.x; i < works; i += gridDim.x, bit = (bit + 1) % (32 * kAgainWords)) {
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

        const auto marked = [](float unscale) { return __float_as_uint(unscale) >> 31 != 0; };  // NaN, too
        float u[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) u[h] = w.row + at_row + 8 * h < M ? a.unscales[w.row + at_row + 8 * h] : 1.0f;
        const float2* of_columns = reinterpret_cast<const float2*>(b.unscales + w.column + at_column);
        bool any = marked(u[0]) || marked(u[1]);
#pragma unroll
        for (int j = 0; j < kTile / 8; ++j) any |= marked(of_columns[4 * j].x) || marked(of_columns[4 * j].y);
        if (any) {
            bool notices = false;
            const float lost_a[2] = {marked(u[0]) ? a.losses[w.row + at_row] : 0.0f, marked(u[1]) ? a.losses[w.row + at_row + 8] : 0.0f};
#pragma unroll
            for (int j = 0; j < kTile / 4; ++j) {  // of the thread's columns
                const int column = w.column + j / 2 * 8 + at_column + j % 2;
                const bool odd_column = marked(b.unscales[column]);  // no line beyond the matrix is marked, but its sums are zero
                const float lost_b = odd_column ? b.losses[column] : 0.0f;
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float sum = fabsf(sums[j / 2 * 4 + 2 * h + j % 2]);
                    const bool noticed = !(sum >= kLargeEnough * (lost_a[h] + lost_b));  // NaN is
                    notices |= noticed && (odd_column || marked(u[h])) && w.row + at_row + 8 * h < M && column < N;
                }
            }
            if (notices) atomicOr(&again[bit / 32], 1u << bit % 32);
        }
        if (shape.slices > 1) {  // the block's only tile
            sync_named(1, kConsumers * kGroupThreads);
            if (again[0]) continue;
        }
#pragma unroll
        for (int j = 0; j < kTile / 8; ++j) {
            const float2 v = of_columns[4 * j];
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[4 * j + e] *= fabsf(e % 2 ? v.y : v.x);
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = w.row + at_row + 8 * h;
            if (row >= M) continue;
            float* to = C + row * shape.pitch;
#pragma unroll
            for (int j = 0; j < kTile / 8; ++j) {
                const int column = w.column + 8 * j + at_column;
                const float x = sums[4 * j + 2 * h] * fabsf(u[h]), y = sums[4 * j + 2 * h + 1] * fabsf(u[h]);
                if (column >= N) continue;
                if (shape.slices == 1) {
                    if (shape.pairs) {
                        *reinterpret_cast<float2*>(to + column) = make_float2(x, y);
                    } else {
                        to[column] = x;
                        if (column + 1 < N) to[column + 1] = y;
                    }
                } else if (shape.pairs) {
                    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to + column), "f"(x), "f"(y) : "memory");
                } else {
                    atomicAdd(to + column, x);
                    if (column + 1 < N) atomicAdd(to + column + 1, y);
                }
            }
        }
    }
    sync_named(1, kConsumers * kGroupThreads);  // all stages have been read
    bit = 0;
    for (int i = blockIdx.x; i < works; i += gridDim.x, bit = (bit + 1) % (32 * kAgainWords)) {
        if (again[bit / 32] >> bit % 32 & 1) multiply_again(a, b, A, B, C, shape, Work(i, tiles_m, tiles_n), stages, odd);
    }
}

}  // namespace split_product

}  // namespace msbench
