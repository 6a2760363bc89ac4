// The product of weights (msbench_weight_tiles.cuh) and values, divided by the sums of rows, on the tensor cores.
//
// Weights are multiplied as they are where all shifts of a row are the same; otherwise a warp group multiplies those of its rows by a power of
// two in shared memory first, those of the next 64 keys while the ones before meet values. Values that nobody writes come while the kernel
// ahead runs.
#pragma once

#include "msbench_weight_tiles.cuh"

namespace msbench::weight_tiles {

// Whether any thread of a warp group says so, to all of them.
__device__ __forceinline__ bool any_of_group(int barrier, bool x) {
    unsigned result;
    asm volatile(
        "{\n.reg .pred p, q;\nsetp.ne.u32 p, %1, 0;\nbarrier.cta.red.or.pred q, %2, %3, p;\nselp.u32 %0, 1, 0, q;\n}"
        : "=r"(result)
        : "r"(unsigned(x)), "r"(barrier), "n"(kGroupThreads)
        : "memory");
    return result;
}

// What a warp knows of its rows, of which two lanes have one: the largest shift, and whether it is not that of all tiles; of its rows lane / 4 and
// 8 + lane / 4 what a row's sum is divided by.
struct RowTotal {
    float top, factor[2];
    bool differ;
};

// `parts`: of row lane / 2.
__device__ __forceinline__ RowTotal total_of(const float2* parts, const RowParts& rows, int lane) {
    float top = -INFINITY, total = 0;
    bool differ = false;
    for (int p = lane % 2; p < rows.count; p += 16) {
        float2 part[8];
#pragma unroll
        for (int n = 0; n < 8; ++n) part[n] = __ldcg(parts + min(p + 2 * n, rows.count - 1) * rows.pitch);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (p + 2 * n >= rows.count) continue;
            const float larger = fmaxf(top, part[n].x), origin = larger == -INFINITY ? 0.0f : larger;
            differ = differ || (p + n > lane % 2 && part[n].x != top);
            total = fmaf(total, exp2_fast(top - origin), part[n].y * exp2_fast(part[n].x - origin));
            top = larger;
        }
    }
    const float other_top = __shfl_xor_sync(0xffffffffu, top, 1), other_total = __shfl_xor_sync(0xffffffffu, total, 1);
    const float larger = fmaxf(top, other_top);
    differ = differ || (rows.count > 1 && top != other_top);
    const float factor = 1.0f / fmaf(total, exp2_fast(top - larger), other_total * exp2_fast(other_top - larger));
    return {larger, {__shfl_sync(0xffffffffu, factor, lane / 4 * 2), __shfl_sync(0xffffffffu, factor, 16 + lane / 4 * 2)}, differ};
}

// As consume, where weights are multiplied by 2^(shift - top) first. Two threads have a row. `parts`: of the thread's row.
template <class T, class Source>
__device__ __forceinline__ void consume_shifted(float (&sums)[T::kTileN / 2], Ring<T::kStages>& ring, Position<T>& at, unsigned char* stages,
                                                int group, int first_k, int end_k, const float2* parts, int64_t pitch, int part_columns,
                                                float top) {
    const int lane = threadIdx.x % 32, thread = threadIdx.x % kGroupThreads;
    const uint64_t a_start = Source::a_start(shared_address(stages) + group * kGroupRows * Source::kRowBytes),
                   b_start = Source::b_start(shared_address(stages) + T::kBytesA);
#pragma unroll
    for (int j = 0; j < T::kTileN / 2; ++j) sums[j] = 0.0f;
    float shift = first_k < end_k ? __ldcg(&parts[first_k / part_columns * pitch].x) : 0.0f;
    int previous = -1;
    for (int k = first_k; k < end_k; k += kTileK, at.advance()) {
        const bool same = shift == top;
        const __nv_bfloat162 factor = __float2bfloat162_rn(exp2_fast(shift - top));
        if (k + kTileK < end_k) shift = __ldcg(&parts[(k + kTileK) / part_columns * pitch].x);
        ring.wait(at);
        if (!same) {
            const int row = group * kGroupRows + thread / 2;
            uint4* line = reinterpret_cast<uint4*>(stages + at.stage * T::kStageBytes + row * Source::kRowBytes) + thread % 2 * 4;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                uint4 packet = line[i];
                __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&packet);
#pragma unroll
                for (int n = 0; n < 4; ++n) pairs[n] = __hmul2(pairs[n], factor);
                line[i] = packet;
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        sync_named(1 + group, kGroupThreads);
        const unsigned offset = unsigned(at.stage * T::kStageBytes) >> 4;
        mma_fence();
#pragma unroll
        for (int step = 0; step < kTileK / kMmaK; ++step) {
            multiply_add<MmaType::kBf16, Source::kNFastest>(sums, a_start + offset + (Source::a_offset(step) >> 4),
                                                            b_start + offset + (Source::b_offset(step) >> 4));
        }
        mma_commit();
        mma_wait<1>();  // the previous stage has been read
        if (previous >= 0 && lane == 0) ring.release(previous);
        previous = at.stage;
    }
    mma_wait<0>();
    hold(sums);
    if (previous >= 0 && lane == 0) ring.release(previous);
}

