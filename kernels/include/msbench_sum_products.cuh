// The kernel that adds up bins of products (msbench_product_bins.cuh), by a cluster a bin: as many bins as multiprocessors would be too
// few threads, and more of them shorter parts of tiles.
#pragma once

#include "msbench_cluster.cuh"
#include "msbench_product_bins.cuh"

namespace msbench {

// y [rows] = the sums of products by row. A cluster of kSplit blocks a bin; height() floats of shared memory.
template <typename T, int kThreads, int kSplit, typename Bins>
__global__ void __launch_bounds__(kThreads, 2) sum_products(const __grid_constant__ Bins bins, T* y, int64_t rows) {
    extern __shared__ __align__(16) float sums[];
    const int bin = blockIdx.x / kSplit, share = blockIdx.x % kSplit;
    for (int i = threadIdx.x; i < bins.height(); i += kThreads) sums[i] = 0;
    cudaGridDependencySynchronize();
    __syncthreads();
    add_bin<kThreads>(bins, bin, share, kSplit, sums);

    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    cluster.sync();
    for (int i = share * kThreads + int(threadIdx.x); i < bins.height(); i += kSplit * kThreads) {
        float sum = 0;
#pragma unroll
        for (int other = 0; other < kSplit; ++other) sum += *cluster.map_shared_rank(sums + i, other);
        const int64_t row = (int64_t(bin) << bins.shift) + i;
        if (row < rows) y[row] = from_float<T>(sum);
    }
    cluster.sync();  // before a block whose sums are read is gone
}

template <int kThreads, int kSplit, typename T, typename Bins>
cudaError_t launch_sums(const Bins& bins, T* y, int64_t rows, cudaStream_t stream) {
    Launch launch(Bins::kBins * kSplit, kThreads, stream);
    launch.shared(sizeof(float) << bins.shift).early();
    return launch_clusters(kSplit, launch, sum_products<T, kThreads, kSplit, Bins>, bins, y, rows);
}

}  // namespace msbench
