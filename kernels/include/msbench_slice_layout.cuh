// How slices of a sparse matrix lie in the workspace (msbench_spmm_slices.cuh), and a warp's turn on one.
//
// Two steps of a slice are a pair, 16 bytes a slot: a column and a value, twice. Two pairs are a unit, which streams have whole numbers of.
#pragma once

#include <algorithm>

#include "msbench_sparse_rows.cuh"

namespace msbench {

constexpr int kHeight = 16;             // rows of a slice
constexpr int kRowLanes = 32 / kHeight;  // that write or multiply a row
constexpr int kLongest = 120;            // entries; longer rows are wide slices
constexpr int kWideEntries = 960;        // at most, of a wide slice
constexpr int kStreams = 4;              // that share the slices of a window; a warp takes one at a time
constexpr int kSliceThreads = 256;

constexpr int kPairBytes = 16 * kHeight, kUnitBytes = 2 * kPairBytes, kUnit = 4 * kHeight;  // entries of a unit
static_assert(kRowLanes == 2, "a pair has as many entries as a warp has lanes");

// A mark in the columns of a slice's last pair, beyond the bits that an offset in shared memory keeps.
constexpr unsigned kEnd = 1u << 31;

struct Stream {
    int first, units;  // unit
    int name;          // of a wide slice: row, or long row
    int shared;        // whether that is a long row
};

struct LongRow {
    int row, slices;
};

struct Slices {
    char* entries;
    int* names;         // [pair][slot], where a slice begins with that pair: row of A or -1
    Stream* streams;    // [windows * kStreams], then those of wide slices
    LongRow* long_rows;
    float* sums;        // [long row][K] for rows in several wide slices
    unsigned* arrived;  // [long row][tiles]
    int* taken;         // streams, per tile
    int window, windows, tiles;
    int64_t K;

