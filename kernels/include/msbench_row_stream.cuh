// C = A B in bf16 with fp32 sums, where B is small and a row of either lies in runs: A streams through registers, B stays in shared memory.
//
// wgmma takes A from registers, and a sum does not care for the order of its terms: of 32 k a thread has eight neighbours, not four pairs, so that a
// row's 64 bytes are one 16-byte packet of each of four threads, wherever its runs of eight or more lie. A thread brings its own packets by
// cp.async into slots of its own, which needs no barrier; B is put into the same order of k once for each block. A warp group has
// tiles of 64 rows, one after another, and waits for the tensor cores once for 64 k.
//
// Tensor maps would bring runs as well, but take 3 to 4 cycles for each row of a box, of B's again for each tile.
#pragma once

#include <algorithm>

#include "msbench_async.cuh"
#include "msbench_launch.cuh"
#include "msbench_run_factor.cuh"
#include "msbench_tile_store.cuh"
#include "msbench_wgmma_rows.cuh"

namespace msbench::row_stream {

constexpr int kGroupK = 32;  // of a row, a packet of each of four threads

constexpr int kGroups = 4, kThreads = kGroups * kGroupThreads, kRoomBytes = 227 * 1024;
constexpr int slots(int tile_n) { return tile_n == 128 ? 6 : 8; }

// Bytes of a thread's slot: 32 k of two rows.
constexpr int kSlotBytes = 32;

template <int kTileN>
constexpr int64_t shared_bytes(int64_t K) {
    return ceil_div(K, kGroupK) * kGroupK * kTileN * 2 + slots(kTileN) * kSlotBytes * kThreads;
}

__device__ __forceinline__ void copy_packet(unsigned char* shared, const void* global, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(inside ? 16 : 0) : "memory");
}

// Copies of a thread's packets, group of k after group, tile after tile.
struct Fetch {
    const RunFactor<__nv_bfloat16>& A;
    int tile, step, tiles, group, groups;
    const __nv_bfloat16* rows[2];
    bool inside[2];

    __device__ __forceinline__ Fetch(const RunFactor<__nv_bfloat16>& A, int tile, int step, int tiles, int groups)
        : A(A), tile(tile), step(step), tiles(tiles), group(0), groups(groups) {
        locate();
    }
    __device__ __forceinline__ void locate() {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int row = tile * kGroupRows + threadIdx.x % kGroupThreads / 32 * 16 + threadIdx.x % 32 / 4 + 8 * h;
            inside[h] = tile < tiles && row < A.count;
            rows[h] = inside[h] ? A.line(row) : A.data;
        }
    }
    __device__ __forceinline__ void next(unsigned char* slot) {
        if (tile < tiles) {
            const int packet = group * 4 + threadIdx.x % 4;
            const int offset = A.offset(packet);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const bool there = inside[h] && packet < A.packets;
                copy_packet(slot + h * kThreads * 16, there ? rows[h] + offset : A.data, there);
            }
            if (++group == groups) group = 0, tile += step, locate();
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

// Puts a block's columns of B into shared memory as cores of 8 columns x 16 bytes, [8 k][column], in a thread's order of k.
template <int kTileN>
__device__ __forceinline__ void stage_columns(unsigned char* to, const RunFactor<__nv_bfloat16>& B, int column0, int groups) {
    constexpr int kBatch = 8;
    const int packets = groups * kTileN * 4, q = threadIdx.x % 4;
    for (int i = threadIdx.x; i < packets; i += kBatch * kThreads) {
        uint4 x[kBatch];
        int n[kBatch], group[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            const int at = (i + j * kThreads) / 4;
            n[j] = at % kTileN, group[j] = at / kTileN;
            const int column = column0 + n[j], packet = group[j] * 4 + q;
            x[j] = make_uint4(0, 0, 0, 0);
            const bool there = group[j] < groups && column < B.count && packet < B.packets;
            if (there) x[j] = *reinterpret_cast<const uint4*>(B.line(column) + B.offset(packet));
        }
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
            if (group[j] >= groups) continue;
            unsigned* const word = reinterpret_cast<unsigned*>(to + (group[j] * 4 * kTileN + n[j]) * 16) + q;
            word[0] = x[j].x, word[kTileN * 4] = x[j].y, word[2 * kTileN * 4] = x[j].z, word[3 * kTileN * 4] = x[j].w;
        }
    }
}

