// The kernel that adds up bins of products (msbench_product_bins.cuh), by a cluster a bin: as many bins as multiprocessors would be too
// few threads, and more of them shorter parts of tiles.
#pragma once

#include "msbench_bin_shares.cuh"
#include "msbench_launch.cuh"
#ifdef __NVCC__
#include "msbench_cluster.cuh"
#endif

namespace msbench {

// The processor's executor has no clusters: there a block has a bin.
#ifdef __NVCC__
template <int kSplit>
constexpr int kBlocksABin = kSplit;
#else
template <int kSplit>
constexpr int kBlocksABin = 1;
#endif

template <int kSplit>
__device__ __forceinline__ void sync_bin() {
#ifdef __NVCC__
    cooperative_groups::this_cluster().sync();
#else
    __syncthreads();
#endif
}

// The sum of what the blocks of a bin have at the same place.
template <int kSplit>
__device__ __forceinline__ float sum_of_blocks(const float* own) {
#ifdef __NVCC__
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kSplit; ++other) sum += *cooperative_groups::this_cluster().map_shared_rank(own, other);
    return sum;
#else
    return *own;
#endif
}

// y [rows] = the sums of products by row. A cluster of kSplit blocks a bin; height() floats of shared memory.
template <typename T, int kThreads, int kSplit, typename Bins>
__global__ void __launch_bounds__(kThreads, 2) sum_products(const __grid_constant__ Bins bins, T* y, int64_t rows) {
    extern __shared__ __align__(16) float sums[];
    __shared__ BinShares shares;
    int bin = blockIdx.x / kSplit, piece = blockIdx.x % kSplit;
    const auto clear = [&] {
        for (int i = threadIdx.x; i < bins.height(); i += kThreads) sums[i] = 0;
    };
    const auto finish = [&](int i, float sum) {
        const int64_t row = (int64_t(bin) << bins.shift) + i;
        if (row < rows) y[row] = from_float<T>(sum);
    };
    clear();
    cudaGridDependencySynchronize();
    const bool uneven = shares.read(bins);
    int pieces = uneven ? shares.pieces(bin) : 0;
    while (true) {
        // A tile's part is taken by few lanes if there are many tiles for a block, else by as many as it has work for.
        constexpr int kFew = 8, kMany = kThreads < 256 ? kThreads : 256;
        if (pieces == 0) add_bin<kThreads, kFew>(bins, bin, piece, kSplit, sums);
        else if (int64_t(pieces) * bins.piece < int64_t(kMany) * 2 * bins.tiles) add_bin<kThreads, 32>(bins, bin, piece, pieces, sums);
        else add_bin<kThreads, kMany>(bins, bin, piece, pieces, sums);
        if (pieces > 0) {
            __syncthreads();
            shares.leave(bins, bin, sums, finish);
        } else {
            sync_bin<kSplit>();
            for (int i = piece * kThreads + int(threadIdx.x); i < bins.height(); i += kSplit * kThreads) finish(i, sum_of_blocks<kSplit>(sums + i));
            sync_bin<kSplit>();  // before a block whose sums are read is gone
        }
        if (!uneven || !shares.take(bin, piece, kSplit)) return;
        pieces = shares.pieces(bin);
        clear();
        __syncthreads();
    }
}

template <int kThreads, int kSplit, typename T, typename Bins>
cudaError_t launch_sums(const Bins& bins, T* y, int64_t rows, cudaStream_t stream) {
    constexpr int kBlocks = kBlocksABin<kSplit>;
    Launch launch(Bins::kBins * kBlocks, kThreads, stream);
    launch.shared(sizeof(float) << bins.shift).early();
#ifdef __NVCC__
    return launch_clusters(kBlocks, launch, sum_products<T, kThreads, kBlocks, Bins>, bins, y, rows);
#else
    return launch(sum_products<T, kThreads, kBlocks, Bins>, bins, y, rows);
#endif
}

}  // namespace msbench
