// Bringing many items, such as products or entries of a matrix, together by their rows, without an atomic addition in
// memory for each: those run at 101·10⁹ a second at best (measured on an H200), 332 us for 2²⁵.
//
// First each block orders a tile of items by bins of neighbouring rows, in shared memory, and stores them next to each
// other with the places where bins begin. Then a block a bin walks through its part of every tile. That moves an item
// twice, in runs; no counters, no lists, and the workspace is used as it comes.
#pragma once

#include "msbench_add_by_row.cuh"
#include "msbench_launch.cuh"
#include "msbench_scan.cuh"

namespace msbench {

template <typename Item, int kThreads_>
struct RowBins {
    static constexpr int kBins = 256, kThreads = kThreads_, kEach = 8, kTile = kThreads * kEach;

    Item* items;           // [tiles][kTile]
    unsigned short* rows;  // [tiles][kTile]: within the bin
    int* starts;           // [kBins + 1][tiles]: where a bin begins in a tile
    int tiles, height;     // rows of a bin: a power of two, at most 4096 for 2²⁰ rows

    static int height_of(int64_t rows) {
        int height = 1;
        while (int64_t(height) * kBins < rows) height *= 2;
        return height;
    }
    static size_t bytes(int64_t count) {
        const size_t tiles = ceil_div(count, kTile);
        return tiles * (kTile * (sizeof(Item) + 2) + (kBins + 1) * sizeof(int));
    }
    // `count` items of `all_rows` rows.
    RowBins(void* workspace, int64_t all_rows, int64_t count)
        : items(static_cast<Item*>(workspace)), tiles(int(ceil_div(count, kTile))), height(height_of(all_rows)) {
        rows = reinterpret_cast<unsigned short*>(items + int64_t(tiles) * kTile);
        starts = reinterpret_cast<int*>(rows + int64_t(tiles) * kTile);
    }
};

__device__ inline float load_item(const float* p) {
    return __ldcg(p);
}

template <typename Item, int kThreads>
struct TileScratch {
    using Bins = RowBins<Item, kThreads>;
    alignas(16) Item items[Bins::kTile];
    alignas(16) unsigned short rows[Bins::kTile];
    int counts[Bins::kBins];
};

// Puts a tile in order. A thread has items of `row` (below 0: none).
template <typename Item, int kThreads>
__device__ inline void store_tile(const RowBins<Item, kThreads>& bins, int tile, const int (&row)[8], const Item (&item)[8],
                                  TileScratch<Item, kThreads>& s) {
    using Bins = RowBins<Item, kThreads>;
    constexpr int kBins = Bins::kBins, kEach = Bins::kEach;
    const int tid = threadIdx.x, shift = 31 - __clz(bins.height);
    for (int b = tid; b < kBins; b += kThreads) s.counts[b] = 0;
    __syncthreads();
    int rank[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (row[i] >= 0) rank[i] = atomicAdd(&s.counts[row[i] >> shift], 1);
    }
    __syncthreads();
    const int own = tid < kBins ? s.counts[tid] : 0;
    const auto scan = block_scan(own);
    if (tid < kBins) {
        bins.starts[int64_t(tid) * bins.tiles + tile] = scan.before;
        s.counts[tid] = scan.before;
    }
    if (tid == 0) bins.starts[int64_t(kBins) * bins.tiles + tile] = scan.total;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (row[i] < 0) continue;
        const int at = s.counts[row[i] >> shift] + rank[i];
        s.items[at] = item[i];
        s.rows[at] = static_cast<unsigned short>(row[i] & (bins.height - 1));
    }
    __syncthreads();
    // What lies beyond the total is copied, too, and never read.
    const int64_t base = int64_t(tile) * Bins::kTile;
    for (int i = tid; i < int(sizeof(s.items) / 16); i += kThreads)
        __stcg(reinterpret_cast<uint4*>(bins.items + base) + i, reinterpret_cast<const uint4*>(s.items)[i]);
    for (int i = tid; i < int(sizeof(s.rows) / 16); i += kThreads)
        __stcg(reinterpret_cast<uint4*>(bins.rows + base) + i, reinterpret_cast<const uint4*>(s.rows)[i]);
}

// Calls f(row in the bin or -1, item, heavy) for the items of a bin, in whole warps. `heavy`: there are so many that rows
// should be expected to come again and again. kItems: whether items are loaded at all.
template <int kBlock, bool kItems, typename Item, int kThreads, typename F>
__device__ inline void walk_bin(const RowBins<Item, kThreads>& bins, int bin, F f) {
    using Bins = RowBins<Item, kThreads>;
    constexpr int kFlight = 4;  // tiles that a warp has under way
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int* begins = bins.starts + int64_t(bin) * bins.tiles;
    const int* ends = begins + bins.tiles;
    // A warp has 32 tiles at a time, whose bounds its lanes load.
    for (int first = warp * 32; first < bins.tiles; first += kBlock) {
        const int own = first + lane;
        const int begin = own < bins.tiles ? __ldcg(begins + own) : 0, end = own < bins.tiles ? __ldcg(ends + own) : 0;
        const bool heavy = __any_sync(~0u, end - begin > Bins::kTile / 16);
        for (int t = 0; t < min(32, bins.tiles - first); t += kFlight) {
            int at[kFlight], length[kFlight], longest = 0;
#pragma unroll
            for (int i = 0; i < kFlight; ++i) {
                const int start = __shfl_sync(~0u, begin, t + i);
                length[i] = __shfl_sync(~0u, end, t + i) - start;
                at[i] = (first + t + i) * Bins::kTile + start;
                longest = max(longest, length[i]);
            }
            for (int k = lane; k - lane < longest; k += 32) {
                int row[kFlight];
                Item item[kFlight];
#pragma unroll
                for (int i = 0; i < kFlight; ++i) {
                    row[i] = -1;
                    if (k < length[i]) {
                        row[i] = __ldcg(bins.rows + at[i] + k);
                        if constexpr (kItems) item[i] = load_item(bins.items + at[i] + k);
                    }
                }
#pragma unroll
                for (int i = 0; i < kFlight; ++i) f(row[i], item[i], heavy);
            }
        }
    }
}

// y [rows] = the sums of products by row; a block a bin.
template <typename T, int kThreads>
__global__ void __launch_bounds__(kThreads, 2) sum_bins(const __grid_constant__ RowBins<float, kThreads> bins, T* y, int64_t rows) {
    __shared__ float sums[4096];
    const int bin = blockIdx.x;
    for (int i = threadIdx.x; i < bins.height; i += kThreads) sums[i] = 0;
    cudaGridDependencySynchronize();
    __syncthreads();
    walk_bin<kThreads, true>(bins, bin, [&](int row, float product, bool heavy) {
        const bool adds = heavy ? combine_rows(row, product) : row >= 0;
        if (adds) atomicAdd(sums + row, product);
    });
    __syncthreads();
    for (int i = threadIdx.x; i < bins.height; i += kThreads) {
        const int64_t row = int64_t(bin) * bins.height + i;
        if (row < rows) y[row] = from_float<T>(sums[i]);
    }
}

}  // namespace msbench