template <int kTileN>
__global__ void __launch_bounds__(kThreads, 1)
    multiply(const __grid_constant__ RunFactor<__nv_bfloat16> A, const __grid_constant__ RunFactor<__nv_bfloat16> B, __nv_bfloat16* C,
             const __grid_constant__ tile_product::Shape shape, int tiles_n) {
    extern __shared__ __align__(128) unsigned char columns[];
    constexpr int kSlots = slots(kTileN);
    const int groups = (A.packets + 3) / 4, tiles = (A.count + kGroupRows - 1) / kGroupRows, column0 = blockIdx.x % tiles_n * kTileN;
    const int workers = gridDim.x / tiles_n, step = workers * kGroups;
    const int first = blockIdx.x / tiles_n + workers * __shfl_sync(0xffffffffu, threadIdx.x / kGroupThreads, 0);
    unsigned char* const ring = columns + groups * kGroupK * kTileN * 2 + threadIdx.x * 16;
    constexpr int kStride = kThreads * kSlotBytes;
    Fetch fetch(A, first, step, tiles, groups);
    for (int s = 0; s < kSlots - 1; ++s) fetch.next(ring + s * kStride);
    stage_columns<kTileN>(columns, B, column0, groups);
    fence_shared_writes();
    __syncthreads();

    const uint64_t b_start = descriptor_cores(shared_address(columns), kTileN * 16, 128);
    const int lane = threadIdx.x % 32, row = threadIdx.x % kGroupThreads / 32 * 16;
    int slot = 0, free = kSlots - 1;
    const auto take = [&](unsigned (&a)[2][4]) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 2) : "memory");
        const uint4 upper = *reinterpret_cast<const uint4*>(ring + slot * kStride);
        const uint4 lower = *reinterpret_cast<const uint4*>(ring + slot * kStride + kThreads * 16);
        a[0][0] = upper.x, a[0][1] = lower.x, a[0][2] = upper.y, a[0][3] = lower.y;
        a[1][0] = upper.z, a[1][1] = lower.z, a[1][2] = upper.w, a[1][3] = lower.w;
        hold(a[0]);
        hold(a[1]);
    };
    const auto advance = [&] {
        fetch.next(ring + free * kStride);
        free = slot, slot = slot + 1 == kSlots ? 0 : slot + 1;
    };
    for (int tile = first; tile < tiles; tile += step) {
        float sums[kTileN / 2];
        const auto start = [&](const unsigned (&a)[2][4], int group) {
            const uint64_t at = b_start + group * (kGroupK * kTileN * 2 >> 4);
            multiply_add_rows(sums, a[0], at, group > 0);
            multiply_add_rows(sums, a[1], at + (kMmaK * kTileN * 2 >> 4), true);
        };
        int group = 0;
#pragma unroll 1
        for (; group + 2 <= groups; group += 2) {
            unsigned a[2][4], b[2][4];
            take(a), advance(), take(b);
            mma_fence();
            start(a, group), start(b, group + 1);
            mma_commit();
            advance();
            mma_wait<0>();
            hold(a[0]), hold(a[1]), hold(b[0]), hold(b[1]);
        }
        if (group < groups) {
            unsigned a[2][4];
            take(a);
            mma_fence();
            start(a, group);
            mma_commit();
            advance();
            mma_wait<0>();
            hold(a[0]), hold(a[1]);
        }
        hold(sums);
        tile_product::store_rows(sums, C, tile * kGroupRows + row, column0, shape, lane);
    }
}

// Whether a block's columns of B leave room.
inline bool fits(const RunFactor<__nv_bfloat16>& A, const RunFactor<__nv_bfloat16>& B) {
    const int64_t N = B.count, K = int64_t(A.packets) * 8;
    const int64_t bytes = N <= 32 ? shared_bytes<32>(K) : N <= 64 ? shared_bytes<64>(K) : shared_bytes<128>(K);
    return bytes <= kRoomBytes;
}

template <int kTileN>
cudaError_t launch(const RunFactor<__nv_bfloat16>& A, const RunFactor<__nv_bfloat16>& B, __nv_bfloat16* C, cudaStream_t stream) {
    const int64_t tiles_m = ceil_div(A.count, kGroupRows), tiles_n = ceil_div(B.count, kTileN), N = B.count, K = int64_t(A.packets) * 8;
    const int64_t workers = std::min(std::max<int64_t>(multiprocessors() / tiles_n, 1), tiles_m);
    const tile_product::Shape shape{A.count, B.count, int(K), int(K), 1, N, N % 8 == 0 && packets_allowed(C)};
    return Launch(dim3(unsigned(workers * tiles_n)), dim3(kThreads), stream)
        .shared(size_t(shared_bytes<kTileN>(K)))(multiply<kTileN>, A, B, C, shape, int(tiles_n));
}

// C[m, n] is the product of line m of A and line n of B, which fit.
inline cudaError_t launch(const RunFactor<__nv_bfloat16>& A, const RunFactor<__nv_bfloat16>& B, __nv_bfloat16* C, cudaStream_t stream) {
    return B.count <= 32 ? launch<32>(A, B, C, stream) : B.count <= 64 ? launch<64>(A, B, C, stream) : launch<128>(A, B, C, stream);
}

}  // namespace msbench::row_stream
