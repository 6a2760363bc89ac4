// How slices of a sparse matrix lie in the workspace (msbench_spmm_slices.cuh), and a warp's turn on one.
#pragma once

#include <algorithm>

#include "msbench_sparse_rows.cuh"

namespace msbench {

constexpr int kHeight = 8;       // rows of a slice
constexpr int kLongest = 120;    // entries; longer rows are wide slices
constexpr int kWideEntries = 960;  // at most, of a wide slice
constexpr int kStreams = 4;      // that share the slices of a window; a warp takes one at a time
constexpr int kSliceThreads = 256;

// Marks in the column of a last step, beyond the bits that an address keeps.
constexpr unsigned kEnd = 1u << 31, kWide = 1u << 30, kShared = 1u << 29;

struct Stream {
    int first, pairs;  // entry, and pairs of steps: an even number
};

struct LongRow {
    int row, slices;
};

struct Slices {
    uint2* entries;     // row of the tile and value; or marks | row of zeros, and row of A (or long row, or -1)
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
    __host__ __device__ int slack() const { return kHeight * (kLongest + 2 * kStreams + 4) + 2 * window + 32; }
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
    s.entries = reinterpret_cast<uint2*>(take((total + total / 8 * 3 + 3 + int64_t(s.windows) * s.slack() + 512) * sizeof(uint2)));
    s.streams = reinterpret_cast<Stream*>(take(streams * sizeof(Stream)));
    s.long_rows = reinterpret_cast<LongRow*>(take(Slices::most_long(total) * sizeof(LongRow)));
    s.sums = reinterpret_cast<float*>(take(Slices::most_long(total) * K * sizeof(float)));
    s.arrived = reinterpret_cast<unsigned*>(take(Slices::most_long(total) * tiles * sizeof(unsigned)));
    s.taken = reinterpret_cast<int*>(take(tiles * sizeof(int)));
    if (out) *out = s;
    return at;
}

// Where step j of slot g is, from a slice's first entry on.
__device__ inline int place_of(int j, int g) {
    return j / 2 * 2 * kHeight + 2 * g + j % 2;
}

// A warp's turn on one slice: lanes l and l + 8, … have slot l % 8, which has entries from, from + stride, …, `mine` of
// them. Writes `steps` steps and the last one. `mark` and `name`: of the last step.
template <typename Rows>
__device__ inline void write_slice(const Rows& A, uint2* out, int from, int stride, int mine, int steps, unsigned mark, int name) {
    constexpr int kBatch = 8;
    const int lane = threadIdx.x % 32, g = lane % kHeight, zeros = (A.cols + 1) / 2 * 2;  // an even and an odd row of zeros
    const unsigned slot = 0x01010101u << g, before = (1u << lane) - 1;
    int like = 0, unlike = 0;  // entries in columns as even as the slot, and others, so far
    for (int j0 = 0; j0 < steps; j0 += kBatch * 4) {
        Entry entry[kBatch];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            const int j = j0 + b * 4 + lane / kHeight;
            if (j < mine) entry[b] = A.entry(from + j * stride);
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
            const int j = j0 + b * 4 + lane / kHeight;
            if (j0 + b * 4 >= steps) break;
            const bool is_like = j < mine && entry[b].column % 2 == g % 2;
            const unsigned likes = __ballot_sync(~0u, is_like) & slot;
            const unsigned unlikes = __ballot_sync(~0u, j < mine && !is_like) & slot;
            uint2 written = make_uint2(zeros + (g + 1) % 2, 0);
            int place = j;
            if (j < mine) {
                written = make_uint2(entry[b].column, __float_as_uint(entry[b].value));
                place = is_like ? like + __popc(likes & before) : mine - 1 - unlike - __popc(unlikes & before);
            }
            like += __popc(likes);
            unlike += __popc(unlikes);
            if (j < steps) out[place_of(place, g)] = written;
        }
    }
    if (lane < kHeight) out[place_of(steps, g)] = make_uint2(mark | zeros, name);
}

// Two idle steps, up to which a stream with an odd number of pairs is read.
__device__ inline void write_idle(uint2* out, int zeros) {
    const int lane = threadIdx.x % 32;
    if (lane >= kHeight) return;
    out[place_of(0, lane)] = make_uint2(zeros, 0);
    out[place_of(1, lane)] = make_uint2(kEnd | zeros, ~0u);
}

// Steps of a slice whose longest row has `length` entries, with the last one: an even number.
__device__ inline int steps_of(int length) {
    return (length + 2) / 2 * 2;
}

}  // namespace msbench
