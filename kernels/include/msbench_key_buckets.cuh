// Dealing 32-bit keys out to buckets that follow each other in order, by a histogram of their upper halves.
//
// Keys with the same upper half are a bin. A bucket is the bins that start in the same interval of the output, or one bin of more
// than kHeavy keys: however skewed the upper halves are (half of uniform floats have one of 256), buckets are alike.
//
// Keys of all magnitudes have all upper halves, which block 0 alone lists while others wait: lanes of a warp whose bins are in the same bucket
// do so together.
#pragma once

#include "msbench_count_keys.cuh"
#include "msbench_ordered_keys.cuh"

namespace msbench {

constexpr int kIntervals = 2048, kBuckets = 2 * kIntervals, kHeavy = 8192;  // light buckets, then heavy ones
constexpr int kTile = 16384, kTileEach = kTile / kCountThreads;             // keys that are scattered together
constexpr unsigned kGiant = 1 << 19;                                        // keys of a bin that all blocks sort together
constexpr unsigned kSmall = 8704;                                           // keys of a light bucket that half a multiprocessor sorts

struct KeyBuckets {             // in the workspace
    KeyCounts counts;
    uint2 bin[kKeys];           // start and count of the keys with an upper half, in ascending order
    alignas(8) unsigned cursor[kBuckets];  // where a bucket's next key goes; taken by pairs
    uint4 task[kBuckets];       // start, count, upper half, whether heavy; from the end on those of at most kSmall keys
    uint4 giant[512];
    int tasks, giants, next, smalls, next_small;
};

struct BucketTable {            // in shared memory
    uint16_t bucket[kKeys];     // of each upper half
    unsigned base[kBuckets], count[kBuckets], staged[kTile];
};

// Assigns buckets when all upper halves are counted; block 0 lists them. An interval has 2^shift places.
__device__ inline void make_buckets(BucketTable& table, KeyBuckets* work, int shift) {
    constexpr int kBatch = 8;  // segments of a warp under way
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const BlockScan<unsigned> scan = block_scan(work->counts.segment[t]);
    uint16_t* const upper = reinterpret_cast<uint16_t*>(table.staged + kSegments);  // of heavy buckets
    table.staged[t] = scan.before;
    for (int i = t; i < kBuckets; i += kCountThreads) table.base[i] = ~0u, table.count[i] = 0;
    __syncthreads();
    for (int from = warp; from < kSegments; from += kBatch * kCountWarps) {
        uint2 pair[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int segment = from + i * kCountWarps, next = segment + 1;
            const bool empty = (next < kSegments ? table.staged[next] : scan.total) == table.staged[segment];
            pair[i] = empty ? make_uint2(0, 0) : reinterpret_cast<const uint2*>(work->counts.total)[segment * kSegmentKeys / 2 + lane];
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            const int segment = from + i * kCountWarps, first = segment * kSegmentKeys + 2 * lane;
            if (!__any_sync(~0u, pair[i].x + pair[i].y)) continue;
            const unsigned before = table.staged[segment] + warp_inclusive(pair[i].x + pair[i].y) - pair[i].x - pair[i].y;
            const uint2 bin[2] = {make_uint2(before, pair[i].x), make_uint2(before + pair[i].x, pair[i].y)};
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const unsigned interval = bin[e].x >> shift, bucket = interval + (bin[e].y > kHeavy ? kIntervals : 0), end = bin[e].x + bin[e].y;
                table.bucket[first + e] = uint16_t(bucket);
                if (segment % kCountBlocks == int(blockIdx.x)) work->bin[first + e] = bin[e];
                if (blockIdx.x > 0) continue;
                const unsigned peers = __match_any_sync(~0u, bin[e].y > 0 ? bucket : ~0u);  // in ascending order
                const unsigned last_end = __shfl_sync(~0u, end, 31 - __clz(peers));
                if (bin[e].y == 0) continue;
                if (lane == __ffs(peers) - 1) {
                    atomicMin(&table.base[bucket], bin[e].x);
                    atomicMax(&table.count[bucket], last_end);
                }
                if (bin[e].y > kHeavy) upper[interval] = uint16_t(first + e);
            }
        }
    }
    if (blockIdx.x > 0) return;
    __syncthreads();
    for (int i = t; i < kBuckets; i += kCountThreads) {
        const unsigned start = table.base[i], count = table.count[i] - start;
        if (start == ~0u) continue;
        work->cursor[i] = start;
        const bool heavy = i >= kIntervals;
        const uint4 task = make_uint4(start, count, heavy ? upper[i - kIntervals] : 0, heavy);
        if (heavy && count > kGiant) work->giant[atomicAdd(&work->giants, 1)] = task;
        else if (!heavy && count <= kSmall) work->task[kBuckets - 1 - atomicAdd(&work->smalls, 1)] = task;
        else work->task[atomicAdd(&work->tasks, 1)] = task;
    }
}

// Brings this block's part of x into the buckets as ordered keys, a tile at a time: in shared memory first, so that it is written
// in runs. Called when all blocks have made their tables.
__device__ inline void scatter_keys(const unsigned* x, int n, BucketTable& table, KeyBuckets* work, unsigned* to) {
    const int last = int(int64_t(n) * (blockIdx.x + 1) / kCountBlocks);
    for (int first = int(int64_t(n) * blockIdx.x / kCountBlocks); first < last; first += kTile) {
        unsigned key[kTileEach], place[kTileEach];
#pragma unroll
        for (int i = 0; i < kTileEach; ++i) {
            const int at = first + i * kCountThreads + threadIdx.x;
            key[i] = at < last ? __ldcs(x + at) : 0;
        }
        reinterpret_cast<uint4*>(table.count)[threadIdx.x] = make_uint4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTileEach; ++i) key[i] = ordered_bits(key[i]), place[i] = table.bucket[key[i] >> 16];
#pragma unroll
        for (int i = 0; i < kTileEach; ++i) {
            if (first + i * kCountThreads + int(threadIdx.x) < last) {
                place[i] = place[i] << 16 | atomicAdd(&table.count[place[i]], 1);
            } else {
                place[i] = ~0u;
            }
        }
        __syncthreads();
        const uint4 count = reinterpret_cast<const uint4*>(table.count)[threadIdx.x];  // of four buckets
        static_assert(kBuckets == 4 * kCountThreads);
        const unsigned each[4] = {count.x, count.y, count.z, count.w};
        unsigned reserved[4];
#pragma unroll
        for (int i = 0; i < 4; i += 2) {  // fewer additions, which are to the same few places from all blocks
            if ((each[i] | each[i + 1]) == 0) continue;
            auto* const cursors = reinterpret_cast<unsigned long long*>(work->cursor + 4 * threadIdx.x + i);
            const uint64_t two = atomicAdd(cursors, each[i] | uint64_t(each[i + 1]) << 32);
            reserved[i] = unsigned(two), reserved[i + 1] = unsigned(two >> 32);
        }
        unsigned start = block_scan(count.x + count.y + count.z + count.w).before;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            table.count[4 * threadIdx.x + i] = start;
            table.base[4 * threadIdx.x + i] = reserved[i] - start;
            start += each[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTileEach; ++i) {
            if (place[i] != ~0u) table.staged[table.count[place[i] >> 16] + (place[i] & 0xffff)] = key[i];
        }
        __syncthreads();
        const int all = min(kTile, last - first);
#pragma unroll 8
        for (int i = threadIdx.x; i < all; i += kCountThreads) {
            const unsigned value = table.staged[i];
            to[table.base[table.bucket[value >> 16]] + i] = value;
        }
        __syncthreads();
    }
}

}  // namespace msbench
