// Dealing 32-bit keys out to buckets that follow each other in order, by a histogram of their upper halves.
//
// Keys with the same upper half are a bin. A bucket is the bins that start in the same interval of the output, or one bin of more
// than kHeavy keys: however skewed the upper halves are (half of uniform floats have one of 256), buckets are alike. Each block finds
// the buckets of its segments and lists some; where one block listed all, others waited: 21 us for keys of all magnitudes, and 10 so.
//
// What limits scattering is how many runs L2 takes, whose ends share sectors with others: 142 us for 2^24 keys of all magnitudes, in runs
// of 8, with a block's next keys on their way or not. Lost: tiles of 32768 keys, which registers don't hold and are read twice, with a byte
// an upper half and counters of 16 bits, 225. (H100, 2026-11-25.)
#pragma once

#include "msbench_count_keys.cuh"
#include "msbench_ordered_keys.cuh"

namespace msbench {

constexpr int kIntervals = 2048, kBuckets = 2 * kIntervals, kHeavy = 8192;
constexpr int kTile = 16384, kTileEach = kTile / kCountThreads;  // keys that are scattered together
constexpr unsigned kGiant = 1 << 19;                             // keys of a bin that all blocks sort together
constexpr unsigned kSmall = 8704;                                // keys of a light bucket that half a multiprocessor sorts

struct KeyBuckets {                         // in the workspace
    KeyCounts counts;
    uint2 bin[kKeys];                       // start and count of the keys with an upper half, in ascending order
    alignas(16) uint16_t bucket[kKeys];     // of an upper half
    unsigned low[kBuckets], end[kBuckets];  // where a bucket's keys lie
    uint16_t upper[kIntervals];             // of heavy buckets
    alignas(8) unsigned cursor[kBuckets];   // where a bucket's next key goes; taken by pairs
    uint4 task[kBuckets];                   // start, count, upper half, whether heavy; from the end on those of at most kSmall keys
    uint4 giant[512];
    int tasks, giants, next, smalls, next_small;
};

struct BucketTable {  // in shared memory
    alignas(16) uint16_t bucket[kKeys];
    unsigned base[kBuckets], count[kBuckets], staged[kTile];
};

// Called by all blocks before any draws up buckets, a barrier of the grid ahead.
__device__ inline void clear_buckets(KeyBuckets* work) {
    const int i = blockIdx.x * kCountThreads + threadIdx.x;
    if (i < kBuckets) work->low[i] = ~0u, work->end[i] = 0;
    if (i == 0) work->tasks = work->giants = work->next = work->smalls = work->next_small = 0;
}

// Finds buckets of this block's segments when all upper halves are counted. An interval has 2^shift places. Buckets are numbered in
// ascending order: twice the interval, and one more for a heavy one.
__device__ inline void draw_up_buckets(unsigned (&segment_start)[kSegments], KeyBuckets* work, int shift) {
    const int t = threadIdx.x, lane = t % 32, segment = t / 32 * kCountBlocks + blockIdx.x;
    segment_start[t] = block_scan(work->counts.segment[t]).before;
    __syncthreads();
    if (segment >= kSegments) return;
    const int first = segment * kSegmentKeys + 2 * lane;
    const uint2 pair = *reinterpret_cast<const uint2*>(work->counts.total + first);
    if (!__any_sync(~0u, pair.x + pair.y)) return;
    const unsigned before = segment_start[segment] + warp_inclusive(pair.x + pair.y) - pair.x - pair.y;
    const uint2 bin[2] = {make_uint2(before, pair.x), make_uint2(before + pair.x, pair.y)};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const bool heavy = bin[e].y > kHeavy;
        const unsigned bucket = min((bin[e].x >> shift) * 2 + heavy, kBuckets - 1u), end = bin[e].x + bin[e].y;
        work->bucket[first + e] = uint16_t(bucket);
        work->bin[first + e] = bin[e];
        const unsigned peers = __match_any_sync(~0u, bin[e].y > 0 ? bucket : ~0u);  // in ascending order
        const unsigned last_end = __shfl_sync(~0u, end, 31 - __clz(peers));
        if (bin[e].y == 0 || lane != __ffs(peers) - 1) continue;
        atomicMin(&work->low[bucket], bin[e].x);
        atomicMax(&work->end[bucket], last_end);
        if (heavy) work->upper[bucket / 2] = uint16_t(first + e);
    }
}

// The buckets of all upper halves, in every block, when all are drawn up; blocks list some.
__device__ inline void make_table(BucketTable& table, KeyBuckets* work) {
    const int t = threadIdx.x, bucket = t * kCountBlocks + blockIdx.x;
    if (bucket < kBuckets && work->low[bucket] != ~0u) {
        const unsigned start = work->low[bucket], count = work->end[bucket] - start, heavy = bucket % 2;
        work->cursor[bucket] = start;
        const uint4 task = make_uint4(start, count, heavy ? work->upper[bucket / 2] : 0, heavy);
        if (heavy && count > kGiant) work->giant[atomicAdd(&work->giants, 1)] = task;
        else if (!heavy && count <= kSmall) work->task[kBuckets - 1 - atomicAdd(&work->smalls, 1)] = task;
        else work->task[atomicAdd(&work->tasks, 1)] = task;
    }
#pragma unroll
    for (int i = t; i < kKeys / 8; i += kCountThreads) {
        reinterpret_cast<uint4*>(table.bucket)[i] = reinterpret_cast<const uint4*>(work->bucket)[i];
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
