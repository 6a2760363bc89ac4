// Entries of a matrix in COO or CSC brought together by rows, in one cooperative launch that doesn't mind how long rows are.
//
// Each block counts the rows of its share of the entries in shared memory, where an entry learns how many came before it, and
// then adds each row's count once to the grid's: the answer says where the block's entries of that row begin in it. Behind a grid
// barrier every block sums up the grid's counts, and so knows where rows begin. An entry moves once, straight to its place.
//
// msbench_pack_rows.cuh has bins of neighbouring rows instead, each of which is one block's. Where few rows have most of the entries, so
// has one bin, and its block most of the work.
// Here blocks have equal shares, whatever the rows.
//
// Bound: a launch, two grid barriers, rows read twice and the rest once; an addition in L2 for each row of a share (at most one an
// entry, 100·10⁹ a second measured), and counts of all rows, read by every block.
#pragma once

#include "msbench_groups.cuh"

#include "msbench_pack_rows.cuh"

namespace msbench {

constexpr int kCountThreads = 1024, kCountFlight = 4;  // entries that a thread has under way
constexpr int kCountTile = kCountThreads * kCountFlight;
constexpr int64_t kMostCountedRows = 32768;        // 128 KiB of shared memory
constexpr int64_t kMostCountedEntries = 1 << 19;  // four a thread, of an H200

struct RowCounts {
    int* counts;  // of each row, in fours
    int* ranks;   // of each entry: how many of its row came before it in its share

