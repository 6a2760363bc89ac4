// Sums of products by row where sums fit in no block's shared memory, without an atomic addition in memory for each product: those run at
// 101·10⁹ a second at best (measured on an H200), 332 us for 2²⁵.
//
// First each block orders a tile of products by bins of neighbouring rows, in shared memory, and stores them next to each other with the
// places where bins begin. Then a few blocks a bin add up its part of every tile (msbench_sum_products.cuh). A product is stored and read
// once, as a float and 16 bits of its row. A bin's part of a tile begins at a multiple of four, so that four products are one load.
//
// While a tile is stored, loads of the next are under way: the kernel that fills bins keeps its blocks for many tiles.
#pragma once

#include <algorithm>

#include "msbench_add_by_row.cuh"
#include "msbench_scan.cuh"

namespace msbench {

constexpr int kProductBins = 128;

// Products of each bin. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ int bin_totals[kProductBins];

template <int kThreads_, int kEach_>
struct ProductBins {
    static constexpr int kBins = kProductBins, kThreads = kThreads_, kEach = kEach_, kTile = kThreads * kEach;
    static constexpr int kRoom = kTile + 4 * kBins;  // of a tile: every bin may be filled up to a multiple of four
    static constexpr unsigned short kNone = 0xffff;  // where it is
    // Bins are shared out by pieces (msbench_bin_shares.cuh), of which all products are kPieces. Bins of up to kWhole are not cut.
    static constexpr int kPieces = 512, kWhole = kPieces / kBins * 3 / 2, kLeastPiece = 8192;

    float* products;         // [tiles][kRoom]
    unsigned short* rows;    // [tiles][kRoom]: within the bin
    unsigned short* starts;  // [kBins + 1][tiles]: where a bin begins in a tile
    float4* sums;            // [kBins][height() / 4]: of bins that are cut into pieces
    int tiles, shift;        // a bin has 2^shift rows, at most 8192 for 2²⁰ rows
    int piece;               // products that are worth a block

    static int shift_of(int64_t all_rows) {
        int shift = 2;  // four rows are added at once
        while (int64_t(kBins) << shift < all_rows) ++shift;
        return shift;
    }
    static size_t bytes(int64_t all_rows, int64_t all_tiles) {
        return (sizeof(float) * kBins << shift_of(all_rows)) + all_tiles * (kRoom * (sizeof(float) + 2) + (kBins + 1) * 2);
    }
    // `workspace`: bytes(all_rows, all_tiles), aligned to 16 bytes, for products of `all_rows` rows.
    ProductBins(void* workspace, int64_t all_rows, int64_t all_tiles)
        : sums(static_cast<float4*>(workspace)), tiles(int(all_tiles)), shift(shift_of(all_rows)) {
        piece = int(std::max<int64_t>(ceil_div(all_tiles * kTile, kPieces), kLeastPiece));
        products = reinterpret_cast<float*>(sums) + (int64_t(kBins) << shift);
        rows = reinterpret_cast<unsigned short*>(products + int64_t(tiles) * kRoom);
        starts = rows + int64_t(tiles) * kRoom;
    }
    __device__ int height() const { return 1 << shift; }
};

// A tile in shared memory. Its methods are called by all threads of a block, with a barrier between any two.
template <int kThreads, int kEach>
struct ProductTile {
    using Bins = ProductBins<kThreads, kEach>;
    // Of a thread's products in their bins, two in a register.
    struct Ranks {
        unsigned pair[kEach / 2];
        __device__ void set(int i, unsigned rank) { pair[i / 2] = i % 2 ? pair[i / 2] | rank << 16 : rank; }
        __device__ int operator[](int i) const { return int(i % 2 ? pair[i / 2] >> 16 : pair[i / 2] & 0xffff); }
    };
    alignas(16) float products[Bins::kRoom];
    alignas(16) unsigned short rows[Bins::kRoom];
    int counts[Bins::kBins];  // of products in each bin, then where it begins
    int totals[Bins::kBins];  // of all of the block's tiles
    int total;

    // Before the first tile, and behind the last one.
    __device__ void begin(const Bins& bins) {
        if (threadIdx.x < Bins::kBins) totals[threadIdx.x] = 0;
        if (int64_t(bins.tiles) * Bins::kTile <= Bins::kWhole * bins.piece) return;  // too few for a bin that is cut
#pragma unroll 1
        for (int i = blockIdx.x * kThreads + threadIdx.x; i < Bins::kBins * bins.height() / 4; i += gridDim.x * kThreads)
            bins.sums[i] = float4{0, 0, 0, 0};
    }
    __device__ void finish() const {
        if (threadIdx.x < Bins::kBins && totals[threadIdx.x] > 0) atomicAdd(bin_totals + threadIdx.x, totals[threadIdx.x]);
    }
    __device__ void clear() {
        if (threadIdx.x < Bins::kBins) counts[threadIdx.x] = 0;
    }
    // Counts this thread's products, of `row` (below 0: none), and ranks them in their bins.
    template <int kCount>
    __device__ void count(const Bins& bins, const int (&row)[kCount], Ranks& ranks) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) ranks.set(i, row[i] < 0 ? 0 : unsigned(atomicAdd(counts + (row[i] >> bins.shift), 1)));
    }
    // Finds out where bins begin.
    __device__ void place(const Bins& bins, int tile) {
        constexpr int kOwn = Bins::kBins / 32;
        const int lane = threadIdx.x;
        if (lane >= 32) return;
        int length = 0;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) length += (counts[lane * kOwn + i] + 3) & ~3;
        const int inclusive = warp_inclusive(length);
        int at = inclusive - length;
        unsigned short* start = bins.starts + int64_t(lane) * kOwn * bins.tiles + tile;