    // How many there can be of each, of `total` entries.
    static int64_t most_wide(int64_t total) { return total / kLongest + 1; }
    static int64_t most_long(int64_t total) { return total / kWideEntries + 1; }
    __host__ __device__ int slack() const { return (kHeight * (kLongest + 2 * kStreams + 8) + 2 * window + 32) / kUnit * kUnit + kUnit; }
    // Where the entries behind `n` begin: wide slices waste less than half of each.
    __host__ __device__ static int64_t padded(int64_t n) { return n + n / 2; }
};

// Wide slices and long rows in use. Zero between calls, which share it if they overlap: one stream at a time.
static __device__ int wide_in_use, long_in_use;

// Places the arrays in the workspace, of which it returns the size. `window`: another one than what suits `rows`.
inline size_t place_slices(void* base, int64_t rows, int64_t total, int64_t K, int tiles, Slices* out, int window = 0) {
    size_t at = 0;
    const auto take = [&](size_t bytes) {
        const size_t here = at;
        at += (bytes + 255) / 256 * 256;
        return static_cast<char*>(base) + here;
    };
    Slices s;
    s.K = K;
    s.tiles = tiles;
    s.window = window > 0 ? window : rows < 8192 ? kSliceThreads / 4 : kSliceThreads;
    s.windows = int(ceil_div(rows, s.window));
    const int64_t streams = int64_t(s.windows) * kStreams + Slices::most_wide(total);
    const int64_t places = (Slices::padded(total) + int64_t(s.windows) * s.slack() + 512 + 2 * kUnit) / kUnit * kUnit;
    s.entries = take(places / kUnit * kUnitBytes);
    s.names = reinterpret_cast<int*>(take(places / 2 * sizeof(int)));
    s.streams = reinterpret_cast<Stream*>(take(streams * sizeof(Stream)));
    s.long_rows = reinterpret_cast<LongRow*>(take(Slices::most_long(total) * sizeof(LongRow)));
    s.sums = reinterpret_cast<float*>(take(Slices::most_long(total) * K * sizeof(float)));
    s.arrived = reinterpret_cast<unsigned*>(take(Slices::most_long(total) * tiles * sizeof(unsigned)));
    s.taken = reinterpret_cast<int*>(take(tiles * sizeof(int)));
    if (out) *out = s;
    return at;
}

// Writes an entry of a slot, in step j from a pair on.
__device__ inline void write_entry(char* entries, int pair, unsigned j, int slot, unsigned column, float value) {
    char* const at = entries + int64_t(pair) * kPairBytes + slot * 16;
    *reinterpret_cast<uint2*>(at + (j / 2 * kPairBytes + j % 2 * 8)) = make_uint2(column, __float_as_uint(value));
}

// A warp's turn on one slice: lanes l and l + kHeight have row l % kHeight, which has entries from, from + stride, …, `mine` of
// them. Writes `steps` steps from `pair` on, an even number. `name`: of the row.
//
// The row's columns are even or odd by a word of 32 steps, of which an entry's place takes one count of bits. Votes of the warp for each step
// were as many instructions again, which blocks of few rows wait for.
template <typename Rows>
__device__ inline void write_slice(const Rows& A, const Slices& out, int pair, int from, int stride, int mine, int steps, int name) {
    constexpr int kBatch = kHeight, kAtOnce = 32;
    const int lane = threadIdx.x % 32, g = lane % kHeight, half = lane / kHeight;
    const unsigned zeros = (A.cols + 1) / 2 * 2;  // an even and an odd row of zeros
    int slot = g, like = 0, unlike = 0;  // entries in columns as even as the slot, and others, so far
    for (int j0 = 0; j0 < steps; j0 += kAtOnce) {
        const int have = min(max(mine - j0, 0), kAtOnce);
        Entry entry[kBatch];
        unsigned odd = 0;  // bit 2 b of the lane's entry b, then bit j of step j
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            entry[b] = {0, 0.0f};
            if (2 * b < have - half) entry[b] = A.entry(from + (j0 + 2 * b + half) * stride);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) odd |= (entry[b].column & 1u) << 2 * b;
        odd <<= half;
        odd |= __shfl_xor_sync(~0u, odd, kHeight);
        const unsigned all = have == 32 ? ~0u : (1u << have) - 1;
        if (steps <= kAtOnce) {
            // The row with the most even columns shares banks with the one that has the fewest.
            const int order = __popc(all & ~odd) * kHeight - g;
            int rank = 0;
#pragma unroll
            for (int i = 0; i < kHeight; ++i) rank += __shfl_sync(~0u, order, i) > order;
            slot = rank < kHeight / 2 ? 2 * rank : 2 * (kHeight - 1 - rank) + 1;
        }
        const unsigned likes = (slot % 2 ? odd : ~odd) & all, shifted = half ? likes : likes << 1;  // bit 2 b + 1 of the lane's entry b
        const int last = mine - 1 - unlike - half;
        const unsigned padding = zeros + (slot + 1) % 2;
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            if (j0 + 2 * b >= steps) break;
            const bool is_entry = 2 * b < have - half;
            const int before = __popc(shifted & ((2u << 2 * b) - 1));
            const int place = before + (shifted >> (2 * b + 1) & 1 ? like : last - 2 * b);
            const int step = is_entry ? place : j0 + 2 * b + half;
            const unsigned column = is_entry ? entry[b].column : padding;
            write_entry(out.entries, pair, step, slot, step >= steps - 2 ? column | kEnd : column, entry[b].value);
        }
        like += __popc(likes);
        unlike += have - __popc(likes);
    }
    if (lane < kHeight) out.names[pair * kHeight + slot] = name;
}

// An idle pair, up to which a stream with an odd number of pairs is read.
__device__ inline void write_idle(const Slices& out, int pair, int zeros) {
    const int lane = threadIdx.x % 32;
    write_entry(out.entries, pair, lane / kHeight, lane % kHeight, zeros, 0.0f);
}

// Steps of a slice whose longest row has `length` entries: an even number.
__device__ inline int steps_of(int length) {
    return max(2, (length + 1) / 2 * 2);
}

__device__ inline int whole_units(int steps) {
    return (steps + 3) / 4 * 4;
}

}  // namespace msbench