    static int64_t padded(int64_t rows) { return ceil_div(rows, 4) * 4; }
    static size_t bytes(int64_t rows, int64_t total) { return (padded(rows) + total) * sizeof(int); }
    RowCounts(void* workspace, int64_t rows) : counts(static_cast<int*>(workspace)), ranks(counts + padded(rows)) {}
};

// `share`: entries of each block.
template <typename Matrix>
__global__ void __launch_bounds__(kCountThreads, 1)
    pack_by_counts(const __grid_constant__ Matrix A, const __grid_constant__ RowCounts out, Entry* packed, int32_t* offsets, int share) {
    constexpr bool kCsc = std::is_same_v<Matrix, CscMatrix>;
    extern __shared__ __align__(16) char memory[];
    int* const places = reinterpret_cast<int*>(memory);  // of each row: its entries in the share, and later the place of the first of them
    __shared__ int ends[kCsc ? kCountThreads : 1];
    const int tid = threadIdx.x, begin = min(int(blockIdx.x) * share, A.total), end = min(begin + share, A.total);
    const int fours = (A.rows + 3) / 4;
    for (int i = tid; i < fours; i += kCountThreads) reinterpret_cast<int4*>(places)[i] = make_int4(0, 0, 0, 0);
    for (int i = blockIdx.x * kCountThreads + tid; i < fours; i += gridDim.x * kCountThreads)
        reinterpret_cast<int4*>(out.counts)[i] = make_int4(0, 0, 0, 0);
    __syncthreads();
    for (int first = begin + tid; first < end; first += kCountTile) {
        int row[kCountFlight];
#pragma unroll
        for (int i = 0; i < kCountFlight; ++i) {
            const int at = first + i * kCountThreads;
            if (at < end) row[i] = A.row_indices[at];  // which is read again
        }
#pragma unroll
        for (int i = 0; i < kCountFlight; ++i) {
            const int at = first + i * kCountThreads;
            if (at < end) __stcg(out.ranks + at, atomicAdd(&places[row[i]], 1));
        }
    }
    cooperative_groups::this_grid().sync();

    // Counts give way to how many entries of the row other shares have ahead.
    constexpr int kRowFlight = 8;
    for (int first = tid; first < A.rows; first += kRowFlight * kCountThreads) {
        int before[kRowFlight];
#pragma unroll
        for (int i = 0; i < kRowFlight; ++i) {
            const int row = first + i * kCountThreads, count = row < A.rows ? places[row] : 0;
            before[i] = count > 0 ? atomicAdd(out.counts + row, count) : 0;
        }
#pragma unroll
        for (int i = 0; i < kRowFlight; ++i) {
            if (first + i * kCountThreads < A.rows) places[first + i * kCountThreads] = before[i];
        }
    }
    cooperative_groups::this_grid().sync();

    int earlier = 0;  // entries of the rows so far
    for (int first = 0; first < fours; first += kCountThreads) {
        const int i = first + tid;
        const int4 count = i < fours ? __ldcg(reinterpret_cast<const int4*>(out.counts) + i) : make_int4(0, 0, 0, 0);
        const auto scan = block_scan(count.x + count.y + count.z + count.w);
        int4 at;
        at.x = earlier + scan.before;
        at.y = at.x + count.x;
        at.z = at.y + count.y;
        at.w = at.z + count.z;
        earlier += scan.total;
        if (i >= fours) continue;
        int4& place = reinterpret_cast<int4*>(places)[i];
        place = make_int4(place.x + at.x, place.y + at.y, place.z + at.z, place.w + at.w);
        if (first / kCountThreads % gridDim.x != blockIdx.x) continue;  // blocks take turns to write
        offsets[4 * i] = at.x;
        if (4 * i + 1 < A.rows) offsets[4 * i + 1] = at.y;
        if (4 * i + 2 < A.rows) offsets[4 * i + 2] = at.z;
        if (4 * i + 3 < A.rows) offsets[4 * i + 3] = at.w;
    }
    if (blockIdx.x == 0 && tid == 0) offsets[A.rows] = A.total;
    __syncthreads();

    for (int first = begin; first < end; first += kCountTile) {
        const int until = min(first + kCountTile, end);
        int row[kCountFlight], rank[kCountFlight];
        Entry entry[kCountFlight];
#pragma unroll
        for (int i = 0; i < kCountFlight; ++i) {
            const int at = first + i * kCountThreads + tid;
            if (at >= until) continue;
            row[i] = A.row_indices[at];
            rank[i] = __ldcg(out.ranks + at);
            entry[i].value = to_float(load_once(A.values + at));
            if constexpr (!kCsc) entry[i].column = load_once(A.col_indices + at);
        }
        if constexpr (kCsc) {
            __syncthreads();  // ends may still be read
            const LinesOfTile<kCountThreads> columns(A.offsets, A.cols, first, until, ends);
#pragma unroll
            for (int i = 0; i < kCountFlight; ++i) {
                const int at = first + i * kCountThreads + tid;
                if (at < until) entry[i].column = columns(at);
            }
        }
#pragma unroll
        for (int i = 0; i < kCountFlight; ++i) {
            if (first + i * kCountThreads + tid < until)
                __stcg(reinterpret_cast<int2*>(packed) + places[row[i]] + rank[i], make_int2(entry[i].column, __float_as_int(entry[i].value)));
        }
    }
}

// `workspace`: packed_bytes(rows, total), which stays, and RowCounts::bytes(rows, total).
template <typename Matrix>
cudaError_t pack_rows_by_counts(const Matrix& A, void* workspace, PackedRows* out, cudaStream_t stream) {
    Entry* entries = static_cast<Entry*>(workspace);
    int32_t* offsets = reinterpret_cast<int32_t*>(entries + A.total);
    *out = {entries, offsets, A.rows, A.cols, A.total};
    const RowCounts counts(static_cast<char*>(workspace) + packed_bytes(A.rows, A.total), A.rows);
    const int blocks = multiprocessors();
    return Launch(blocks, kCountThreads, stream)
        .shared(RowCounts::padded(A.rows) * sizeof(int))
        .cooperative()(pack_by_counts<Matrix>, A, counts, entries, offsets, int(ceil_div(A.total, blocks)));
}

}  // namespace msbench
