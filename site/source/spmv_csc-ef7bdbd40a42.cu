// y = A x with A in CSC.
//
// Plans, by rows:
// - `cluster_sums`, up to 4096 rows and 400 000 entries: a cluster of 16 blocks has a band of the rows, or an eighth of the entries, and its
//   blocks send each other what they have added up (msbench_cluster_sums.cuh): no barrier of the grid.
// - `block_sums`, up to 32768: a block of 1024 threads on each multiprocessor has an equal share of A's entries, however long columns are.
//   Products are added up in shared memory, and behind a grid barrier those sums of all blocks (msbench_block_sums.cuh).
//   In both, all entries of a tile are under way while a thread a column loads its bounds and x, and writes x down where the column begins
//   (msbench_tile_columns.cuh): one trip to memory.
// - `bins`, else: products ordered by bins of rows (msbench_product_bins.cuh), which blocks share out if they are uneven
//   (msbench_bin_shares.cuh). A block has neighbouring tiles, so it searches for a column only once.
//
// Bound: paper sizes are a launch, a trip to memory, and the exchange of sums in a cluster and through L2, ≈ 6 us; with a grid barrier 7, and
// the sums of all blocks through L2, 1 MB.
// Large: 8 + 6 + 6 bytes an entry (6 + 6 + 6 in bf16), on an H100 173 us until products are stored in no order, and 76 to read them.
//
// Measured (H100, November 2026, own program, us; 2048 and 32768 columns, and 32768 skewed): 10.7, 15.7, 19.9, when lanes added up by row
// first 10.8, 19.0, 21.6. Large: 306 (195 and 111), bf16 282; by atomic additions in memory at 101·10⁹ a second 448 and 438.
// Lost: 8 entries of 768 threads, whose registers spill, 341; some products added in memory at once, 2, 3, 4 or 6 of 12, 299, 303, 319,
// 336; products in chunks that stay in L2, 360 and more.
// H200, 2026-11-26, 1024 to 32768 columns, when blocks searched for their first column, and a grid barrier was behind all: 9.7, 9.9, 10.2,
// 11.1, 12.3, 15.3; by `block_sums` as it is 9.8, 9.8, 9.7, 10.3, 10.9, 12.7 (without a search up to 0.9 less, second tries up to 1.4, eight
// copies of the sums in place of two 0.2 to 0.5); by `cluster_sums` 8.3, 8.4, 8.9, 9.3, 10.7.

#include "msbench_add_quad.cuh"
#include "msbench_block_sums.cuh"
#include "msbench_cluster_sums.cuh"
#include "msbench_entries.cuh"
#include "msbench_product_bins.cuh"
#include "msbench_sum_products.cuh"
#include "msbench_tile_columns.cuh"

