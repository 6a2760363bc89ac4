// A sparse matrix as slices of eight rows whose entries are interleaved: what spmm_tiles streams past a tile of X.
//
// A block sorts a window of rows by length, so that rows of a slice are about as long, and writes the slices' entries in steps, one
// of each row; two steps are 8 x 16 bytes. Within a row entries in columns as even as the row's slot come first: rows of a tile are
// 64 bytes, two share the banks of shared memory, and so slots of both kinds are read at once. Rows with fewer entries than their
// slice are padded with entries whose row of X is zeros, so that NaN and infinity come out where they should. A last step has
// the rows' numbers. Rows of more than kLongest entries become slices of their own ("wide"), or several, with an eighth in each slot.
#pragma once

#include "msbench_scan.cuh"
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

// Places the arrays in the workspace, of which it returns the size.
inline size_t place_slices(void* base, int64_t rows, int64_t total, int64_t K, int tiles, Slices* out) {
    size_t at = 0;
    const auto take = [&](size_t bytes) {
        const size_t here = at;
        at += (bytes + 255) / 256 * 256;
        return static_cast<char*>(base) + here;
    };
    Slices s;
    s.K = K;
    s.tiles = tiles;
    s.window = rows < 8192 ? kSliceThreads / 4 : kSliceThreads;
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

template <typename Rows>
__global__ void __launch_bounds__(kSliceThreads)
    slice_rows(const __grid_constant__ Rows A, const __grid_constant__ Slices out) {
    constexpr int kBins = kLongest + 1, kWarps = kSliceThreads / 32;
    __shared__ int bins[kBins], long_count, long_rows[kSliceThreads];
    __shared__ unsigned char order[kSliceThreads], length[kSliceThreads];  // of the rows in order
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, window = out.window;
    const int w = blockIdx.x, row0 = w * window, row = row0 + tid, zeros = (A.cols + 1) / 2 * 2;
    if (tid < kBins) bins[tid] = 0;
    if (tid == 0) long_count = 0;
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();  // tiles of X may be staged meanwhile
    for (int i = blockIdx.x * kSliceThreads + tid; i < out.tiles; i += gridDim.x * kSliceThreads) out.taken[i] = 0;
    const int count = tid < window && row < A.rows ? A.count(row) : 0;
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

    // Lane l knows slice l in the order of the streams, which take slices in turn.
    const int slices = window / kHeight, each = slices / kStreams;
    const int own_slice = lane % each * kStreams + lane / each;
    const int longest = lane < slices ? length[own_slice * kHeight] : 0;
    const int own = lane < slices ? steps_of(longest == 255 ? 0 : longest) : 0;
    const int sum = warp_inclusive(own);
    const int64_t begin = A.begin(row0);
    const int first = int((begin + begin * 3 / 8 + 31) / 32 * 32) + w * out.slack();
    const int start = first + (sum - own + lane / each * 2) * kHeight;
    const int until = __shfl_sync(~0u, sum, lane / each * each + each - 1);
    if (warp == 0 && lane < slices && lane % each == 0)
        out.streams[w * kStreams + lane / each] = {start, ((until - (sum - own)) / 2 + 1) / 2 * 2};
    const int g = lane % kHeight;
    for (int s = warp; s < slices; s += kWarps) {
        uint2* to = out.entries + __shfl_sync(~0u, start, s);
        const int steps = __shfl_sync(~0u, own, s) - 1, slot = __shfl_sync(~0u, own_slice, s) * kHeight + g;
        const bool is_row = length[slot] != 255 && row0 + order[slot] < A.rows;
        const int mine = is_row ? length[slot] : 0, own_row = row0 + order[slot];
        write_slice(A, to, mine > 0 ? A.begin(own_row) : 0, 1, mine, steps, kEnd, is_row ? own_row : -1);
        if (s % each == each - 1) write_idle(to + (steps + 1) * kHeight, zeros);
    }

    // Long rows, behind the slices: their places are counted by each warp.
    int place = first + (__shfl_sync(~0u, sum, 31) + 2 * kStreams) * kHeight, turn = 0;
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
            const int steps = steps_of((have + kHeight - 1) / kHeight) - 1;
            if (is_mine) {
                write_slice(A, out.entries + place, from + begins + g, kHeight, (have - g + kHeight - 1) / kHeight, steps,
                            kEnd | kWide | (wide > 1 ? kShared : 0), name);
                write_idle(out.entries + place + (steps + 1) * kHeight, zeros);
                if (lane == 0)
                    out.streams[out.windows * kStreams + atomicAdd(&wide_in_use, 1)] = {place, ((steps + 1) / 2 + 1) / 2 * 2};
            }
            place += (steps + 3) * kHeight;
        }
        ++turn;
    }
}

}  // namespace msbench
