// Bins of rows (msbench_entry_bins.cuh), each put in order by row by the block that has it: in shared memory if its entries fit.
#pragma once

#include "msbench_entry_bins.cuh"

namespace msbench {

__device__ inline void copy_entry_async(const uint2* to, const uint2* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from) : "memory");
}

// How many entries earlier bins have, and this one.
struct BinSize {
    int before, total;
};

// Copies a bin's entries [from, from + most) to shared memory, where they are behind the next barrier.
template <int kThreads>
__device__ inline BinSize load_bin(const EntryBins& bins, int bin, uint2* items, int from, int most) {
    constexpr int kLanes = 8;  // that share the entries of a tile
    const int tid = threadIdx.x, lane = tid % 32;
    int total = 0, before = 0;
    for (int first = 0; first < bins.tiles; first += kThreads) {
        int start = 0, length = 0;
        if (first + tid < bins.tiles) {
            const unsigned short* own = bins.starts + int64_t(first + tid) * (bins.bins + 1) + bin;
            start = __ldcg(own);
            length = __ldcg(own + 1) - start;
        }
        const auto scan = block_scan(length);
        const int place = total + scan.before - from;
        total += scan.total;
        before += start;
#pragma unroll 2
        for (int j = 0; j < 32; j += 32 / kLanes) {
            const int who = j + lane / kLanes;
            const int begin = __shfl_sync(~0u, start, who), count = __shfl_sync(~0u, length, who), to = __shfl_sync(~0u, place, who);
            const uint2* const source = bins.items + int64_t(first + tid - lane + who) * bins.tile + begin;
            for (int k = lane % kLanes; k < count; k += kLanes) {
                if (unsigned(to + k) < unsigned(most)) copy_entry_async(items + to + k, source + k);
            }
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    return {block_scan(before).total, total};
}

template <int kThreads>
__device__ inline void clear_ends(int* ends) {
    ends[threadIdx.x + 1] = 0;
    if (threadIdx.x == 0) ends[0] = 0;
}

// `ends` [kThreads + 1], behind whose first element are counts of rows: there is now where rows begin.
template <int kThreads>
__device__ inline void begin_rows(int* ends) {
    __syncthreads();
    const int before = block_scan(ends[threadIdx.x + 1]).before;
    ends[threadIdx.x + 1] = before;
    __syncthreads();
}

// Puts `count` entries in order by row, in place. `ends` [kThreads + 1]: zeros, and then row r ends at ends[r + 1].
template <int kThreads, int kMost>
__device__ inline void sort_bin(uint2* items, int count, int* ends) {
    constexpr int kEach = kMost / kThreads;
    uint2 item[kEach];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int at = i * kThreads + int(threadIdx.x);
        if (at >= count) continue;
        item[i] = items[at];
        atomicAdd(&ends[(item[i].x >> kColumnBits) + 1], 1);
    }
    begin_rows<kThreads>(ends);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (i * kThreads + int(threadIdx.x) < count) items[atomicAdd(&ends[(item[i].x >> kColumnBits) + 1], 1)] = item[i];
    }
    __syncthreads();
}

// The same out of memory, for bins of any size: a warp has a tile at a time.
template <int kThreads>
__device__ __noinline__ void sort_large_bin(const EntryBins& bins, int bin, uint2* to, int* ends) {
    const auto walk = [&](auto take) {
        for (int t = threadIdx.x / 32; t < bins.tiles; t += kThreads / 32) {
            const unsigned short* own = bins.starts + int64_t(t) * (bins.bins + 1) + bin;
            const int end = __ldcg(own + 1);
#pragma unroll 4
            for (int k = __ldcg(own) + threadIdx.x % 32; k < end; k += 32) take(__ldcg(bins.items + int64_t(t) * bins.tile + k));
        }
    };
    walk([&](uint2 item) { atomicAdd(&ends[(item.x >> kColumnBits) + 1], 1); });
    begin_rows<kThreads>(ends);
    walk([&](uint2 item) { __stcg(to + atomicAdd(&ends[(item.x >> kColumnBits) + 1], 1), item); });
    __syncthreads();
}

// Rows of a bin, as a power of two: so many that `most` entries are enough for it if rows are about as long.
inline int bin_shift(int64_t rows, int64_t total, int64_t most, int largest) {
    int shift = largest;
    while (shift > 0 && (total << shift) > rows * most / 10 * 9) --shift;
    return shift;
}

// Rows of a bin in order, by their numbers in the matrix.
struct BinRows {
    const uint2* items;
    const int* ends;  // row0 + r ends at ends[r + 1]
    int row0, before, rows, cols;

    __device__ int begin(int row) const { return before + ends[row - row0]; }
    __device__ int count(int row) const { return ends[row - row0 + 1] - ends[row - row0]; }
    __device__ Entry entry(int k) const {
        const uint2 item = items[k - before];
        return {int(item.x & kColumnMask), __uint_as_float(item.y)};
    }
};

}  // namespace msbench
