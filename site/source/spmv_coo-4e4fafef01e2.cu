// y = A x with A in COO, in no order.
//
// Plans, by rows:
// - `cluster_sums`, up to 4096 rows, 120 000 entries and a short x: a cluster of 16 blocks has a band of the rows, or an eighth of the entries,
//   and its blocks send each other what they have added up (msbench_cluster_sums.cuh): no barrier of the grid.
// - `CooSwap`, up to 16384 with few entries each and a short x: blocks of clusters swap entries, and clusters mail sums (msbench_coo_swap.cuh).
// - `block_sums`, else up to 32768: a block of 1024 threads on each multiprocessor has all of its entries under way at once, and x, if it is
//   short, for shared memory, so that this is one trip; products are added up in shared memory, and behind a grid barrier those sums of
//   all blocks (msbench_block_sums.cuh). One cooperative launch.
// - `bins`, else: products ordered by bins of rows (msbench_product_bins.cuh), which blocks share out if they are uneven
//   (msbench_bin_shares.cuh); 12 + 6 + 6 bytes an entry and the gathers of x.
//
// Bound: paper sizes are a launch, one trip to memory, a grid barrier, or an exchange within clusters, and one to L2: a cooperative sum of
// 1 MB takes 5.6 us (measured); and the sums of all blocks, or all clusters, through L2. Large (H100): 331 us for entries, gathers and stores
// of products in no order (measured), which L2 takes, and 76 to read the products.
//
// Measured (H100, November 2026, own program, fp32, us; 1024, 2048, 4096, 8192, 16384 rows, and 10007 skewed): 9.3, 9.6, 10.2, 11.3, 14.0,
// 16.7 with all sums stored; when lanes added up by row first 9.2, 9.7, 10.7, 12.4, 15.9, 17.2. Sums added in memory as here, from 8192 rows
// on, were measured apart (msbench_block_sums.cuh).
// Large: 459 (349 and 111), before 546; 1024 threads with 8 entries 463, and 512 with 16 462, but two blocks on a multiprocessor, which
// leave L1 less room for x, 509 at best. Products in chunks that stay in L2: 498 and more. Ordering costs 17 us.
// H200, 2026-11-26: touching y at once takes 0.2 off at 8192 and 16384 rows. 1024, 2048 and 4096 rows by `block_sums` 9.9, 10.0 and 10.6, by
// `cluster_sums` 8.2 (bf16 7.8), 8.4 and 9.8; 8192 rows 11.6 and 11.9. More than one try of an addition takes 0.2 to 0.6 off `block_sums`, and
// costs 1.5 where rows are skewed.

#include "msbench_add_quad.cuh"
#include "msbench_block_sums.cuh"
#include "msbench_cluster_sums.cuh"
#include "msbench_coo_swap.cuh"
#include "msbench_entries.cuh"
#include "msbench_held_vector.cuh"
#include "msbench_product_bins.cuh"
#include "msbench_sum_products.cuh"

