// Slices of rows (msbench_spmm_slices.cuh) out of bins of entries in no order: a block puts a bin in order in shared memory and slices it from
// there, so that rows need not be packed in memory first. Bins are the slices' windows.
#pragma once

#include "msbench_sorted_bins.cuh"
#include "msbench_spmm_slices.cuh"

namespace msbench {

// `spill` [total]: for bins of more than kMost entries.
template <int kMost, bool kAdded>
__global__ void __launch_bounds__(kSliceThreads)
    slice_bins(const __grid_constant__ EntryBins bins, const __grid_constant__ Slices out, uint2* spill, int rows, int cols) {
    extern __shared__ __align__(16) char memory[];
    uint2* const items = reinterpret_cast<uint2*>(memory);
    __shared__ int ends[kSliceThreads + 1];
    const int bin = blockIdx.x;
    clear_ends<kSliceThreads>(ends);
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();  // tiles of X may be staged meanwhile
    const BinSize size = load_bin<kSliceThreads>(bins, bin, items, 0, kMost);
    const bool fits = size.total <= kMost;
    if (fits) sort_bin<kSliceThreads, kMost>(items, size.total, ends);
    else sort_large_bin<kSliceThreads>(bins, bin, spill + size.before, ends);
    slice_window<kAdded>(BinRows{fits ? items : spill + size.before, ends, bin << bins.shift, size.before, rows, cols}, out);
}

constexpr int kMostSliced = 6144;  // entries of a window

// Whether windows fit if rows are about as long.
inline bool windows_fit(int64_t rows, int64_t total, int window) {
    return total * window <= rows * (kMostSliced / 12 * 11);
}

// A launch behind bin_entries.
template <bool kAdded>
cudaError_t slice_by_bins(const EntryBins& bins, const Slices& out, uint2* spill, int64_t rows, int cols, int64_t total, cudaStream_t stream) {
    const bool half = windows_fit(rows, total, 2 * out.window);  // which leaves room for a tile of X
    const int most = half ? kMostSliced / 2 : kMostSliced;
    return Launch(out.windows, kSliceThreads, stream).shared(most * sizeof(uint2)).early()(
        half ? slice_bins<kMostSliced / 2, kAdded> : slice_bins<kMostSliced, kAdded>, bins, out, spill, int(rows), cols);
}

}  // namespace msbench
