// Finding the row or column of an entry in a compressed matrix by a whole block: kThreads probes a step instead of one.
#pragma once

#include "msbench.cuh"

namespace msbench {

// offsets[low] <= entry < offsets[high] throughout, and done when the two are neighbours: two steps of 512 probes for
// 2¹⁸ lines. A step is two calls, between which a thread has other work under way:
//     const bool before = find.probe(offsets); … find.narrow(__syncthreads_count(before));
template <int kThreads>
struct FindLine {
    int low, high, entry, stride;

    __device__ FindLine(int lines, int entry) : low(0), high(lines), entry(entry), stride(1) {}
    __device__ bool done() const { return high - low <= 1; }
    // `offsets`: a pointer, or what else has ascending numbers of lines.
    template <typename Offsets>
    __device__ bool probe(const Offsets& offsets) {
        stride = (high - low + kThreads - 1) / kThreads;
        const int at = low + (int(threadIdx.x) + 1) * stride;
        return at < high && offsets[at] <= entry;
    }
    __device__ void narrow(int before) {
        low += before * stride;
        high = min(high, low + stride);
    }
    __device__ void finish(const int32_t* offsets) {
        while (!done()) {
            const bool before = probe(offsets);
            narrow(__syncthreads_count(before));
        }
    }
};

// The lines of a block's entries [begin, end) of a compressed matrix: found once, then among those of the block. `scratch`:
// kThreads ints of shared memory; there may be more lines than that if most are empty, which are then searched in memory.
template <int kThreads>
struct LinesOfTile {
    int first, count;
    const int* ends;  // of lines first, first + 1, …

    __device__ LinesOfTile(const int32_t* offsets, int lines, int begin, int end, int* scratch)
        : LinesOfTile(FindLine<kThreads>(lines, begin), offsets, lines, end, scratch) {}
    // With a search for the tile's first line that may be under way.
    __device__ LinesOfTile(FindLine<kThreads> find, const int32_t* offsets, int lines, int end, int* scratch) {
        find.finish(offsets);
        first = find.low;
        const int own_end = offsets[min(first + 1 + int(threadIdx.x), lines)];
        scratch[threadIdx.x] = own_end;
        const int ended = __syncthreads_count(own_end < end);  // lines that end before the tile does
        const bool all = ended < kThreads;
        ends = all ? scratch : offsets + first + 1;
        count = all ? ended : lines - first;
    }
    // Of at most kThreads lines, of which each thread knows where its own ends; threads beyond them have a number that no entry reaches.
    __device__ LinesOfTile(int own_end, int begin, int end, int* scratch) : ends(scratch) {
        first = __syncthreads_count(own_end <= begin);
        if (int(threadIdx.x) >= first) scratch[threadIdx.x - first] = own_end;
        count = __syncthreads_count(own_end < end) - first;
    }
    __device__ int operator()(int entry) const {
        int low = 0, high = count;  // how many lines end at or before this entry
        while (low < high) {
            const int middle = (low + high) / 2;
            if (ends[middle] <= entry) low = middle + 1;
            else high = middle;
        }
        return first + low;
    }
};

}  // namespace msbench
