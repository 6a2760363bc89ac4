// y = A x with A in COO by clusters of 16 blocks that swap entries (msbench_entry_swap.cuh), as many as run at once; no barrier of the grid.
//
// For rows with few entries: then what a block has for the rows of another is less than their sums, and L2 gets the sums of seven or eight
// clusters, not those of 132 blocks. A thread has all of its entries under way at once, and x is held in shared memory.
//
// Measured (H100, 2026-11-26, us, 2048 columns, 20.5 entries a row), sums of blocks behind a grid barrier (msbench_block_sums.cuh), and this by the
// 7 clusters that run at once: 8192 rows 11.7 and 10.3 (bf16 10.9 and 10.3), 16384 14.3 and 12.5 (13.3 and 12.2), 32768 18.6 and 17.3 (17.5 and
// 16.8), but 20.6 and 25.5 if skewed, as one block of each cluster gets most entries then: hence at most four a thread. 10007 rows of 50
// entries and 5003 columns 14.7 and 16.9: hence the limit of the mean. An eighth cluster, which has to wait: 14.2, 17.8 and 25.0; 4 clusters 11.6
// and 14.7. Mail that is fetched early takes off 0.8, 0.1 and 0.3. x by multicast costs up to 0.6, as do groups that all take sums, in place of
// the last. Sums added in L2 by all blocks and a grid barrier: 10.4, 13.7 and 19.4, but 120 if skewed.
#pragma once

#include "msbench_block_sums.cuh"
#include "msbench_entries.cuh"
#include "msbench_entry_swap.cuh"
#include "msbench_held_vector.cuh"

namespace msbench {

struct CooMatrix {
    const scalar_t* values;
    const int32_t *row_indices, *columns;
    int total;
};

template <int kThreads, int kFlight>
__global__ void __launch_bounds__(kThreads, 1)
    swap_entries(const __grid_constant__ CooMatrix A, const scalar_t* x, scalar_t* y, int cols, const __grid_constant__ EntrySwap swap) {
    extern __shared__ __align__(16) char memory[];
    int* const shared = reinterpret_cast<int*>(memory);
    swap.begin(shared);
    scalar_t* const table = static_cast<scalar_t*>(swap.behind(shared));
    const int at = swap.share() * swap.lists.chunk + int(threadIdx.x), end = min((swap.share() + 1) * swap.lists.chunk, A.total);
    const int32_t *const rows = kept(A.row_indices + at), *const columns = kept(A.columns + at);
    const scalar_t* const values = kept(A.values + at);
    int row[kFlight], column[kFlight];
    scalar_t value[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
        row[i] = -1;
        if (at + i * kThreads < end) {
            row[i] = load_once(rows + i * kThreads);
            column[i] = load_once(columns + i * kThreads);
            value[i] = load_once(values + i * kThreads);
        }
    }
    begin_copy(table, x, cols);
    swap.clear(shared, y);
    end_copy();
    __syncthreads();
    EntryLists::Place place[kFlight];
    float product[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
        place[i] = {0, 0}, product[i] = 0;
        if (row[i] < 0) continue;
        place[i] = swap.rank(shared, row[i]);
        product[i] = to_float(value[i]) * to_float(table[column[i]]);
    }
    const EntryLists::Area area = swap.layout(shared);
#pragma unroll
    for (int i = 0; i < kFlight; ++i) swap.put(shared, place[i], row[i], product[i]);
    swap.collect(shared, area, [&](int r, float sum) { y[r] = from_float<scalar_t>(sum); });
}

// How many clusters of up to 16 blocks run at once, a block on each multiprocessor; 0 if nothing is known.
template <typename Kernel>
int clusters_at_once(Kernel kernel, int size, int threads, int most) {
#ifdef __NVCC__
    constexpr int kAlone = 120 * 1024;  // bytes of shared memory that two blocks don't find on a multiprocessor
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {unsigned(size), 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = unsigned(size * most), config.blockDim = threads, config.dynamicSmemBytes = kAlone;
    config.attrs = &cluster, config.numAttrs = 1;
    int clusters = 0;
    const bool known = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess &&
                       cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kAlone) == cudaSuccess &&
                       cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
    if (!known) cudaGetLastError();
    return known ? std::min(clusters, most) : 0;
#else
    (void)kernel, (void)size, (void)threads;
    return most;
#endif
}

class CooSwap {
    static constexpr int kThreads = 1024, kFlight = 4, kLogCluster = 4, kCopies = 2, kLeastGroups = 6;
    static constexpr int64_t kMostMean = 32;
    static constexpr size_t kMostShared = 227 * 1024;

    int cols;
    EntrySwap swap;

   public:
    bool suits = false;

    CooSwap(int64_t rows, int64_t columns, int64_t nnz) : cols(int(columns)), swap(rows, nnz, kLogCluster, kMailGroups, kCopies) {
        if (rows > kMailRows || nnz > kMostMean * rows || swap.lists.chunk > kFlight * kThreads) return;
        const int groups = clusters_at_once(swap_entries<kThreads, kFlight>, 1 << kLogCluster, kThreads, kMailGroups);
        if (groups < kLeastGroups) return;
        swap = EntrySwap(rows, nnz, kLogCluster, groups, kCopies);
        suits = swap.lists.chunk <= kFlight * kThreads && swap.shared_words() * sizeof(int) + vector_bytes(cols) <= kMostShared;
    }
    cudaError_t launch(const CooMatrix& A, const scalar_t* x, scalar_t* y, cudaStream_t stream) const {
        auto* const kernel = swap.lists.chunk <= kFlight / 2 * kThreads ? swap_entries<kThreads, kFlight / 2> : swap_entries<kThreads, kFlight>;
        return swap.launch(kThreads, vector_bytes(cols), stream, kernel, A, x, y, cols, swap);
    }
};

}  // namespace msbench