namespace {

using Matrix = msbench::CooMatrix;
using msbench::ClusterSums;
constexpr int64_t kFewRows = 4096, kFewest = 30'000, kFewEntries = 120'000;  // limits of `cluster_sums`
constexpr int kLogCluster = 4, kBands = 4, kCopies = 4;

// x is held in shared memory. `chunk`: entries of a block, of which a warp takes 32 at a time.
template <int kThreads, int kFlight>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    cluster_sums(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int cols, int chunk, const __grid_constant__ ClusterSums sums) {
    extern __shared__ __align__(16) float shared[];
    sums.begin(shared);
    scalar_t* const table = reinterpret_cast<scalar_t*>(shared + ClusterSums::kBarrier + (1 + sums.copies) * sums.band);
    const int tid = threadIdx.x, end = min((sums.share() + 1) * chunk, A.total), first_row = sums.first_row();
    bool first = true;
    for (int begin = sums.share() * chunk; first || begin + tid / 32 * 32 < end; begin += kFlight * kThreads, first = false) {
        const int left = end - begin - tid, left_of_warp = left + tid % 32, at = begin + tid;
        const int32_t *const rows = msbench::kept(A.row_indices + at), *const columns = msbench::kept(A.columns + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        int row[kFlight], column[kFlight];
        scalar_t value[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            row[i] = -1;
            if (i * kThreads < left) {
                row[i] = msbench::load_once(rows + i * kThreads);
                column[i] = msbench::load_once(columns + i * kThreads);
                value[i] = msbench::load_once(values + i * kThreads);
            }
        }
        if (first) {
            msbench::begin_copy(table, x, cols);
            sums.clear(shared, y);
            msbench::end_copy();
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            const int own = row[i] - first_row;
            float product = 0;
            if (sums.has(own)) product = msbench::to_float(value[i]) * msbench::to_float(table[column[i]]);
            sums.add(shared, own, product);
        }
    }
    sums.collect(shared, [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <int kThreads>
cudaError_t launch_clusters(const Matrix& A, const scalar_t* x, scalar_t* y, int64_t cols, const ClusterSums& sums, cudaStream_t stream) {
    const int chunk = int(msbench::ceil_div(msbench::ceil_div(A.total, sums.shares()), 32) * 32);
    return sums.launch(kThreads, msbench::vector_bytes(cols), stream, cluster_sums<kThreads, 2>, A, x, y, int(cols), chunk, sums);
}

using BlockSums = msbench::BlockSums;
constexpr int kTableFlight = 4, kMostTable = kTableFlight * BlockSums::kThreads;  // columns of an x that is held in shared memory
constexpr int kBlockFlight = 8;

// kTable: x is held in shared memory. `chunk`: entries of a block, of which a warp takes 32 at a time.
template <bool kTable, bool kStored>
__global__ void __launch_bounds__(BlockSums::kThreads, 1)
    block_sums(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int cols, int chunk, const __grid_constant__ BlockSums sums) {
    constexpr int kThreads = BlockSums::kThreads;
    extern __shared__ __align__(16) float table[];
    float *const shared = table + (kTable ? kMostTable : 0), *own = shared;
    const int tid = threadIdx.x, end = min((int(blockIdx.x) + 1) * chunk, A.total);
    bool first = true;
    for (int begin = blockIdx.x * chunk; first || begin + tid / 32 * 32 < end; begin += kBlockFlight * kThreads, first = false) {
        // Few instructions before the loads: the next ones of 32 warps take as long as a trip to L2.
        const int left = end - begin - tid, left_of_warp = left + tid % 32, at = begin + tid;
        const int32_t *const rows = msbench::kept(A.row_indices + at), *const columns = msbench::kept(A.columns + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        int row[kBlockFlight], column[kBlockFlight];
        scalar_t value[kBlockFlight];
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            row[i] = -1;
            if (i * kThreads < left) {
                row[i] = msbench::load_once(rows + i * kThreads);
                column[i] = msbench::load_once(columns + i * kThreads);
                value[i] = msbench::load_once(values + i * kThreads);
            }
        }
        if (first) {
            scalar_t factor[kTableFlight];
            if constexpr (kTable) {
#pragma unroll
                for (int i = 0; i < kTableFlight; ++i) factor[i] = msbench::load_once(x + min(tid + i * kThreads, cols - 1));
            }
            if constexpr (!kStored) sums.fetch(y);
            sums.clear(shared);
            own = sums.own(shared);
            if constexpr (kTable) {
#pragma unroll
                for (int i = 0; i < kTableFlight; ++i) table[tid + i * kThreads] = msbench::to_float(factor[i]);
            }
            __syncthreads();
        }
        float product[kBlockFlight];
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            if (kTable && i * kThreads >= left_of_warp) break;
            if (row[i] >= 0) product[i] = msbench::to_float(value[i]) * (kTable ? table[column[i]] : msbench::to_float(__ldg(x + column[i])));
        }
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            sums.add(own, row[i], product[i]);
        }
    }
    sums.collect<kStored>(shared, msbench::AddQuad(), [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <bool kTable>
cudaError_t launch_block(const Matrix& A, const scalar_t* x, scalar_t* y, int64_t cols, const BlockSums& sums, cudaStream_t stream) {
    const int chunk = int(msbench::ceil_div(msbench::ceil_div(A.total, sums.blocks), 32) * 32);
    auto* const kernel = BlockSums::stored(sums.rows) ? block_sums<kTable, true> : block_sums<kTable, false>;
    return sums.launch(stream, kTable ? kMostTable : 0)(kernel, A, x, y, int(cols), chunk, sums);
}

using Bins = msbench::ProductBins<768, 12>;
using Tile = msbench::ProductTile<768, 12>;
constexpr int kSumThreads = 768, kSplit = 2;

// A thread's entries of a tile; row -1 behind the end.
struct Entries {
    int row[Bins::kEach], column[Bins::kEach];
    scalar_t value[Bins::kEach];

    __device__ void load(const Matrix& A, int tile) {
        const int64_t at = int64_t(tile) * Bins::kTile + threadIdx.x, left = A.total - at;
        const int32_t *const rows = msbench::kept(A.row_indices + at), *const columns = msbench::kept(A.columns + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        if (left + threadIdx.x >= Bins::kTile) {
#pragma unroll
            for (int i = 0; i < Bins::kEach; ++i) {
                row[i] = msbench::load_once(rows + i * Bins::kThreads);
                column[i] = msbench::load_once(columns + i * Bins::kThreads);
            }
#pragma unroll
            for (int i = 0; i < Bins::kEach; ++i) value[i] = msbench::load_once(values + i * Bins::kThreads);
            return;
        }
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            row[i] = -1;
            if (i * Bins::kThreads < left) {
                row[i] = msbench::load_once(rows + i * Bins::kThreads);
                column[i] = msbench::load_once(columns + i * Bins::kThreads);
                value[i] = msbench::load_once(values + i * Bins::kThreads);
            }
        }
    }
};

// One block on a multiprocessor, so that L1 has room for x.
__global__ void __launch_bounds__(Bins::kThreads, 1)
    fill_bins(const __grid_constant__ Matrix A, const scalar_t* x, const __grid_constant__ Bins bins) {
    extern __shared__ __align__(16) char memory[];
    Tile& products = *reinterpret_cast<Tile*>(memory);
    Entries entries;
    entries.load(A, blockIdx.x);
    products.begin(bins);
    products.clear();
    __syncthreads();
    for (int tile = blockIdx.x; tile < bins.tiles; tile += gridDim.x) {
        scalar_t factor[Bins::kEach];
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            if (entries.row[i] >= 0) factor[i] = __ldg(x + entries.column[i]);
        }
        Tile::Ranks ranks;
        products.count(bins, entries.row, ranks);
        __syncthreads();
        products.place(bins, tile);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            if (entries.row[i] >= 0)
                products.put(bins, entries.row[i], ranks[i], msbench::to_float(entries.value[i]) * msbench::to_float(factor[i]));
        }
        __syncthreads();
        if (tile + int(gridDim.x) < bins.tiles) entries.load(A, tile + gridDim.x);
        products.clear();
        products.store(bins, tile);
        __syncthreads();
    }
    products.finish();
}

}  // namespace

extern "C" size_t spmv_coo_workspace(int64_t rows, int64_t, int64_t nnz) {
    return rows <= BlockSums::kMostRows ? BlockSums::bytes(rows) : Bins::bytes(rows, msbench::ceil_div(nnz, Bins::kTile));
}

extern "C" cudaError_t spmv_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, col_indices, int(nnz)};
    if (rows <= kFewRows && nnz <= kFewEntries && cols <= kMostTable) {
        if (nnz <= kFewest) return launch_clusters<1024>(A, x, y, cols, ClusterSums(rows, kLogCluster, kBands, 1, kCopies), stream);
        return launch_clusters<512>(A, x, y, cols, ClusterSums(rows, kLogCluster, 1, msbench::kMostGroups, kCopies), stream);
    }
    if (rows > kFewRows && cols <= kMostTable) {
        const msbench::CooSwap swap(rows, cols, nnz);
        if (swap.suits) return swap.launch(A, x, y, stream);
    }
    if (rows <= BlockSums::kMostRows) {
        const BlockSums sums(workspace, rows, nnz);
        return cols <= kMostTable ? launch_block<true>(A, x, y, cols, sums, stream)
                                  : launch_block<false>(A, x, y, cols, sums, stream);
    }
    const Bins bins(workspace, rows, msbench::ceil_div(nnz, Bins::kTile));
    const unsigned blocks = unsigned(std::min(bins.tiles, msbench::multiprocessors()));
    const cudaError_t error = msbench::Launch(blocks, Bins::kThreads, stream).shared(sizeof(Tile))(fill_bins, A, x, bins);
    return error != cudaSuccess ? error : msbench::launch_sums<kSumThreads, kSplit>(bins, y, rows, stream);
}
