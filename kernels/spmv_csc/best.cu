// y = A x with A in CSC.
//
// Plans, by rows:
// - `block_sums`, up to 32768: a block of 1024 threads on each multiprocessor has an equal share of A's entries, however long columns are,
//   and all of a tile's are under way while it looks for their columns: one step of 1024 probes, and then a thread a column loads its
//   bounds and x, and writes x down where the column begins. Products are added up in shared memory, and behind a grid barrier those sums
//   of all blocks (msbench_block_sums.cuh). One cooperative launch.
// - `bins`, else: products ordered by bins of rows (msbench_product_bins.cuh), which blocks share out if they are uneven
//   (msbench_bin_shares.cuh). A block has neighbouring tiles, so it searches for a column only once.
//
// Bound: paper sizes are a launch, two trips to memory, a grid barrier and one to L2, ≈ 7 us, and the sums of all blocks through
// L2, 1 MB. Large: 8 + 6 + 6 bytes an entry (6 + 6 + 6 in bf16), on an H100 173 us until products are stored in no order, and 76 to read
// them.
//
// Measured (H100, November 2026, own program, us; 2048 and 32768 columns, and 32768 skewed): 10.7, 15.7, 19.9, when lanes added up by row
// first 10.8, 19.0, 21.6. Large: 306 (195 and 111), bf16 282; by atomic additions in memory at 101·10⁹ a second 448 and 438.
// Lost: 8 entries of 768 threads, whose registers spill, 341; some products added in memory at once, 2, 3, 4 or 6 of 12, 299, 303, 319,
// 336; products in chunks that stay in L2, 360 and more.
// H200, 2026-11-26: asking for offsets and x at once takes 0.1 to 0.3 off 9.9 (1024 columns) to 15.5 (32768). One cluster of 16 blocks in place
// of the grid takes 10.5, and 11.8 for 10.3 at 2048 columns.

#include "msbench_add_quad.cuh"
#include "msbench_block_sums.cuh"
#include "msbench_entries.cuh"
#include "msbench_find_line.cuh"
#include "msbench_prefetch.cuh"
#include "msbench_product_bins.cuh"
#include "msbench_sum_products.cuh"

namespace {

struct Matrix {
    const scalar_t* values;
    const int32_t *row_indices, *offsets;
    int cols, total;
};

// What a block knows of the columns of a tile, whose entries warps take 32 at a time: at the first of each such step and of each column
// there is a bit, and the column's element of x.
template <int kTile>
struct TileColumns {
    // One that a thread looks at.
    struct Column {
        int number, first, stop;
        scalar_t factor;

        __device__ void load(const Matrix& A, const scalar_t* x, int low, int width) {
            number = low + int(threadIdx.x);
            stop = 0;
            if (int(threadIdx.x) >= width) return;
            const int at = min(number, A.cols - 1);
            first = msbench::load_once(A.offsets + at);
            stop = msbench::load_once(A.offsets + at + 1);
            factor = msbench::load_once(x + at);
        }
    };
    unsigned begins[kTile / 32];
    int last;  // the column of the tile's last entry
    float x[kTile];