namespace {

struct Matrix {
    const scalar_t* values;
    const int32_t* row_indices;
    msbench::CscColumns columns;
    int total;
};

// Entries of each of so many blocks.
int chunk_of(const Matrix& A, int64_t blocks) {
    return int(msbench::ceil_div(msbench::ceil_div(A.total, blocks), 32) * 32);
}

// As seen by blocks of `threads`, which take `tile` of their `chunk` of entries at a time.
msbench::EvenColumns even_columns(const Matrix& A, int chunk, int tile, int threads) {
    return msbench::EvenColumns(A.columns.count, A.total, std::min(chunk, tile), threads);
}

using msbench::ClusterSums;
constexpr int64_t kFewRows = 4096, kFewest = 30'000, kFew = 131'072, kFewEntries = 400'000;  // limits of `cluster_sums`
constexpr int kLogCluster = 4, kBands = 4, kCopies = 4;

// `chunk`: entries of a block.
template <int kThreads, int kFlight>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    cluster_sums(const __grid_constant__ Matrix A, scalar_t* y, int chunk, const __grid_constant__ msbench::EvenColumns even,
                 const __grid_constant__ ClusterSums sums) {
    constexpr int kTile = kThreads * kFlight;
    using Columns = msbench::TileColumns<kTile>;
    __shared__ Columns columns;
    extern __shared__ __align__(16) float shared[];
    sums.begin(shared);
    const int tid = threadIdx.x, end = min((sums.share() + 1) * chunk, A.total), first_row = sums.first_row();
    bool first = true;
    for (int begin = sums.share() * chunk; first || begin < end; begin += kTile, first = false) {
        typename Columns::Column column;
        column.load(A.columns, first ? even.low(begin) : columns.last, kThreads);
        const int tile_end = min(begin + kTile, end), left = tile_end - begin - tid, left_of_warp = left + tid % 32, at = begin + tid;
        const int32_t* const rows = msbench::kept(A.row_indices + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        int row[kFlight];
        scalar_t value[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            row[i] = -1;
            if (i * kThreads < left) {
                row[i] = msbench::load_once(rows + i * kThreads);
                value[i] = msbench::load_once(values + i * kThreads);
            }
        }
        if (first) sums.clear(shared, y);
        columns.clear();
        msbench::correct<kThreads>(A.columns, column, begin, first);
        if (begin < end) columns.find(A.columns, column, kThreads, begin, tile_end);
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            const int own = row[i] - first_row;
            float product = 0;
            if (sums.has(own)) product = msbench::to_float(value[i]) * columns.of(tid / 32 + i * (kThreads / 32), tid % 32);
            sums.add(shared, own, product);
        }
        if (begin + kTile < end) __syncthreads();  // before columns are cleared
    }
    sums.collect(shared, [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <int kThreads, int kFlight>
cudaError_t launch_clusters(const Matrix& A, scalar_t* y, const ClusterSums& sums, cudaStream_t stream) {
    const int chunk = chunk_of(A, sums.shares());
    return sums.launch(kThreads, 0, stream, cluster_sums<kThreads, kFlight>, A, y, chunk, even_columns(A, chunk, kThreads * kFlight, kThreads), sums);
}

using BlockSums = msbench::BlockSums;
constexpr int kThreads = BlockSums::kThreads, kBlockFlight = 8, kBlockTile = kBlockFlight * kThreads, kBlockCopies = 8, kTries = 2;

template <bool kStored>
__global__ void __launch_bounds__(kThreads, 1)
    block_sums(const __grid_constant__ Matrix A, scalar_t* y, int chunk, const __grid_constant__ msbench::EvenColumns even,
               const __grid_constant__ BlockSums sums) {
    using Columns = msbench::TileColumns<kBlockTile>;
    __shared__ Columns columns;
    extern __shared__ __align__(16) float shared[];
    const int tid = threadIdx.x, end = min((int(blockIdx.x) + 1) * chunk, A.total);
    float* own = shared;
    bool first = true;
    for (int begin = blockIdx.x * chunk; first || begin < end; begin += kBlockTile, first = false) {
        Columns::Column column;
        column.load(A.columns, first ? even.low(begin) : columns.last, kThreads);
        const int tile_end = min(begin + kBlockTile, end), left = tile_end - begin - tid, left_of_warp = left + tid % 32, at = begin + tid;
        const int32_t* const rows = msbench::kept(A.row_indices + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        int row[kBlockFlight];
        scalar_t value[kBlockFlight];
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            row[i] = -1;
            if (i * kThreads < left) {
                row[i] = msbench::load_once(rows + i * kThreads);
                value[i] = msbench::load_once(values + i * kThreads);
            }
        }
        if (first) {
            if constexpr (!kStored) sums.fetch(y);
            sums.clear(shared);
            own = sums.own(shared);
        }
        columns.clear();
        msbench::correct<kThreads>(A.columns, column, begin, first);
        if (begin < end) columns.find(A.columns, column, kThreads, begin, tile_end);
        float product[kBlockFlight];
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            if (row[i] >= 0) product[i] = msbench::to_float(value[i]) * columns.of(tid / 32 + i * (kThreads / 32), tid % 32);
        }
        __syncthreads();  // before columns are cleared
#pragma unroll
        for (int i = 0; i < kBlockFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            sums.add<kTries>(own, row[i], product[i]);
        }
    }
    sums.collect<kStored>(shared, msbench::AddQuad(), [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

using Bins = msbench::ProductBins<512, 12>;
using Tile = msbench::ProductTile<512, 12>;
constexpr int kFillBlocks = 2;  // on a multiprocessor
constexpr int kSumThreads = 768, kSplit = 2;

struct FillMemory {
    Tile products;
    msbench::TileColumns<Bins::kTile> columns;
};

// `width`: threads that look at columns.
__global__ void __launch_bounds__(Bins::kThreads, kFillBlocks)
    fill_bins(const __grid_constant__ Matrix A, int width, const __grid_constant__ Bins bins) {
    extern __shared__ __align__(16) char memory[];
    auto& [products, columns] = *reinterpret_cast<FillMemory*>(memory);
    const int tile_begin = int(int64_t(bins.tiles) * blockIdx.x / gridDim.x);
    const int tile_end = int(int64_t(bins.tiles) * (blockIdx.x + 1) / gridDim.x);
    int row[Bins::kEach];
    scalar_t value[Bins::kEach];
    const auto load = [&](int tile) {
        const int64_t at = int64_t(tile) * Bins::kTile + threadIdx.x, left = A.total - at;
        const int32_t* const rows = msbench::kept(A.row_indices + at);
        const scalar_t* const values = msbench::kept(A.values + at);
        if (left + threadIdx.x >= Bins::kTile) {
#pragma unroll
            for (int i = 0; i < Bins::kEach; ++i) {
                row[i] = msbench::load_once(rows + i * Bins::kThreads);
                value[i] = msbench::load_once(values + i * Bins::kThreads);
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            row[i] = -1;
            if (i * Bins::kThreads < left) {
                row[i] = msbench::load_once(rows + i * Bins::kThreads);
                value[i] = msbench::load_once(values + i * Bins::kThreads);
            }
        }
    };
    load(tile_begin);
    products.begin(bins);
    products.clear();
    columns.clear();
    msbench::FindLine<Bins::kThreads> search(A.columns.count, tile_begin * Bins::kTile);
    search.finish(A.columns.offsets);
    msbench::TileColumns<Bins::kTile>::Column column;
    column.load(A.columns, search.low, width);
    __syncthreads();
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        const int begin = tile * Bins::kTile;
        Tile::Ranks ranks;
        products.count(bins, row, ranks);
        columns.find(A.columns, column, width, begin, int(std::min<int64_t>(int64_t(begin) + Bins::kTile, A.total)));
        products.place(bins, tile);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Bins::kEach; ++i) {
            if (row[i] < 0) continue;
            const float factor = columns.of(int(threadIdx.x) / 32 + i * (Bins::kThreads / 32), threadIdx.x % 32);
            products.put(bins, row[i], ranks[i], msbench::to_float(value[i]) * factor);
        }
        __syncthreads();
        if (tile + 1 < tile_end) {
            load(tile + 1);
            column.load(A.columns, columns.last, width);
        }
        products.clear();
        columns.clear();
        products.store(bins, tile);
        __syncthreads();
    }
    products.finish();
}

}  // namespace

extern "C" size_t spmv_csc_workspace(int64_t rows, int64_t, int64_t nnz) {
    return rows <= BlockSums::kMostRows ? BlockSums::bytes(rows) : Bins::bytes(rows, msbench::ceil_div(nnz, Bins::kTile));
}

extern "C" cudaError_t spmv_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, {col_offsets, x, int(cols)}, int(nnz)};
    if (rows <= kFewRows && nnz <= kFewEntries && cols <= nnz) {
        if (nnz <= kFewest) return launch_clusters<1024, 2>(A, y, ClusterSums(rows, kLogCluster, kBands, 1, kCopies), stream);
        const ClusterSums sums(rows, kLogCluster, 1, msbench::kMostGroups, kCopies);
        return nnz <= kFew ? launch_clusters<512, 2>(A, y, sums, stream) : launch_clusters<512, 8>(A, y, sums, stream);
    }
    if (rows <= BlockSums::kMostRows) {
        const BlockSums sums(workspace, rows, nnz, msbench::multiprocessors(), kBlockCopies);
        const int chunk = chunk_of(A, sums.blocks);
        return sums.launch(stream, 0)(BlockSums::stored(rows) ? block_sums<true> : block_sums<false>, A, y, chunk,
                                      even_columns(A, chunk, kBlockTile, kThreads), sums);
    }
    const Bins bins(workspace, rows, msbench::ceil_div(nnz, Bins::kTile));
    const unsigned blocks = unsigned(std::min(bins.tiles, kFillBlocks * msbench::multiprocessors()));
    const int64_t twice_mean = msbench::ceil_div(2 * Bins::kTile * cols, nnz);  // columns of a tile
    const int width = int(std::min<int64_t>(Bins::kThreads, msbench::ceil_div(twice_mean, 32) * 32 + 32));
    const cudaError_t error =
        msbench::Launch(blocks, Bins::kThreads, stream).shared(sizeof(FillMemory))(fill_bins, A, width, bins);
    return error != cudaSuccess ? error : msbench::launch_sums<kSumThreads, kSplit>(bins, y, rows, stream);
}
