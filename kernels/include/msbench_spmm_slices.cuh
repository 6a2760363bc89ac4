// A sparse matrix as slices of 16 rows whose entries are interleaved: what spmm_tiles streams past a tile of X.
//
// A block sorts a window of rows by length, so that rows of a slice are about as long, and writes the slices' entries in steps, one
// of each row; two steps are 16 x 16 bytes. Within a row entries in columns as even as the row's slot come first: rows of a tile are
// 64 bytes, two share the banks of shared memory, and so slots of both kinds are read at once; of a slice's rows the one with the most even columns
// goes with the one with the fewest, which leaves conflicts to 7 % of the steps, and not 12. Rows with fewer entries than their
// slice are padded with entries whose row of X is zeros, so that NaN and infinity come out where they should. The last two steps are marked, and
// the rows' numbers lie where the slice begins. Rows of more than kLongest entries become slices of their own ("wide"), or several, with an
// sixteenth in each slot.
#pragma once

#include <type_traits>

#include "msbench_prefetch.cuh"
#include "msbench_scan.cuh"
#include "msbench_slice_layout.cuh"

namespace msbench {

// By warps in turn: the long rows of window w where sums are added up in memory. Their slices, all of whose slots have the row's number, end the
// window's last stream, which begins with pair `start`; they begin at `place`.
template <typename Rows>
__device__ inline void slice_long_rows(const Rows& A, const Slices& out, int w, int start, int place, const int* long_rows, int count) {
    constexpr int kWarps = kSliceThreads / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane % kHeight;
    int turn = 0;
    for (int i = 0; i < count; ++i) {
        const int row = long_rows[i], from = A.begin(row), entries = A.count(row);
        for (int begins = 0; begins < entries; begins += kWideEntries, ++turn) {
            const int have = min(kWideEntries, entries - begins), steps = steps_of((have + kHeight - 1) / kHeight);
            if (turn % kWarps == warp) write_slice(A, out, place, from + begins + g, kHeight, (have - g + kHeight - 1) / kHeight, steps, row);
            place += steps / 2;
        }
    }
    if (warp > 0) return;
    if ((place - start) % 2) write_idle(out, place, (A.cols + 1) / 2 * 2);
    if (lane == 0) out.streams[w * kStreams + kStreams - 1] = {start / 2, (place - start + 1) / 2, 0, 0};
}

// Long rows from pair `place` on, each as wide slices with streams of their own. Places are counted by each warp.
template <typename Rows>
__device__ inline void slice_wide_rows(const Rows& A, const Slices& out, int place, const int* long_rows, int long_count) {
    constexpr int kWarps = kSliceThreads / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane % kHeight, zeros = (A.cols + 1) / 2 * 2;
    int turn = 0;
    for (int i = 0; i < long_count; ++i) {
        const int long_row = long_rows[i], from = A.begin(long_row), entries = A.count(long_row);
        const int wide = (entries + kWideEntries - 1) / kWideEntries;
        int name = long_row;
        if (wide > 1 && turn % kWarps == warp) {  // the warp that has its first slice
            if (lane == 0) name = atomicAdd(&long_in_use, 1);
            name = __shfl_sync(~0u, name, 0);
            if (lane == 0) out.long_rows[name] = {long_row, wide};
            for (int64_t k = lane; k < out.K; k += 32) out.sums[name * out.K + k] = 0;
            for (int t = lane; t < out.tiles; t += 32) out.arrived[name * int64_t(out.tiles) + t] = 0;
        }
        for (int k = 0; k < wide; ++k) {
            // A row in several slices is one warp's, which knows its name.
            const bool is_mine = turn % kWarps == warp;
            const int begins = k * kWideEntries, have = min(kWideEntries, entries - begins);
            const int steps = steps_of((have + kHeight - 1) / kHeight);
            if (is_mine) {
                write_slice(A, out, place, from + begins + g, kHeight, (have - g + kHeight - 1) / kHeight, steps, name);
                if (steps % 4) write_idle(out, place + steps / 2, zeros);
                if (lane == 0)
                    out.streams[out.windows * kStreams + atomicAdd(&wide_in_use, 1)] = {place / 2, whole_units(steps) / 4, name, wide > 1};
            }
            place += whole_units(steps) / 2;
        }
        ++turn;
    }
}

// Asks for a window's entries, in arrays in memory, before its rows are in order; not for more than slices of their own would have.
template <typename Rows>
__device__ __forceinline__ void ask_for_entries(const Rows& A, int begin, int end) {
    if constexpr (std::is_same_v<Rows, CsrRows> || std::is_same_v<Rows, EllRows>) {
        const int count = min(end - begin, kSliceThreads * kLongest);
#pragma unroll 1
        for (int first = 0; first < count; first += kSliceThreads * 8) {  // a sector of columns for each thread
            prefetch_sector(A.columns + begin + first, count - first, threadIdx.x);
            prefetch_sector(A.values + begin + first, count - first, threadIdx.x);
        }
    }
}

// By a block: the slices of its window. `kAdded`: sums are added up in memory, and rows without entries need none.
template <bool kAdded, typename Rows>
__device__ inline void slice_window(const Rows& A, const Slices& out) {
    constexpr int kBins = kLongest + 1, kWarps = kSliceThreads / 32;
    __shared__ int bins[kBins], long_count, long_rows[kSliceThreads];
    __shared__ unsigned char order[kSliceThreads], length[kSliceThreads];  // of the rows in order
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, window = out.window;
    const int w = blockIdx.x, row0 = w * window, row = row0 + tid, zeros = (A.cols + 1) / 2 * 2;
    if (tid < kBins) bins[tid] = 0;
    if (tid == 0) long_count = 0;
    for (int i = blockIdx.x * kSliceThreads + tid; i < out.tiles; i += gridDim.x * kSliceThreads) out.taken[i] = 0;
    const int begin = A.begin(row0), end = A.begin(min(row0 + window, A.rows));
    constexpr bool kKnown = std::is_same_v<Rows, EllRows>;  // where entries are, without a trip to memory
    if constexpr (kKnown) ask_for_entries(A, begin, end);
    const int count = tid < window && row < A.rows ? A.count(row) : 0;
    if constexpr (!kKnown) ask_for_entries(A, begin, end);
    const bool is_long = count > kLongest;
    const int key = is_long ? 0 : count;
    __syncthreads();
    const int rank = tid < window ? atomicAdd(&bins[kLongest - key], 1) : 0;
    if (is_long) long_rows[atomicAdd(&long_count, 1)] = row;
    __syncthreads();
    const int start_of_bin = block_scan(tid < kBins ? bins[tid] : 0).before;
    if (tid < kBins) bins[tid] = start_of_bin;
    __syncthreads();
    if (tid < window) {
        const int at = bins[kLongest - key] + rank;
        order[at] = tid;
        length[at] = is_long ? 255 : key;
    }
    __syncthreads();

    // Lane l knows slice l in the order of the streams, which take slices in turn, and begin with whole units.
    const int slices = window / kHeight, each = slices / kStreams, t = lane / each;
    const int own_slice = lane % each * kStreams + t;
    const int longest = lane < slices ? length[own_slice * kHeight] : 0;
    const int own = lane < slices ? steps_of(longest == 255 ? 0 : longest) : 0;
    const int sum = warp_inclusive(own);
    const int earlier = __shfl_sync(~0u, sum, (t * each + 31) % 32);
    const int until = __shfl_sync(~0u, sum, (t * each + each - 1) % 32);
    const int stream_steps = until - (t == 0 ? 0 : earlier);
    int base = 0, all = 0;
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
        const int other = whole_units(__shfl_sync(~0u, stream_steps, k * each));
        if (k < t) base += other;
        all += other;
    }
    const int first = (int((Slices::padded(begin) + kUnit - 1) / kUnit * kUnit) + w * out.slack()) / (2 * kHeight);
    const int start = first + (base + sum - own - (t == 0 ? 0 : earlier)) / 2;
    if (warp == 0 && lane < slices && lane % each == 0 && !(kAdded && lane == slices - each))
        out.streams[w * kStreams + t] = {start / 2, whole_units(stream_steps) / 4, 0, 0};
    const int g = lane % kHeight;
    for (int s = warp; s < slices; s += kWarps) {
        const int pair = __shfl_sync(~0u, start, s), steps = __shfl_sync(~0u, own, s), slot = __shfl_sync(~0u, own_slice, s) * kHeight + g;
        const int in_stream = __shfl_sync(~0u, stream_steps, s);
        const bool is_row = length[slot] != 255 && row0 + order[slot] < A.rows;
        const int mine = is_row ? length[slot] : 0, own_row = row0 + order[slot];
        write_slice(A, out, pair, mine > 0 ? A.begin(own_row) : 0, 1, mine, steps, mine > 0 || (is_row && !kAdded) ? own_row : -1);
        if (s % each == each - 1 && in_stream % 4 && !(kAdded && s == slices - 1)) write_idle(out, pair + steps / 2, zeros);
    }

    // Long rows, behind the slices.
    if constexpr (kAdded) {
        const int last = __shfl_sync(~0u, start, slices - each), steps = __shfl_sync(~0u, stream_steps, slices - each);
        slice_long_rows(A, out, w, last, last + steps / 2, long_rows, long_count);
    } else {
        slice_wide_rows(A, out, first + all / 2, long_rows, long_count);
    }
}

template <typename Rows>
__global__ void __launch_bounds__(kSliceThreads)
    slice_rows(const __grid_constant__ Rows A, const __grid_constant__ Slices out) {
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();  // tiles of X may be staged meanwhile
    slice_window<false>(A, out);
}

}  // namespace msbench
