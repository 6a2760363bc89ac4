// Entries of a matrix in COO or CSC brought together by rows, in the workspace: two launches, through bins of rows.
//
// The second kernel's blocks have a bin each: they count its rows' entries, write where rows begin, and put every entry in its place.
// Entries of a row come in no particular order.
#pragma once

#include "msbench_find_line.cuh"
#include "msbench_row_bins.cuh"
#include "msbench_sparse_rows.cuh"

namespace msbench {

__device__ inline Entry load_item(const Entry* p) {
    const int2 raw = __ldcg(reinterpret_cast<const int2*>(p));
    return {raw.x, __int_as_float(raw.y)};
}

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

template <typename Matrix, int kThreads>
__global__ void __launch_bounds__(kThreads, kThreads == 768 ? 2 : 4)
    bin_entries(const __grid_constant__ Matrix A, const __grid_constant__ RowBins<Entry, kThreads> bins) {
    using Bins = RowBins<Entry, kThreads>;
    constexpr bool kCsc = std::is_same_v<Matrix, CscMatrix>;
    struct Scratch {
        TileScratch<Entry, kThreads> tile;
        int ends[kThreads];
    };
    extern __shared__ __align__(16) char memory[];
    Scratch& scratch = *reinterpret_cast<Scratch*>(memory);
    const int begin = blockIdx.x * Bins::kTile, end = min(begin + Bins::kTile, A.total);
    int row[Bins::kEach];
    Entry entry[Bins::kEach];
#pragma unroll
    for (int i = 0; i < Bins::kEach; ++i) {
        const int at = begin + i * kThreads + int(threadIdx.x);
        row[i] = -1;
        if (at < end) {
            row[i] = load_once(A.row_indices + at);
            entry[i].value = to_float(load_once(A.values + at));
            if constexpr (!kCsc) entry[i].column = load_once(A.col_indices + at);
        }
    }
    if constexpr (kCsc) {
        const LinesOfTile<kThreads> columns(A.offsets, A.cols, begin, end, scratch.ends);
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            if (row[i] >= 0) entry[i].column = columns(begin + i * kThreads + int(threadIdx.x));
        }
    }
    store_tile(bins, blockIdx.x, row, entry, scratch.tile);
}

constexpr int kSortThreads = 768, kMostBinRows = 1024;

template <int kThreads>
__global__ void __launch_bounds__(kSortThreads, 2)
    sort_bins(const __grid_constant__ RowBins<Entry, kThreads> bins, Entry* entries, int32_t* offsets, int rows, int total) {
    __shared__ int places[kMostBinRows];
    const int tid = threadIdx.x, bin = blockIdx.x, height = bins.height;
    for (int i = tid; i < height; i += kSortThreads) places[i] = 0;
    cudaGridDependencySynchronize();
    int before = 0;  // entries of earlier bins
    for (int t = tid; t < bins.tiles; t += kSortThreads) before += __ldcg(bins.starts + int64_t(bin) * bins.tiles + t);
    before = block_scan(before).total;

    // Where an entry goes: for many of the same row the warp asks once.
    const auto count = [&](int row, bool heavy) {
        int place = 0;
        if (heavy) {
            const unsigned peers = __match_any_sync(~0u, row), behind = peers & ((1u << threadIdx.x % 32) - 1);
            if (row >= 0 && behind == 0) place = atomicAdd(&places[row], __popc(peers));
            place = __shfl_sync(~0u, place, __ffs(peers) - 1) + __popc(behind);
        } else if (row >= 0) {
            place = atomicAdd(&places[row], 1);
        }
        return place;
    };
    walk_bin<kSortThreads, false>(bins, bin, [&](int row, Entry, bool heavy) { count(row, heavy); });
    __syncthreads();
    for (int first = 0; first < height; first += kSortThreads) {
        const int i = first + tid, own = i < height ? places[i] : 0;
        const auto scan = block_scan(own);
        const int64_t row = int64_t(bin) * height + i;
        if (i < height) places[i] = before + scan.before;
        if (i < height && row < rows) offsets[row] = before + scan.before;
        before += scan.total;
    }
    if (bin == 0 && tid == 0) offsets[rows] = total;
    __syncthreads();
    walk_bin<kSortThreads, true>(bins, bin, [&](int row, Entry entry, bool heavy) {
        const int place = count(row, heavy);
        if (row >= 0) __stcg(reinterpret_cast<int2*>(entries) + place, make_int2(entry.column, __float_as_int(entry.value)));
    });
}

// The workspace of pack_rows: entries and offsets, which come first and stay, and bins.
inline size_t packed_bytes(int64_t rows, int64_t total) {
    return (total * sizeof(Entry) + (rows + 1) * sizeof(int32_t) + 511) / 256 * 256;
}

constexpr int64_t kManyEntries = 1 << 18;  // from here on in tiles of 6144, below of 2048

inline size_t bins_bytes(int64_t total) {
    return total >= kManyEntries ? RowBins<Entry, 768>::bytes(total) : RowBins<Entry, 256>::bytes(total);
}

template <int kThreads, typename Matrix>
cudaError_t pack_rows(const Matrix& A, void* workspace, PackedRows* out, cudaStream_t stream) {
    Entry* entries = static_cast<Entry*>(workspace);
    int32_t* offsets = reinterpret_cast<int32_t*>(entries + A.total);
    *out = {entries, offsets, A.rows, A.cols, A.total};
    const RowBins<Entry, kThreads> bins(static_cast<char*>(workspace) + packed_bytes(A.rows, A.total), A.rows, A.total);
    const size_t shared = sizeof(TileScratch<Entry, kThreads>) + kThreads * sizeof(int);
    const cudaError_t error = Launch(bins.tiles, kThreads, stream).shared(shared)(bin_entries<Matrix, kThreads>, A, bins);
    if (error != cudaSuccess) return error;
    return Launch(bins.kBins, kSortThreads, stream).early()(sort_bins<kThreads>, bins, entries, offsets, A.rows, A.total);
}

}  // namespace msbench
