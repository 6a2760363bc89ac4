// C = A B in fp32 on the tensor cores in one launch, where B is small and lines lie in runs: A streams through registers, B stays in shared memory.
//
// Both are two scaled fp16 parts a number, three products (msbench_split_scales.cuh). wgmma takes A from registers: a thread brings four
// neighbours of a row at a time by cp.async to a place of its own and splits them in registers, with a scale for each row and 64 k, that its chain of
// sums is multiplied with when it is added to fp32 ones. B's columns are split once for each block (msbench_split_columns.cuh).
//
// Outputs that what numbers lose in the split may matter to, or that are not finite, are computed by the definition (msbench_split_rows.cuh).
#pragma once

#include <algorithm>

#include "msbench_launch.cuh"
#include "msbench_split_columns.cuh"
#include "msbench_split_rows.cuh"
#include "msbench_wgmma_rows.cuh"

namespace msbench::split_stream {

constexpr int kSlots = 2;  // of a chunk each
constexpr int kSlotBytes = 2 * kChunkSteps * 16, kRoomBytes = 227 * 1024 - 2048;

template <int kTileN>
constexpr int kGroups = kTileN == 64 ? 3 : 2;

template <int kTileN>
constexpr int64_t shared_bytes(int64_t packets) {
    return ceil_div(packets, 4 * kChunkSteps) * kChunkSteps * planes_bytes(kTileN) + kSlots * kSlotBytes * kGroups<kTileN> * kGroupThreads;
}

__device__ __forceinline__ void copy_packet(unsigned char* shared, const float* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

// Copies of a thread's packets of two rows, chunk after chunk, tile after tile. Beyond the last row and packet those are copied again: B is zero
// there.
template <int kThreads>
struct Fetch {
    const Factor32& A;
    int tile, step, tiles, packet;
    const float* rows[2];

    __device__ __forceinline__ Fetch(const Factor32& A, int tile, int step, int tiles) : A(A), tile(tile), step(step), tiles(tiles), packet(0) {
        locate();
    }
    __device__ __forceinline__ void locate() {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = tile * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
            rows[h] = A.line(min(row, A.count - 1));
        }
    }
    __device__ __forceinline__ void next(unsigned char* slot) {
        if (tile < tiles) {
#pragma unroll
            for (int s = 0; s < kChunkSteps; ++s) {
                const int offset = A.offset(min(packet + s * 4 + int(threadIdx.x % 4), A.packets - 1));
#pragma unroll
                for (int h = 0; h < 2; ++h) copy_packet(slot + (2 * s + h) * kThreads * 16, rows[h] + offset);
            }
            packet += 4 * kChunkSteps;
            if (packet >= A.packets) packet = 0, tile += step, locate();
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

template <int kTileN>
__global__ void __launch_bounds__(kGroups<kTileN>* kGroupThreads, 1)
    multiply(const __grid_constant__ Factor32 A, const __grid_constant__ Factor32 B, float* C, int tiles_n, bool pairs) {
    extern __shared__ __align__(128) unsigned char planes[];
    __shared__ Columns<kTileN> columns;
    constexpr int kThreads = kGroups<kTileN> * kGroupThreads;
    constexpr int kStepBytes = planes_bytes(kTileN), kPlaneBytes = kStepBytes / 2;  // 16 k of both planes of B, and of one
    const int chunks = (A.packets + 4 * kChunkSteps - 1) / (4 * kChunkSteps), tiles = (A.count + kGroupRows - 1) / kGroupRows;
    const int column0 = blockIdx.x % tiles_n * kTileN, workers = gridDim.x / tiles_n, step = workers * kGroups<kTileN>;
    const int first = blockIdx.x / tiles_n + workers * __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    unsigned char* const ring = planes + chunks * (kChunkSteps * kStepBytes) + threadIdx.x * 16;
    Fetch<kThreads> fetch(A, first, step, tiles);
    for (int s = 0; s < kSlots; ++s) fetch.next(ring + s * kSlotBytes * kThreads);
    split_columns<kTileN, kGroups<kTileN>>(planes, columns, B, column0, chunks * kChunkSteps);
    fence_shared_writes();
    __syncthreads();

    const uint64_t b_start = descriptor_cores(shared_address(planes), kTileN * 16, 128);
    int slot = 0;
    for (int tile = first; tile < tiles; tile += step) {
        float sums[kTileN / 2];
        RowState state[2] = {};
#pragma unroll
        for (int j = 0; j < kTileN / 2; ++j) sums[j] = 0.0f;
        for (int c = 0; c < chunks; ++c, slot ^= 1) {
            Chunk chunk;
            {
                unsigned char* const own = ring + slot * kSlotBytes * kThreads;
                float4 x[2][kChunkSteps];
                asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
#pragma unroll
                for (int s = 0; s < 2 * kChunkSteps; ++s) x[s % 2][s / 2] = *reinterpret_cast<const float4*>(own + s * kThreads * 16);
                split_rows(chunk, state, x);
                fetch.next(own);
            }
            float chain[kTileN / 2];
            const uint64_t b = b_start + (c * (kChunkSteps * kStepBytes) >> 4);
            const auto add_chain = [&](float factor) {
                mma_commit();
                mma_wait<0>();
                hold(chain);
#pragma unroll
                for (int j = 0; j < kTileN / 2; ++j) sums[j] = fmaf(chain[j], chunk.unscale[j / 2 % 2] * factor, sums[j]);
            };
            chunk.hold_parts();
            mma_fence();
#pragma unroll
            for (int s = 0; s < kChunkSteps; ++s) {
                multiply_add_rows<MmaType::kFp16>(chain, chunk.high[s], b + ((s * kStepBytes + kPlaneBytes) >> 4), s > 0);
                multiply_add_rows<MmaType::kFp16>(chain, chunk.low[s], b + (s * kStepBytes >> 4), true);
            }
            add_chain(1 / kLowScale);
            mma_fence();
#pragma unroll
            for (int s = 0; s < kChunkSteps; ++s) multiply_add_rows<MmaType::kFp16>(chain, chunk.high[s], b + (s * kStepBytes >> 4), s > 0);
            add_chain(1.0f);
            chunk.hold_parts();
        }
        store_tile<kTileN>(sums, state, A, B, C, columns, tile * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4, column0,
                           pairs);
    }
}

template <int kTileN>
cudaError_t launch(const Factor32& A, const Factor32& B, float* C, cudaStream_t stream) {
    const int64_t tiles_m = ceil_div(A.count, kGroupRows), tiles_n = ceil_div(B.count, kTileN);
    const int64_t workers = std::min(std::max<int64_t>(multiprocessors() / tiles_n, 1), tiles_m);
    return Launch(dim3(unsigned(workers * tiles_n)), dim3(kGroups<kTileN> * kGroupThreads), stream)
        .shared(size_t(shared_bytes<kTileN>(A.packets)))(multiply<kTileN>, A, B, C, int(tiles_n),
                                                         B.count % 2 == 0 && reinterpret_cast<uintptr_t>(C) % 8 == 0);
}

inline bool fits(const Factor32& A, const Factor32&) {
    return shared_bytes<64>(A.packets) <= kRoomBytes;
}

// C[m, n] is the product of line m of A and line n of B, which fit.
inline cudaError_t launch(const Factor32& A, const Factor32& B, float* C, cudaStream_t stream) {
    const bool wide = B.count > 64 && shared_bytes<128>(A.packets) <= kRoomBytes;
    return wide ? launch<128>(A, B, C, stream) : launch<64>(A, B, C, stream);
}

}  // namespace msbench::split_stream