    __device__ void clear() {
        for (int i = threadIdx.x; i < kTile / 32; i += blockDim.x) begins[i] = 0;
    }
    // By all threads of a block, after a barrier: `own` has been loaded from the column of entry `begin`, or one before it, on, by `width`
    // threads, which take more until they are at `end`. Ends with a barrier.
    __device__ void find(const Matrix& A, const scalar_t* from, Column& own, int width, int begin, int end) {
        for (int low = own.number - int(threadIdx.x);;) {
            const int until = own.number < A.cols ? min(own.stop, end) - begin : 0, at = max(own.first - begin, 0);
            const bool ends = own.stop >= end;
            if (at < until) {
                const float factor = msbench::to_float(own.factor);
                x[at] = factor;
                atomicOr(begins + at / 32, 1u << at % 32);
                for (int k = (at / 32 + 1) * 32; k < until; k += 32) {
                    x[k] = factor;
                    atomicOr(begins + k / 32, 1u);
                }
                if (ends) last = own.number;
            }
            if (__syncthreads_or(ends)) return;
            own.load(A, from, low += width, width);
        }
    }
    // The factor of a step's entry.
    __device__ float of(int step, int lane) const {
        const unsigned here = begins[step] & (~0u >> (31 - lane));
        return x[step * 32 + 31 - __clz(here)];
    }
};

using BlockSums = msbench::BlockSums;
constexpr int kBlockFlight = 8, kBlockTile = kBlockFlight * BlockSums::kThreads;
constexpr int kNear = 256;  // columns that are not worth another step of the search

// `chunk`: entries of a block.
template <bool kStored>
__global__ void __launch_bounds__(BlockSums::kThreads, 1)
    block_sums(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int chunk, const __grid_constant__ BlockSums sums) {
    constexpr int kThreads = BlockSums::kThreads;
    using Columns = TileColumns<kBlockTile>;
    __shared__ Columns columns;
    extern __shared__ __align__(16) float shared[];
    const int tid = threadIdx.x, end = min((int(blockIdx.x) + 1) * chunk, A.total);
    float* own = shared;
    const int thread = int(blockIdx.x) * kThreads + tid;
    msbench::prefetch_sector(A.offsets, A.cols + 1, thread);
    msbench::prefetch_sector(x, A.cols, thread);
    bool first = true;
    for (int begin = blockIdx.x * chunk; first || begin < end; begin += kBlockTile, first = false) {
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
        int low = 0;
        if (first) {
            msbench::FindLine<kThreads> search(A.cols, begin);
            const bool far = A.cols > kThreads;  // else all columns are looked at, anyway
            bool before = far && search.probe(A.offsets);
            if constexpr (!kStored) sums.fetch(y);
            sums.clear(shared);
            own = sums.own(shared);
            if (far) search.narrow(__syncthreads_count(before));
            while (far && search.high - search.low > kNear) {
                before = search.probe(A.offsets);
                search.narrow(__syncthreads_count(before));
            }
            low = search.low;
        } else {
            low = columns.last;
        }
        columns.clear();
        Columns::Column column;
        column.load(A, x, low, kThreads);
        __syncthreads();
        if (begin < end) columns.find(A, x, column, kThreads, begin, tile_end);
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
            sums.add(own, row[i], product[i]);
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
    TileColumns<Bins::kTile> columns;
};

// `width`: threads that look at columns.
__global__ void __launch_bounds__(Bins::kThreads, kFillBlocks)
    fill_bins(const __grid_constant__ Matrix A, const scalar_t* x, int width, const __grid_constant__ Bins bins) {
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
    msbench::FindLine<Bins::kThreads> search(A.cols, tile_begin * Bins::kTile);
    search.finish(A.offsets);
    TileColumns<Bins::kTile>::Column column;
    column.load(A, x, search.low, width);
    __syncthreads();
    for (int tile = tile_begin; tile < tile_end; ++tile) {
        const int begin = tile * Bins::kTile;
        Tile::Ranks ranks;
        products.count(bins, row, ranks);
        columns.find(A, x, column, width, begin, int(std::min<int64_t>(int64_t(begin) + Bins::kTile, A.total)));
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
            column.load(A, x, columns.last, width);
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
    const Matrix A = {values, row_indices, col_offsets, int(cols), int(nnz)};
    if (rows <= BlockSums::kMostRows) {
        const BlockSums sums(workspace, rows, nnz);
        const int chunk = int(msbench::ceil_div(msbench::ceil_div(nnz, sums.blocks), 32) * 32);
        return sums.launch(stream, 0)(BlockSums::stored(rows) ? block_sums<true> : block_sums<false>, A, x, y, chunk, sums);
    }
    const Bins bins(workspace, rows, msbench::ceil_div(nnz, Bins::kTile));
    const unsigned blocks = unsigned(std::min(bins.tiles, kFillBlocks * msbench::multiprocessors()));
    const int64_t twice_mean = msbench::ceil_div(2 * Bins::kTile * cols, nnz);  // columns of a tile
    const int width = int(std::min<int64_t>(Bins::kThreads, msbench::ceil_div(twice_mean, 32) * 32 + 32));
    const cudaError_t error =
        msbench::Launch(blocks, Bins::kThreads, stream).shared(sizeof(FillMemory))(fill_bins, A, x, width, bins);
    return error != cudaSuccess ? error : msbench::launch_sums<kSumThreads, kSplit>(bins, y, rows, stream);
}
