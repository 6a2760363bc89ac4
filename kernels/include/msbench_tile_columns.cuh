// The columns of a block's entries in a CSC matrix, and what is to be multiplied with each of them.
//
// Nobody searches for an entry's column: a thread a column writes the column's element of x down where the column begins, and a bit. Entries,
// which warps take 32 at a time, find the last bit before them. A tile's first column is not searched for either where columns are even, since
// it is about where its number says, and a thread a column looks at those around; who finds it elsewhere searches.
#pragma once

#include <algorithm>

#include "msbench_entries.cuh"
#include "msbench_find_line.cuh"

namespace msbench {

// What is known of all columns.
struct CscColumns {
    const int32_t* offsets;
    const scalar_t* x;
    int count;
};

// kTile: entries of a tile.
template <int kTile>
struct TileColumns {
    // One that a thread looks at.
    struct Column {
        int number, first, stop;
        scalar_t factor;

        __device__ void load(const CscColumns& all, int low, int width) {
            number = low + int(threadIdx.x);
            stop = 0;
            if (int(threadIdx.x) >= width) return;
            const int at = min(number, all.count - 1);
            first = load_once(all.offsets + at);
            stop = load_once(all.offsets + at + 1);
            factor = load_once(all.x + at);
        }
    };
    unsigned begins[kTile / 32];
    int last;  // the column of the tile's last entry
    float x[kTile];

    __device__ void clear() {
        for (int i = threadIdx.x; i < kTile / 32; i += blockDim.x) begins[i] = 0;
    }
    // By all threads of a block, after a barrier: `own` has been loaded from the column of entry `begin`, or one before it, on, by `width`
    // threads, which take more until they are at `end`. Ends with a barrier.
    __device__ void find(const CscColumns& all, Column& own, int width, int begin, int end) {
        for (int low = own.number - int(threadIdx.x);;) {
            const int until = own.number < all.count ? min(own.stop, end) - begin : 0, at = max(own.first - begin, 0);
            const bool ends = own.stop >= end;
            if (at < until) {
                const float factor = to_float(own.factor);
                x[at] = factor;
                atomicOr(begins + at / 32, 1u << at % 32);
                for (int k = (at / 32 + 1) * 32; k < until; k += 32) {
                    x[k] = factor;
                    atomicOr(begins + k / 32, 1u);
                }
                if (ends) last = own.number;
            }
            if (__syncthreads_or(ends)) return;
            own.load(all, low += width, width);
        }
    }
    // The factor of a step's entry.
    __device__ float of(int step, int lane) const {
        const unsigned here = begins[step] & (~0u >> (31 - lane));
        return x[step * 32 + 31 - __clz(here)];
    }
};

// Where blocks look first. `back`: columns before the one in which an even matrix, with `each` columns an entry, has a tile's first entry.
struct EvenColumns {
    float each;
    int back;

    // Of a matrix with `total` entries, and tiles of `tile` entries, by `width` threads.
    EvenColumns(int count, int total, int tile, int width) : each(float(count) / float(total)) {
        constexpr int kLeastBack = 32;
        back = std::max((width - int(float(tile) * each)) / 2, kLeastBack);
    }
    __device__ int low(int begin) const { return max(0, int(float(begin) * each) - back); }
};

template <int kThreads>
__device__ __noinline__ int first_column(const int32_t* offsets, int count, int entry) {
    FindLine<kThreads> search(count, entry);
    search.finish(offsets);
    return search.low;
}

// After load(all, even.low(begin), kThreads) by all kThreads of a block: loads again from the tile's first column on if they have missed it.
// `first`: whether that may be. A barrier in any case.
template <int kThreads, typename Column>
__device__ __forceinline__ void correct(const CscColumns& all, Column& own, int begin, bool first) {
    if (!__syncthreads_or(first && threadIdx.x == 0 && own.number > 0 && own.first > begin)) return;
    own.load(all, first_column<kThreads>(all.offsets, all.count, begin), kThreads);
}

}  // namespace msbench
