// Prefix sums of a long array, read once and written once, by a cooperative grid without a chain of waits from block to block.
//
// Idea: all blocks stay, and tile t is that of block t mod gridDim, in shared memory from its arrival to its last use. Its sum is
// published kAhead tiles before its base is needed: the block's last base plus the sums of the gridDim tiles between. So nobody
// waits for another's base, one warp a block reads sums, as a rule once, and kLoading tiles, 96 KiB a multiprocessor, are on their way
// at all times. (A look-back through prefixes is a chain of trips to L2 past all warps that poll, and a block that waits in it loads
// nothing.) The word of a tile has its sum and that it is there, so no fence is needed; the blocks clear these words and meet once,
// while their first loads are under way. The order of all additions is always the same on one GPU.
//
// Threads copy what only they read, so no barrier guards a stage; one a tile hands sums of warps to the warp that publishes them.
#pragma once

#include "msbench_groups.cuh"

#include "msbench_launch.cuh"
#include "msbench_packets.cuh"
#include "msbench_scan.cuh"

namespace msbench {
namespace waves {

constexpr int kWarps = 16, kHeld = 4;        // that scan, beside one that adds up tiles; packets of a thread
constexpr int kTile = kWarps * 32 * kHeld;   // packets of a tile at most: 32 KiB
constexpr int kThreads = 32 * (kWarps + 1);  // one block a multiprocessor
constexpr int kAhead = 3, kLoading = 3, kStages = 1 + kAhead + kLoading;
constexpr int kWords = 5, kMostBlocks = 32 * kWords;  // sums of tiles that a lane reads at once
constexpr unsigned long long kThere = 1ull << 32;

template <typename T>
struct Job {
    const T* x;
    T* y;
    int n, head, size, tiles;  // elements; those that the first packet lacks; elements of a tile
    volatile unsigned long long* sums;
};

__device__ inline void copy_packet(uint4* shared, const void* global) {
    const auto to = unsigned(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}

// What a thread has of one tile, with warp 0 left out: a warp's packets are neighbours, a lane has every 32nd.
template <typename T>
struct Part {
    static constexpr int kWidth = 16 / sizeof(T);
    using Packet = Group<T, kWidth>;

    int begin;             // of the tile, in elements
    int first, low, high;  // the thread's first element in the tile; those that there are
    uint4* stage;          // its first packet there

    __device__ Part(const Job<T>& job, uint4* stages, int wave) {
        const int packet = (threadIdx.x / 32 - 1) * 32 * kHeld + threadIdx.x % 32;
        begin = (wave * int(gridDim.x) + int(blockIdx.x)) * job.size - job.head;
        first = packet * kWidth;
        low = max(0, -begin), high = min(job.size, job.n - begin);
        stage = stages + wave % unsigned(kStages) * kTile + packet;
    }
    __device__ int at(int i) const { return first + i * 32 * kWidth; }
    __device__ bool whole(int i) const { return at(i) >= low && at(i) + kWidth <= high; }
    __device__ bool all_whole() const { return whole(0) && whole(kHeld - 1); }
    __device__ bool some(int i) const { return at(i) < high; }
    __device__ bool has(int element) const { return element >= low && element < high; }
    __device__ void load(const T* x) const {
        x += begin + first;
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            if (whole(i)) copy_packet(stage + i * 32, x + i * 32 * kWidth);
        }
        if (all_whole()) return;
#pragma unroll 1
        for (int i = 0; i < kHeld && some(i); ++i) {
            if (whole(i)) continue;
            Packet packet;  // the array's first or last
#pragma unroll
            for (int k = 0; k < kWidth; ++k) packet.lane[k] = has(at(i) + k) ? x[i * 32 * kWidth + k] : from_float<T>(0.0f);
            stage[i * 32] = reinterpret_cast<const uint4&>(packet);
        }
    }
    // The inclusive sums of packet i.
    __device__ Group<float, kWidth> sums(int i) const {
        const uint4 word = some(i) ? stage[i * 32] : uint4{};
        auto value = operands(reinterpret_cast<const Packet&>(word));
#pragma unroll
        for (int k = 1; k < kWidth; ++k) value.lane[k] += value.lane[k - 1];
        return value;
    }
    __device__ float sum() const {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kHeld; ++i) sum += sums(i).lane[kWidth - 1];
        return warp_reduce(sum, Sum());
    }
    // `before`: the sum of all elements ahead of the warp's.
    __device__ void store(T* y, float before) const {
        y += begin + first;
        Packet result[kHeld];
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            auto value = sums(i);
            const float inclusive = warp_inclusive(value.lane[kWidth - 1]), ahead = before + warp_before(inclusive);
            before += __shfl_sync(~0u, inclusive, 31);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) value.lane[k] += ahead;
            result[i] = rounded<T>(value);
            if (whole(i)) store_group_once(y, i * 32, result[i]);
        }
        if (all_whole()) return;
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                if (!whole(i) && has(at(i) + k)) y[i * 32 * kWidth + k] = result[i].lane[k];
            }
        }
    }
};