// The copies of all of a block's tiles. Values of the first come before the kernel ahead has ended, if they are `ready`.
template <class T>
__device__ __forceinline__ void produce_mix(Ring<T::kStages>& ring, unsigned char* stages, const CUtensorMap* a_map, const CUtensorMap* b_map,
                                            const Shape& shape, int tiles_m, int tiles_n, bool ready) {
    using Source = Matrices<T, true>;
    const Work<T> first(blockIdx.x, tiles_m, tiles_n);
    const int early = ready ? min(T::kStages, (shape.K + kTileK - 1) / kTileK) : 0;
    for (int s = 0; s < early; ++s) {
        ring.filled[s].expect(T::kStageBytes);
#pragma unroll
        for (int n = 0; n < T::kTileN; n += kBox) {
            copy_box(stages + s * T::kStageBytes + T::kBytesA + n * kTileK * 2, b_map, ring.filled[s], first.column + n, s * kTileK);
        }
    }
    cudaGridDependencySynchronize();
    Position<T> at;
    for (int s = 0; s < early; ++s, at.advance()) copy_box(stages + s * T::kStageBytes, a_map, ring.filled[s], s * kTileK, first.row);
    produce<T, Source>(ring, at, stages, a_map, b_map, first.row, first.column, early * kTileK, shape.K, 0);
    for (int i = blockIdx.x + gridDim.x; i < tiles_m * tiles_n; i += gridDim.x) {
        const Work<T> w(i, tiles_m, tiles_n);
        produce<T, Source>(ring, at, stages, a_map, b_map, w.row, w.column, 0, shape.K, 0);
    }
}

// Y = weights V, each row divided by its weights' sum. `part_columns`: of the first product's tiles. `ready`: the kernel ahead does not write V.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 1)
    mix(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map, __nv_bfloat16* Y, const __grid_constant__ Shape shape,
        RowParts rows, int part_columns, bool ready) {
    using Source = Matrices<T, true>;
    extern __shared__ unsigned char raw[];
    __shared__ Ring<T::kStages> ring;
    unsigned char* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    const int tiles_m = (shape.M + T::kTileM - 1) / T::kTileM, tiles_n = (shape.N + T::kTileN - 1) / T::kTileN;
    if (threadIdx.x == 0) {
        prefetch(&a_map);
        prefetch(&b_map);
        ring.init(T::kConsumers * 4);
    }
    __syncthreads();

    const int group = __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    constexpr bool kMovesRegisters = T::kConsumers == 2 && T::kTileN == 256;
    if (group == 0) {
        if constexpr (kMovesRegisters) give_up_registers<40>();
        if (threadIdx.x == 0) produce_mix<T>(ring, stages, &a_map, &b_map, shape, tiles_m, tiles_n, ready);
        return;
    }
    if constexpr (kMovesRegisters) get_registers<232>();
    cudaGridDependencySynchronize();
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    Position<T> at;
    for (int i = blockIdx.x; i < tiles_m * tiles_n; i += gridDim.x) {
        const Work<T> w(i, tiles_m, tiles_n);
        const int row = w.row + (group - 1) * kGroupRows + warp * 16, own_row = min(row + lane / 2, shape.M - 1);
        const float2* parts = rows.parts + own_row;
        const RowTotal total = total_of(parts, rows, lane);
        float sums[T::kTileN / 2];
        if (any_of_group(group, total.differ)) {
            consume_shifted<T, Source>(sums, ring, at, stages, group - 1, 0, shape.K, parts, rows.pitch, part_columns, total.top);
        } else {
            consume<T, Source>(sums, ring, at, stages, group - 1, 0, shape.K);
        }
#pragma unroll
        for (int j = 0; j < T::kTileN / 2; ++j) sums[j] *= total.factor[j / 2 % 2];
        store_rows(sums, Y, row, w.column, shape, lane);
    }
}

}  // namespace msbench::weight_tiles
