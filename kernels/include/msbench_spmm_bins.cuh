// A X for narrow X and many entries in COO or CSC: a block has a bin of rows, puts its entries in order in shared memory, and gathers rows
// of X from L2 for them at once. So entries move once between memory and multiprocessors, and other blocks of a
// multiprocessor gather while one sorts.
//
// Bins of more entries than fit, of uneven matrices, are left to a last launch: they are cut into parts, of all of whose rows sums are added up
// in memory, and the last part to arrive stores them.
//
// Bound: nnz * K * size bytes of X from L2 at 7.0 to 7.5 TB/s (256 bytes at a time), behind the binning of entries, of which that is 38 to 52 us
// of 4·10⁶. What is in flight has its place in L1, which is what shared memory leaves of it: so bins are no larger than needed.
//
// Measured (H100, 2026-11-26, us; 131072 rows and columns, 4194304 entries, K = 128): COO 375 (bf16 216), CSC 386 (222), where packing rows in
// memory and gathering took 586 (415) and 613 (428), of which moving each entry to its place took 160. With room for 10240 entries a
// bin and not 9216, L1 had 28 KiB and not 60: 229 in bf16. Hints to pass L1 cost half as much again, hints to keep X in L2 changed nothing.
#pragma once

#include "msbench_bin_product.cuh"

namespace msbench {

// A bin whose entries don't fit.
struct LargeBin {
    int bin, total;
};

struct LargeBins {
    LargeBin* bins;
    float* sums;        // [large bin][row][K]
    unsigned* arrived;  // parts, of each

    static int64_t most(int64_t total) { return total / kMostInBin; }
    static size_t bytes(int64_t total, int height, int64_t K) {
        return most(total) * (sizeof(LargeBin) + sizeof(unsigned) + height * K * sizeof(float));
    }
    LargeBins(void* workspace, int64_t total, int height, int64_t K) : sums(static_cast<float*>(workspace)) {
        bins = reinterpret_cast<LargeBin*>(sums + most(total) * height * K);
        arrived = reinterpret_cast<unsigned*>(bins + most(total));
    }
};

// Large bins, and blocks that are done with them. Zero between calls, which share them if they overlap: one stream at a time.
static __device__ int large_bins_in_use;
static __device__ unsigned large_bin_blocks_done;

__global__ void __launch_bounds__(kBinThreads, kBinBlocks)
    multiply_bins(const __grid_constant__ EntryBins bins, const scalar_t* __restrict__ X, scalar_t* Y, int rows, int64_t K,
                  const __grid_constant__ LargeBins large) {
    extern __shared__ __align__(16) char memory[];
    BinScratch& s = *reinterpret_cast<BinScratch*>(memory);
    const int bin = blockIdx.x, row0 = bin << bins.shift, height = min(1 << bins.shift, rows - row0);
    clear_ends<kBinThreads>(s.ends);
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    const int count = load_bin<kBinThreads>(bins, bin, s.items, 0, kMostInBin).total;
    if (count > kMostInBin) {
        if (blockIdx.y > 0) return;
        __shared__ int slot;
        if (threadIdx.x == 0) {
            slot = atomicAdd(&large_bins_in_use, 1);
            large.bins[slot] = {bin, count};
            large.arrived[slot] = 0;
        }
        __syncthreads();
        float* const sums = large.sums + (int64_t(slot) << bins.shift) * K;
        for (int64_t i = threadIdx.x; i < height * K; i += kBinThreads) sums[i] = 0;
        return;
    }
    sort_bin<kBinThreads, kMostInBin>(s.items, count, s.ends);
    const int64_t column = int64_t(blockIdx.y) * kBinColumns + threadIdx.x % kBinGroup * kPiece;
    const bool inside = column < K;
    scalar_t* const y = Y + row0 * K + column;
    const auto store = [&](int row, const float(&sum)[kPiece]) {
        const Packet<scalar_t> out = rounded(sum);
        if (inside) __stcs(reinterpret_cast<uint4*>(y + row * K), reinterpret_cast<const uint4&>(out));
    };
    multiply_bin(s, count, X + column, inside, K, store);
    const float zeros[kPiece] = {};
    for (int row = threadIdx.x / kBinGroup; row < height; row += kBinGroups) {
        if (s.ends[row] == s.ends[row + 1]) store(row, zeros);
    }
}

// Parts of large bins: blocks take them in turn.
__global__ void __launch_bounds__(kBinThreads, kBinBlocks)
    multiply_large_bins(const __grid_constant__ EntryBins bins, const scalar_t* __restrict__ X, scalar_t* Y, int rows, int64_t K,
                        const __grid_constant__ LargeBins large) {
    extern __shared__ __align__(16) char memory[];
    BinScratch& s = *reinterpret_cast<BinScratch*>(memory);
    __shared__ bool is_last;
    cudaGridDependencySynchronize();
    const int slots = __ldcg(&large_bins_in_use);
    int turn = 0;
    for (int slot = 0; slot < slots; ++slot) {
        const LargeBin own = large.bins[slot];
        const int parts = (own.total + kMostInBin - 1) / kMostInBin;
        float* const sums = large.sums + (int64_t(slot) << bins.shift) * K;
        for (int part = 0; part < parts; ++part, ++turn) {
            if (turn % gridDim.x != blockIdx.x) continue;
            __syncthreads();  // the last part may still be read
            clear_ends<kBinThreads>(s.ends);
            load_bin<kBinThreads>(bins, own.bin, s.items, part * kMostInBin, kMostInBin);
            const int count = min(kMostInBin, own.total - part * kMostInBin);
            sort_bin<kBinThreads, kMostInBin>(s.items, count, s.ends);
            for (int64_t first = 0; first < K; first += kBinColumns) {
                const int64_t column = first + threadIdx.x % kBinGroup * kPiece;
                const bool inside = column < K;
                multiply_bin(s, count, X + column, inside, K, [&](int row, const float(&sum)[kPiece]) {
#pragma unroll
                    for (int k = 0; k < kPiece; ++k) {
                        if (inside) atomicAdd(sums + row * K + column + k, sum[k]);
                    }
                });
                __syncthreads();
            }
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) is_last = atomicAdd(large.arrived + slot, 1u) + 1 == unsigned(parts);
            __syncthreads();
            if (!is_last) continue;
            __threadfence();
            const int64_t row0 = int64_t(own.bin) << bins.shift, size = min(int64_t(1) << bins.shift, rows - row0) * K;
            for (int64_t i = threadIdx.x; i < size; i += kBinThreads) Y[row0 * K + i] = from_float<scalar_t>(__ldcg(sums + i));
        }
    }
    if (threadIdx.x == 0 && atomicInc(&large_bin_blocks_done, gridDim.x - 1) == gridDim.x - 1) large_bins_in_use = 0;
}