// Of tiles `from` to `to`, kMostBlocks at most, for all lanes of a warp, as soon as they are there.
__device__ inline float sum_of_tiles(const volatile unsigned long long* sums, int from, int to) {
    unsigned long long word[kWords];
    for (bool all = false; !all;) {
        all = true;
#pragma unroll
        for (int i = 0, tile = from + threadIdx.x % 32; i < kWords; ++i, tile += 32) word[i] = tile < to ? sums[tile] : kThere;
#pragma unroll
        for (int i = 0; i < kWords; ++i) all = all && word[i] >= kThere;
        all = __all_sync(~0u, all);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) sum += __uint_as_float(unsigned(word[i]));
    return warp_reduce(sum, Sum());
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 1) scan_waves(Job<T> job) {
    extern __shared__ uint4 stages[];
    __shared__ float of_warp[2][kWarps], before[kStages][kWarps], base[2];
    const int lane = threadIdx.x % 32, warp = int(threadIdx.x / 32) - 1;  // -1 adds up, and no load holds it up when the blocks meet
    const int blocks = gridDim.x, own = blockIdx.x, count = (job.tiles - own + blocks - 1) / blocks;

    for (int wave = 0; warp >= 0 && wave < kLoading; ++wave) {
        if (wave < count) Part<T>(job, stages, wave).load(job.x);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int tile = own * kThreads + threadIdx.x; tile < job.tiles; tile += blocks * kThreads) job.sums[tile] = 0;
    cooperative_groups::this_grid().sync();

    float sum = 0;  // of all tiles before the last one that had a base
    for (int wave = -kAhead; wave < count; ++wave) {
        const int summed = wave + kAhead;
        if (warp >= 0) {
            if (summed + kLoading < count) Part<T>(job, stages, summed + kLoading).load(job.x);
            asm volatile("cp.async.commit_group;\ncp.async.wait_group %0;" ::"n"(kLoading) : "memory");
            const float own_sum = summed < count ? Part<T>(job, stages, summed).sum() : 0.0f;
            if (lane == 0) of_warp[summed % 2][warp] = own_sum;
        }
        __syncthreads();
        if (warp >= 0) {
            if (wave >= 0) Part<T>(job, stages, wave).store(job.y, base[wave % 2] + before[wave % unsigned(kStages)][warp]);
        } else {
            if (summed < count) {
                const float inclusive = warp_inclusive(lane < kWarps ? of_warp[summed % 2][lane] : 0.0f);
                const float earlier = warp_before(inclusive);
                if (lane == 31) job.sums[own + summed * blocks] = kThere | __float_as_uint(inclusive);
                if (lane < kWarps) before[summed % unsigned(kStages)][lane] = earlier;
            }
            if (wave >= -1 && wave + 1 < count) {
                sum += sum_of_tiles(job.sums, max(0, own + wave * blocks), own + (wave + 1) * blocks);
                if (lane == 0) base[(wave + 1) % 2] = sum;
            }
        }
    }
}

}  // namespace waves

// Bytes of workspace for n elements.
template <typename T>
size_t wave_scan_bytes(int64_t n) {
    return size_t(ceil_div(n * int64_t(sizeof(T)), 16 * waves::kTile) + waves::kMostBlocks + 1) * sizeof(unsigned long long);
}

// y: the inclusive prefix sums of x, elements each that miss a 16-byte boundary by `head`; 0 < n <= 2^30.
template <typename T>
cudaError_t wave_scan(const T* x, T* y, int64_t n, int head, void* workspace, cudaStream_t stream) {
    using namespace waves;
    constexpr int kWidth = 16 / sizeof(T);
    const int64_t packets = ceil_div(head + n, kWidth), most = std::min(multiprocessors(), kMostBlocks);
    const int64_t rounds = ceil_div(packets, most * kTile);
    const int64_t size = ceil_div(ceil_div(packets, most * rounds), 8) * 8;  // 128 bytes; all blocks have as many tiles, or one less
    const int64_t tiles = ceil_div(packets, size), blocks = std::min(most, tiles);
    const size_t shared = size_t(std::min<int64_t>(rounds, kStages)) * kTile * 16;
    const Job<T> job{x, y, int(n), head, int(size * kWidth), int(tiles), static_cast<volatile unsigned long long*>(workspace)};
    return Launch(unsigned(blocks), kThreads, stream).shared(shared).cooperative()(scan_waves<T>, job);
}

}  // namespace msbench