#pragma unroll 1  // few registers: all threads have products in theirs
        for (int i = 0; i < kOwn; ++i, start += bins.tiles) {
            const int count = counts[lane * kOwn + i], end = (at + count + 3) & ~3;
            counts[lane * kOwn + i] = at;
            totals[lane * kOwn + i] += count;
            *start = static_cast<unsigned short>(at);
#pragma unroll 1
            for (int k = at + count; k < end; ++k) rows[k] = Bins::kNone;
            at = end;
        }
        if (lane == 31) {
            *start = static_cast<unsigned short>(at);
            total = at;
        }
    }
    __device__ void put(const Bins& bins, int row, int rank, float product) {
        asm("" : "+r"(row));  // or the compiler keeps the places of all bins since they were counted
        const int at = counts[row >> bins.shift] + rank;
        products[at] = product;
        rows[at] = static_cast<unsigned short>(row & (bins.height() - 1));
    }
    // Stores the tile: what lies behind its end in the last packet is never read.
    __device__ void store(const Bins& bins, int tile) const {
        const int64_t base = int64_t(tile) * Bins::kRoom;
        auto* const to_products = reinterpret_cast<float4*>(bins.products + base);
        auto* const to_rows = reinterpret_cast<uint4*>(bins.rows + base);
#pragma unroll 1
        for (int i = threadIdx.x; i < total / 4; i += kThreads) __stcg(to_products + i, reinterpret_cast<const float4*>(products)[i]);
#pragma unroll 1
        for (int i = threadIdx.x; i < (total + 7) / 8; i += kThreads) __stcg(to_rows + i, reinterpret_cast<const uint4*>(rows)[i]);
    }
};

// Adds a bin's products to `sums`, [height] in shared memory. `share` of `shares` blocks, each of kThreads threads, of which kLanes have a tile's
// part.
template <int kThreads, int kLanes, typename Bins>
__device__ inline void add_bin(const Bins& bins, int bin, int share, int shares, float* sums) {
    static_assert(kThreads % kLanes == 0);
    constexpr int kFlight = 2;  // loads that a lane has under way
    // `often`: there are so many products of the bin that rows should be expected to come again and again.
    const auto add = [&](const float4& product, const uint2& pairs, bool often) {
        const float products[4] = {product.x, product.y, product.z, product.w};
        const unsigned of_rows[4] = {pairs.x & 0xffff, pairs.x >> 16, pairs.y & 0xffff, pairs.y >> 16};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = of_rows[i] == Bins::kNone ? -1 : int(of_rows[i]);
            if (often) add_to_shared(sums, row, products[i]);
            else if (row >= 0) atomicAdd(sums + row, products[i]);
        }
    };
    const unsigned short *const begins = bins.starts + int64_t(bin) * bins.tiles, *const ends = begins + bins.tiles;
    const int lane = threadIdx.x % kLanes, step = shares * (kThreads / kLanes);
    int tile = (share * kThreads + int(threadIdx.x)) / kLanes;
    int begin = tile < bins.tiles ? __ldcg(begins + tile) : 0, end = tile < bins.tiles ? __ldcg(ends + tile) : 0;
    for (; tile - int(threadIdx.x) % 32 / kLanes < bins.tiles; tile += step) {
        const int64_t at = int64_t(tile) * Bins::kRoom + begin;
        const auto* const products = reinterpret_cast<const float4*>(bins.products + at);
        const auto* const pairs = reinterpret_cast<const uint2*>(bins.rows + at);
        const int quads = (end - begin) / 4, next = tile + step;
        const bool often = __any_sync(~0u, quads > Bins::kTile / 64);
        begin = next < bins.tiles ? __ldcg(begins + next) : 0;
        end = next < bins.tiles ? __ldcg(ends + next) : 0;
        for (int first = lane; __any_sync(~0u, first < quads); first += kFlight * kLanes) {
            float4 product[kFlight];
            uint2 pair[kFlight];
#pragma unroll
            for (int i = 0; i < kFlight; ++i) {
                pair[i] = uint2{~0u, ~0u};
                if (first + i * kLanes < quads) {
                    product[i] = __ldcg(products + first + i * kLanes);
                    pair[i] = __ldcg(pairs + first + i * kLanes);
                }
            }
#pragma unroll
            for (int i = 0; i < kFlight; ++i) add(product[i], pair[i], often);
        }
    }
}

}  // namespace msbench
