// Entries of a matrix in COO or CSC brought together by bins of neighbouring rows, in one launch; what reads a bin puts its rows in order
// in shared memory (msbench_sorted_bins.cuh).
//
// A block orders a tile of entries by bins in shared memory and stores them next to each other, with the places where bins begin.
// Row in the bin and column share a word: an entry is 8 bytes, and moves once. msbench_row_bins.cuh has bins of up to 4096 rows,
// always 256 of them; here bins are as small as what a block holds, so there may be thousands.
//
// Columns may be cut into chunks: then the rows of each chunk are rows of their own, `pad` apart.
//
// Bound: 14 bytes read and 8 written an entry (fp32; COO), with all loads of a thread under way at once.
#pragma once

#include <type_traits>

#include "msbench_find_line.cuh"
#include "msbench_launch.cuh"
#include "msbench_scan.cuh"
#include "msbench_sparse_rows.cuh"

namespace msbench {

struct CooMatrix {
    const scalar_t* values;
    const int32_t *row_indices, *col_indices;
    int rows, cols, total;
};

struct CscMatrix {
    const scalar_t* values;
    const int32_t *row_indices, *offsets;
    int rows, cols, total;
};

struct EllMatrix {
    const scalar_t* values;
    const int32_t* columns;
    int rows, cols, width, total;
};

constexpr int kColumnBits = 18;  // of 32; the others are a row's number in its bin, of at most 256
constexpr unsigned kColumnMask = (1u << kColumnBits) - 1;

struct EntryBins {
    uint2* items;            // [tiles][tile]: row in the bin and column, and value
    unsigned short* starts;  // [tiles][bins + 1]: where a bin begins in a tile
    int tile, tiles, bins, shift;  // a bin has 2^shift rows
    int chunk, pad;                // columns of a chunk; rows of each

    static int tile_of(int64_t total) { return total <= 1 << 17 ? 512 : total <= 1 << 20 ? 4096 : 16384; }
    static size_t bytes(int64_t rows, int64_t total, int shift) {
        const size_t tile = tile_of(total), tiles = ceil_div(total, tile);
        return tiles * (tile * sizeof(uint2) + (((rows - 1) >> shift) + 2) * sizeof(short)) + 256;
    }
    // `rows`: of all chunks together.
    EntryBins(void* workspace, int64_t rows, int64_t total, int shift, int chunk = 1 << kColumnBits, int pad = 0)
        : items(static_cast<uint2*>(workspace)),
          tile(tile_of(total)),
          tiles(int(ceil_div(total, tile))),
          bins(int((rows - 1) >> shift) + 1),
          shift(shift),
          chunk(chunk),
          pad(pad) {
        starts = reinterpret_cast<unsigned short*>(items + int64_t(tiles) * tile);
    }
};

// Starts of bins from their counts, in place and to `starts`.
template <int kThreads>
__device__ inline void place_bins(int* counts, int bins, unsigned short* starts) {
    int earlier = 0;
    for (int first = 0; 4 * first < bins; first += kThreads) {
        const int i = first + int(threadIdx.x);
        const int4 count = 4 * i < bins ? reinterpret_cast<const int4*>(counts)[i] : make_int4(0, 0, 0, 0);
        const auto scan = block_scan(count.x + count.y + count.z + count.w);
        int at[4] = {earlier + scan.before};
        at[1] = at[0] + count.x;
        at[2] = at[1] + count.y;
        at[3] = at[2] + count.z;
        earlier += scan.total;
        if (4 * i >= bins) continue;
        reinterpret_cast<int4*>(counts)[i] = make_int4(at[0], at[1], at[2], at[3]);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if (4 * i + k < bins) starts[4 * i + k] = static_cast<unsigned short>(at[k]);
        }
    }
    if (threadIdx.x == 0) starts[bins] = static_cast<unsigned short>(earlier);
    __syncthreads();
}

