// Sorting 16-bit keys by counting: how often each of 65536 keys occurs, by all blocks of a grid together, and writing runs of
// equal keys.
//
// A block counts its part of the array in shared memory, 16 bits a counter. It publishes the segments (64 neighbouring keys,
// 128 bytes of counters) in which it has counted anything, and adds up its own share of the segments over all blocks.
#pragma once

#include "msbench_scan.cuh"

namespace msbench {

constexpr int kCountThreads = 1024, kCountWarps = kCountThreads / 32, kCountBlocks = 132;
constexpr int kKeys = 65536, kSegmentKeys = 64, kSegments = kKeys / kSegmentKeys;
constexpr int kHistogramBytes = 2 * kKeys;                 // of shared memory, a counter for each key
constexpr int kKeepBelow = 1024, kRound = 65536 - kKeepBelow;  // elements that can't make such counters overflow
constexpr int kMostMoved = 2048;
static_assert(kSegments == kCountThreads);

struct KeyCounts {                                         // in the workspace
    unsigned part[kSegments][kCountBlocks][32];            // two counters a word; only where marked
    unsigned marks[kSegments / 32][kCountBlocks];          // segments in which a block has counted something
    int moved[kCountBlocks];
    uint2 move[kCountBlocks][kMostMoved];                  // key and count that a counter was to lose before it could overflow
    alignas(16) unsigned total[kKeys];                     // in ascending order of what the keys stand for
    unsigned segment[kSegments];                           // the same for segments
};

__device__ inline void count_key(unsigned* histogram, unsigned key) {
    atomicAdd(&histogram[key >> 1], key & 1 ? 0x10000u : 1u);
}

__device__ inline void clear_shared(void* array, int bytes) {
    for (int i = threadIdx.x; i < bytes / 16; i += kCountThreads) static_cast<uint4*>(array)[i] = make_uint4(0, 0, 0, 0);
}

// Counts this block's part of x[0, n), n < 2^30, in a histogram in shared memory. key_of: a key from an element.
template <typename T, typename KeyOf>
__device__ inline void count_part(const T* x, int64_t n, KeyOf key_of, unsigned* histogram, KeyCounts* work) {
    constexpr int kPacket = 16 / sizeof(T), kUnroll = 4;
    __shared__ int moved;
    const int head = int(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(T));
    const int64_t packets = (head + n + kPacket - 1) / kPacket;
    const int last = int(packets * (blockIdx.x + 1) / kCountBlocks);
    if (threadIdx.x == 0) moved = 0;
    clear_shared(histogram, kHistogramBytes);
    __syncthreads();
    for (int first = int(packets * blockIdx.x / kCountBlocks), stop; first < last; first = stop) {
        stop = min(last, first + kRound / kPacket);
        for (int packet = first + threadIdx.x; packet < stop; packet += kUnroll * kCountThreads) {
            Packet<T> raw[kUnroll];
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int element = (packet + u * kCountThreads) * kPacket - head;
                if (packet + u * kCountThreads < stop && element >= 0 && element + kPacket <= n) {
                    const uint4 word = __ldcs(reinterpret_cast<const uint4*>(x + element));
                    raw[u] = reinterpret_cast<const Packet<T>&>(word);
                }
            }
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) {
                const int element = (packet + u * kCountThreads) * kPacket - head;
                if (packet + u * kCountThreads >= stop) break;
                const bool whole = element >= 0 && element + kPacket <= n;
                if (whole) {
                    bool alike = true;  // as in inputs of few runs: one addition instead of many to the same address
#pragma unroll
                    for (int e = 1; e < kPacket; ++e) alike &= key_of(raw[u].lane[e]) == key_of(raw[u].lane[0]);
                    const unsigned key = key_of(raw[u].lane[0]);
                    if (alike) {
                        atomicAdd(&histogram[key >> 1], (key & 1 ? 0x10000u : 1u) * kPacket);
                    } else {
#pragma unroll
                        for (int e = 0; e < kPacket; ++e) count_key(histogram, key_of(raw[u].lane[e]));
                    }
                } else {
                    for (int e = 0; e < kPacket; ++e) {
                        if (element + e >= 0 && element + e < n) count_key(histogram, key_of(x[element + e]));
                    }
                }
            }
        }
        __syncthreads();
        if (stop == last) break;
        for (int key = threadIdx.x; key < kKeys; key += kCountThreads) {
            uint16_t& counter = reinterpret_cast<uint16_t*>(histogram)[key];
            if (counter >= kKeepBelow) {
                work->move[blockIdx.x][atomicAdd(&moved, 1)] = make_uint2(key, counter);
                counter = 0;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) work->moved[blockIdx.x] = moved;
}

// The segments of this block's histogram that are not empty.
__device__ inline void publish_counts(const unsigned* histogram, KeyCounts* work) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned marks = 0;
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
        const int segment = warp * 32 + i;
        const unsigned word = histogram[segment * 32 + lane];
        if (__any_sync(~0u, word != 0)) {
            marks |= 1u << i;
            work->part[segment][blockIdx.x][lane] = word;
        }
    }
    if (lane == 0) work->marks[warp][blockIdx.x] = marks;
}

// Adds up segments blockIdx.x, blockIdx.x + kCountBlocks, … over all blocks. place: where a key is in ascending order; neighbours
// of a segment have neighbouring places. Called when all blocks have published.
template <typename Place>
__device__ inline void add_up_counts(KeyCounts* work, Place place) {
    constexpr int kOwn = (kSegments + kCountBlocks - 1) / kCountBlocks, kRows = (kCountBlocks + kCountWarps - 1) / kCountWarps;
    __shared__ unsigned sum[kOwn][kSegmentKeys];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, segment_of_lane = blockIdx.x + lane * kCountBlocks;
    for (int i = threadIdx.x; i < kOwn * kSegmentKeys; i += kCountThreads) sum[0][i] = 0;
    unsigned marked[kRows];  // which of the own segments the blocks of this warp have
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const int row = warp + r * kCountWarps;
        const bool there = row < kCountBlocks && lane < kOwn && segment_of_lane < kSegments;
        marked[r] = there ? work->marks[segment_of_lane / 32][row] >> segment_of_lane % 32 & 1 : 0;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) marked[r] = __ballot_sync(~0u, marked[r]);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        unsigned low = 0, high = 0;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            if (marked[r] >> i & 1) {
                const unsigned word = work->part[blockIdx.x + i * kCountBlocks][warp + r * kCountWarps][lane];
                low += word & 0xffff, high += word >> 16;
            }
        }
        if (low) atomicAdd(&sum[i][2 * lane], low);
        if (high) atomicAdd(&sum[i][2 * lane + 1], high);
    }
    for (int row = warp; row < kCountBlocks; row += kCountWarps) {
        for (int i = lane; i < work->moved[row]; i += 32) {
            const uint2 move = work->move[row][i];
            const int segment = move.x / kSegmentKeys;
            if (segment % kCountBlocks == int(blockIdx.x)) atomicAdd(&sum[segment / kCountBlocks][move.x % kSegmentKeys], move.y);
        }
    }
    __syncthreads();
    for (int i = warp; i < kOwn; i += kCountWarps) {
        const int segment = blockIdx.x + i * kCountBlocks, key = segment * kSegmentKeys + lane;
        if (segment >= kSegments) break;
        const unsigned first = sum[i][lane], second = sum[i][lane + 32], all = __reduce_add_sync(~0u, first + second);
        work->total[place(key)] = first;
        work->total[place(key + 32)] = second;
        if (lane == 0) work->segment[place(key) / kSegmentKeys] = all;
    }
}

}  // namespace msbench
