// fp32 matrices in two fp16 parts a number, x = (high + low / 2048) * unscale, in one launch and one read, for products of fp32 accuracy
// on tensor cores.
//
// high * high + (high * low + low * high) / 2048 errs by 8 * 2^-24 of a product at most. What fp16 cannot hold is written into the
// line's unscale and losses (msbench_split_scales.cuh).
//
// A cluster has 16 lines (64, 128 where K is short), each of its blocks a part of K: it stages its part in shared memory while it looks
// for the extremes, which the blocks exchange, and splits it from there. Bytes: 4 read and 4 written for each element.
#pragma once

#include "msbench_groups.cuh"

#include "msbench.cuh"
#include "msbench_cluster.cuh"
#include "msbench_lines.cuh"
#include "msbench_split_scales.cuh"

namespace msbench {

// ---------------------------------------------------------------- the split

constexpr int kSplitThreads = 256, kSplitElements = 1 << 14;  // of a block, a little more where K is uneven
constexpr int kLineMultiple = 128, kChainPanels = 3;  // what lines and panels are rounded up to

// Element k of a line of the staged part.
template <int kLines>
__device__ __forceinline__ int staged(bool across, int line, int k, int depth) {
    return across ? (k ^ (kLines == 16 ? k / 8 & 1 : 0)) * kLines + line : line * (depth + 4) + k;  // neither has bank conflicts below
}

template <int kBytes>
__device__ __forceinline__ void copy_async(float* shared, const float* global, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(unsigned(__cvta_generic_to_shared(shared))), "l"(global),
                 "n"(kBytes), "r"(inside ? kBytes : 0)
                 : "memory");
}

template <int kLines, int kWidth>
__device__ __forceinline__ void stage_lines(float* part, const Lines& from, int line0, int k0, int depth) {
    const bool across = from.across();
    const int fast = across ? kLines : depth;  // how many elements lie side by side
    for (int i = threadIdx.x * kWidth; i < kLines * depth; i += kSplitThreads * kWidth) {
        const int line = across ? i % fast : i / fast, k = across ? i / fast : i % fast;
        const bool inside = line0 + line < from.count && k0 + k < from.K;
        copy_async<kWidth * 4>(part + staged<kLines>(across, line, k, depth), inside ? from.at(line0 + line, k0 + k) : from.data, inside);
    }
}

// Splits the lines of A, then those of B. gridDim.x: clusters of `parts` blocks with kLines lines each, and with `depth` of K each block, a
// multiple of 32. Besides zeros `zeros` elements of C.
template <int kLines>
__global__ void __launch_bounds__(kSplitThreads, 3)
    split_lines(const __grid_constant__ Lines A, const __grid_constant__ Lines B, const Planes a, const Planes b, int parts, int depth, int panels,
                bool vectors_a, bool vectors_b, float* C, int64_t zeros) {
    extern __shared__ __align__(16) float part[];
    constexpr int kGroups = kSplitThreads / kLines, kMostParts = 16;  // a group of threads has a chunk of each line
    __shared__ Extremes of_group[kGroups][kLines], of_part[kMostParts][kLines];
    const auto cluster = cooperative_groups::this_cluster();
    cluster.barrier_arrive();  // nobody writes to a block that has not started
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const int slab = int(blockIdx.x) / parts, rank = int(blockIdx.x) % parts, a_slabs = a.lines / kLines;
    const bool is_a = slab < a_slabs;
    const Lines& from = is_a ? A : B;
    const Planes to = is_a ? a : b;
    const int line0 = (is_a ? slab : slab - a_slabs) * kLines, k0 = rank * depth;
    if (is_a ? vectors_a : vectors_b) stage_lines<kLines, 4>(part, from, line0, k0, depth);
    else stage_lines<kLines, 1>(part, from, line0, k0, depth);
    for (int64_t i = blockIdx.x * int64_t(kSplitThreads) + threadIdx.x; i < zeros; i += int64_t(gridDim.x) * kSplitThreads) C[i] = 0.0f;
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();

    const int line = threadIdx.x % kLines, group = threadIdx.x / kLines, chunks = depth / 8;
    const bool across = from.across();
    const auto load = [&](int chunk, float (&x)[8]) {
        if (across) {
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = part[staged<kLines>(true, line, chunk * 8 + i, depth)];
        } else {
            const float4* from = reinterpret_cast<const float4*>(part + staged<kLines>(false, line, chunk * 8, depth));
            *reinterpret_cast<float4*>(x) = from[0];
            *reinterpret_cast<float4*>(x + 4) = from[1];
        }
    };
    Extremes e;
#pragma unroll 2
    for (int chunk = group; chunk < chunks; chunk += kGroups) {
        alignas(16) float x[8];
        load(chunk, x);
#pragma unroll
        for (int i = 0; i < 8; ++i) e.look(x[i]);
    }
    of_group[group][line] = e;
    __syncthreads();
    cluster.barrier_wait();
    for (int peer = group; peer < parts; peer += kGroups) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) e.join(of_group[g][line].largest, of_group[g][line].smallest);
        *cluster.map_shared_rank(&of_part[rank][line], peer) = e;
    }
    cluster.sync();
    e = Extremes();
    for (int p = 0; p < parts; ++p) e.join(of_part[p][line].largest, of_part[p][line].smallest);
    float unscale = e.unscale();
    const float scale = scale_of(unscale);
    if (__syncthreads_or(__float_as_uint(unscale) >> 31)) {  // in all blocks of the cluster alike
        float lost = 0;
        for (int chunk = group; chunk < chunks; chunk += kGroups) {
            alignas(16) float x[8];
            load(chunk, x);
            for (int i = 0; i < 8; ++i) lost += loss_of(x[i], scale);
        }
        of_group[group][line].largest = __float_as_uint(lost);
        cluster.sync();  // of_part has been read as well
        if (group == 0) {
            for (int g = 1; g < kGroups; ++g) lost += __uint_as_float(of_group[g][line].largest);
            cluster.map_shared_rank(&of_part[rank][line], 0)->largest = __float_as_uint(lost);
        }
        cluster.sync();
        if (rank == 0 && group == 0) {
            for (int p = 1; p < parts; ++p) lost += __uint_as_float(of_part[p][line].largest);
            if (unscale != unscale) lost = unscale;
            if (lost == 0.0f) unscale = fabsf(unscale);
            if (to.losses) to.losses[line0 + line] = lost;
        }
    }
    if (rank == 0 && group == 0) to.unscales[line0 + line] = unscale;
#pragma unroll 2
    for (int chunk = group; chunk < chunks; chunk += kGroups) {
        alignas(16) float x[8];
        load(chunk, x);
        const int panel = (k0 + chunk * 8) / kPanelK;
        if (panel < panels) store_split(x, scale, to, panel, line0 + line, chunk % 4);
    }
}

}  // namespace msbench