template <typename Matrix, int kThreads, int kEach, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    bin_tiles(const __grid_constant__ Matrix A, const __grid_constant__ EntryBins bins) {
    constexpr bool kCsc = std::is_same_v<Matrix, CscMatrix>, kEll = std::is_same_v<Matrix, EllMatrix>;
    constexpr int kTile = kThreads * kEach, kNear = 8;
    extern __shared__ __align__(16) char memory[];
    uint2* const items = reinterpret_cast<uint2*>(memory);
    int* const counts = reinterpret_cast<int*>(items + kTile);
    __shared__ int ends[kCsc ? kThreads : 1];
    cudaTriggerProgrammaticLaunchCompletion();  // what comes next waits for this kernel's end, but need not be launched then
    const int tid = threadIdx.x, begin = blockIdx.x * kTile, end = min(begin + kTile, A.total);
    const int first = begin + tid / 32 * 32 * kEach + tid % 32;  // a warp has neighbours throughout
    unsigned key[kEach], place[kEach];
    float value[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        const int at = first + i * 32;
        if (at >= end) continue;
        if constexpr (kEll) key[i] = load_once(A.columns + at), place[i] = at / A.width;
        else place[i] = load_once(A.row_indices + at);
        if constexpr (!kCsc && !kEll) key[i] = load_once(A.col_indices + at);
        value[i] = to_float(load_once(A.values + at));
    }
    for (int i = tid; 4 * i < bins.bins; i += kThreads) reinterpret_cast<int4*>(counts)[i] = make_int4(0, 0, 0, 0);
    if constexpr (kCsc) {
        const LinesOfTile<kThreads> columns(A.offsets, A.cols, begin, end, ends);
        int line = 0;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const int at = first + i * 32;
            if (at >= end) continue;
            // The next column is near the last one, unless most are empty.
            int steps = i == 0 ? kNear : 0;
            while (steps < kNear && line < columns.count && columns.ends[line] <= at) ++line, ++steps;
            if (steps == kNear) line = columns(at) - columns.first;
            key[i] = columns.first + line;
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (first + i * 32 >= end) continue;
        if (kEll && int(key[i]) < 0) continue;  // padding
        const unsigned chunk = bins.pad > 0 ? key[i] / unsigned(bins.chunk) : 0, row = place[i] + chunk * bins.pad, bin = row >> bins.shift;
        key[i] = (key[i] - chunk * bins.chunk) | (row & ((1u << bins.shift) - 1)) << kColumnBits;
        place[i] = bin << 16 | atomicAdd(&counts[bin], 1);
    }
    __syncthreads();
    place_bins<kThreads>(counts, bins.bins, bins.starts + int64_t(blockIdx.x) * (bins.bins + 1));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        if (kEll && int(key[i]) < 0) continue;
        if (first + i * 32 < end) items[counts[place[i] >> 16] + (place[i] & 0xffff)] = make_uint2(key[i], __float_as_uint(value[i]));
    }
    __syncthreads();
    // What lies beyond the total is copied, too, and never read.
    uint4* const to = reinterpret_cast<uint4*>(bins.items + begin);
    for (int i = tid; i < kTile / 2; i += kThreads) __stcg(to + i, reinterpret_cast<const uint4*>(items)[i]);
}

template <int kThreads, int kEach, int kBlocks, typename Matrix>
cudaError_t launch_bins(const Matrix& A, const EntryBins& bins, cudaStream_t stream) {
    return Launch(bins.tiles, kThreads, stream).shared(kThreads * kEach * sizeof(uint2) + ceil_div(bins.bins, 4) * sizeof(int4))(
        bin_tiles<Matrix, kThreads, kEach, kBlocks>, A, bins);
}

template <typename Matrix>
cudaError_t bin_entries(const Matrix& A, const EntryBins& bins, cudaStream_t stream) {
    if (bins.tile == 512) return launch_bins<256, 2, 4>(A, bins, stream);
    if (bins.tile == 4096) return launch_bins<512, 8, 2>(A, bins, stream);
    return launch_bins<1024, 16, 1>(A, bins, stream);
}

}  // namespace msbench
