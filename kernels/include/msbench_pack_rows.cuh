// Entries of a matrix in COO or CSC brought together by rows, in the workspace: two launches, through bins of rows (msbench_entry_bins.cuh),
// each of which a block puts in order in shared memory. Entries of a row come in no particular order.
#pragma once

#include "msbench_sorted_bins.cuh"

namespace msbench {

constexpr int kPackThreads = 256, kMostPacked = 5120;  // entries of a bin, unless rows are uneven

__global__ void __launch_bounds__(kPackThreads, 4)
    pack_bins(const __grid_constant__ EntryBins bins, uint2* entries, int32_t* offsets, int rows, int total) {
    extern __shared__ __align__(16) char memory[];
    uint2* const items = reinterpret_cast<uint2*>(memory);
    __shared__ int ends[kPackThreads + 1];
    const int tid = threadIdx.x, bin = blockIdx.x, row0 = bin << bins.shift;
    clear_ends<kPackThreads>(ends);
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    const BinSize size = load_bin<kPackThreads>(bins, bin, items, 0, kMostPacked);
    const bool fits = size.total <= kMostPacked;
    uint2* const to = entries + size.before;
    if (fits) sort_bin<kPackThreads, kMostPacked>(items, size.total, ends);
    else sort_large_bin<kPackThreads>(bins, bin, to, ends);
    for (int i = tid; i < size.total; i += kPackThreads) {
        uint2 item = fits ? items[i] : __ldcg(to + i);
        item.x &= kColumnMask;
        __stcg(to + i, item);
    }
    if (tid < 1 << bins.shift && row0 + tid < rows) offsets[row0 + tid] = size.before + ends[tid];
    if (bin == 0 && tid == 0) offsets[rows] = total;
}

// The workspace of pack_rows: entries and offsets, which come first and stay, and bins.
inline size_t packed_bytes(int64_t rows, int64_t total) {
    return (total * sizeof(Entry) + (rows + 1) * sizeof(int32_t) + 511) / 256 * 256;
}

// Bins that fit, and enough of them for all multiprocessors.
inline int pack_shift(int64_t rows, int64_t total) {
    int shift = bin_shift(rows, total, kMostPacked, 8);
    while (shift > 0 && rows >> shift < 128) --shift;
    return shift;
}

inline size_t bins_bytes(int64_t rows, int64_t total) {
    return EntryBins::bytes(rows, total, pack_shift(rows, total));
}

template <typename Matrix>
cudaError_t pack_rows(const Matrix& A, void* workspace, PackedRows* out, cudaStream_t stream) {
    Entry* entries = static_cast<Entry*>(workspace);
    int32_t* offsets = reinterpret_cast<int32_t*>(entries + A.total);
    *out = {entries, offsets, A.rows, A.cols, A.total};
    const EntryBins bins(static_cast<char*>(workspace) + packed_bytes(A.rows, A.total), A.rows, A.total, pack_shift(A.rows, A.total));
    const cudaError_t error = bin_entries(A, bins, stream);
    if (error != cudaSuccess) return error;
    return Launch(bins.bins, kPackThreads, stream).shared(kMostPacked * sizeof(uint2)).early()(
        pack_bins, bins, reinterpret_cast<uint2*>(entries), offsets, A.rows, A.total);
}

}  // namespace msbench