// Whether X is so narrow that a few passes over the bins do.
constexpr int64_t kMostBinPasses = 4, kMostMeanRow = 1024;
inline bool worth_bins(int64_t rows, int64_t total, int64_t K) {
    return K <= kMostBinPasses * kBinColumns && total <= rows * kMostMeanRow;
}

inline size_t multiply_bins_bytes(int64_t rows, int64_t total, int64_t K) {
    const int shift = bin_shift(rows, total, kMostInBin, kBinShift);
    return EntryBins::bytes(rows, total, shift) / 256 * 256 + 256 + LargeBins::bytes(total, 1 << shift, K);
}

// Three launches. `workspace`: multiply_bins_bytes(...). X and Y are aligned to 16 bytes, and K is a multiple of kPiece.
template <typename Matrix>
cudaError_t multiply_by_bins(const Matrix& A, const scalar_t* X, scalar_t* Y, int64_t K, void* workspace, cudaStream_t stream) {
    const int shift = bin_shift(A.rows, A.total, kMostInBin, kBinShift);
    const EntryBins bins(workspace, A.rows, A.total, shift);
    const LargeBins large(static_cast<char*>(workspace) + EntryBins::bytes(A.rows, A.total, shift) / 256 * 256 + 256, A.total, 1 << shift, K);
    cudaError_t error = bin_entries(A, bins, stream);
    if (error != cudaSuccess) return error;
    const dim3 blocks(bins.bins, unsigned(ceil_div(K, kBinColumns)));
    error = Launch(blocks, kBinThreads, stream).shared(sizeof(BinScratch)).early()(multiply_bins, bins, X, Y, A.rows, K, large);
    if (error != cudaSuccess || LargeBins::most(A.total) == 0) return error;
    return Launch(kBinBlocks * multiprocessors(), kBinThreads, stream).shared(sizeof(BinScratch)).early()(
        multiply_large_bins, bins, X, Y, A.rows, K, large);
}

}  // namespace msbench
