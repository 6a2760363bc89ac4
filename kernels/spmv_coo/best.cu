// y = A x with A in COO, in no order.
//
// Plans, by rows:
// - `spread_sums`, up to 32768: sums that are zero between calls, a sector each (msbench_spread_sums.cuh), take all products;
//   after a grid barrier they are rounded and set back. One cooperative launch. Sums in shared memory for every block, added up
//   behind the barrier, took 11.5 us where the naive kernels take 9.2 (measured, 1024 rows).
// - `bins`, else: products ordered by bins of rows (msbench_row_bins.cuh); 12 + 6 + 6 bytes an entry and the gathers of x.
// Lanes of a warp with the same row add up first: a full row would make their additions wait for each other. Where that is not enough,
// a block adds up by itself: rows that several lanes of a warp have had at once get a sum in shared memory (HotRows).
//
// Bound: paper sizes are a launch, two trips to memory, a grid barrier and one more trip, ≈ 7 us. Large: gathers, 203 us
// at 2²⁵ (165·10⁹ a second, measured), then 200 MB of products from memory, 46 us. Additions to one place come 2.25 ns apart (measured
// by naive.cu: 117 us for 52,000 entries of row 0).
// Without HotRows (2026-11-24) the skewed case of 2¹⁵ rows took 1.1 times the bar's 63 us: nine warps in ten had an entry of row 0, so that
// 19,000 additions to it, 43 us, remained, and 8,800 to row 2. Now there are 660 to row 0, one a block, and 3,000 to any other, 7 us, which
// is what all 600,000 take at 101·10⁹ a second (counted on such a matrix; times by reasoning, not yet measured).

#include "msbench_entries.cuh"
#include "msbench_row_bins.cuh"
#include "msbench_spread_sums.cuh"

namespace {

constexpr int kThreads = 256, kBlocks = 5;  // on a multiprocessor

struct Matrix {
    const scalar_t* values;
    const int32_t *row_indices, *columns;
    int total;
};

// Rows and products of every `stride`-th entry from `first` to `end`, all under way at once; row -1 behind the end.
template <int kDepth>
__device__ void load_products(const Matrix& A, const scalar_t* x, int64_t first, int64_t end, int stride, int (&row)[kDepth],
                              float (&product)[kDepth]) {
    int column[kDepth];
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        const int64_t at = first + int64_t(i) * stride;
        row[i] = -1;
        if (at < end) {
            row[i] = msbench::load_once(A.row_indices + at);
            column[i] = msbench::load_once(A.columns + at);
            product[i] = msbench::to_float(msbench::load_once(A.values + at));
        }
    }
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
        if (row[i] >= 0) product[i] *= msbench::to_float(__ldg(x + column[i]));
    }
}

// A block's own sums of rows that come again and again, each in the place that its number says, for the first that claims it.
struct HotRows {
    static constexpr int kPlaces = 64;
    int rows[kPlaces], some;
    float sums[kPlaces];

    __device__ void clear() {
        if (threadIdx.x < kPlaces) rows[threadIdx.x] = -1, sums[threadIdx.x] = 0;
        if (threadIdx.x == 0) some = 0;
        __syncthreads();
    }
    // Whether there is a hot row.
    __device__ bool any() const { return *const_cast<const volatile int*>(&some) != 0; }
    // Called by whole warps. Three lanes with one row make it hot, two if there is a hot row already: in even matrices it is hardly
    // ever three (twice in 15,645 warps of 10,007 rows), and all goes to global memory. A claim that another warp sees late costs
    // an addition there, and nothing else.
    template <int kDepth>
    __device__ void add(const msbench::SpreadSums& spread, const int (&row)[kDepth], float (&product)[kDepth]) {
        bool adds[kDepth];
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            const unsigned peers = __match_any_sync(~0u, row[i]);
            adds[i] = msbench::combine_peers(peers, row[i], product[i]);
            if (adds[i] && __popc(peers) >= (any() ? 2 : 3)) {
                atomicCAS(rows + (row[i] & (kPlaces - 1)), -1, row[i]);
                some = 1;
            }
        }
        __syncwarp();
        const bool look = any();
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            if (!adds[i]) continue;
            const int place = row[i] & (kPlaces - 1);
            const bool hot = look && *const_cast<volatile int*>(rows + place) == row[i];
            if (hot) atomicAdd(sums + place, product[i]);
            else spread.add_combined(row[i], product[i]);
        }
    }
    __device__ void finish(const msbench::SpreadSums& spread) const {
        __syncthreads();
        if (threadIdx.x < kPlaces && rows[threadIdx.x] >= 0) spread.add_combined(rows[threadIdx.x], sums[threadIdx.x]);
    }
};

// kFlight: entries that a thread has under way. With one there is nothing to add up in a block.
template <int kFlight>
__global__ void __launch_bounds__(kThreads, kBlocks)
    spread_sums(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int rows,
                const __grid_constant__ msbench::SpreadSums sums) {
    __shared__ HotRows hot;
    if constexpr (kFlight > 1) hot.clear();
    const int64_t stride = gridDim.x * kThreads, first = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    for (int64_t k = first; k - threadIdx.x % 32 < A.total; k += kFlight * stride) {
        int row[kFlight];
        float product[kFlight];
        load_products(A, x, k, A.total, int(stride), row, product);
        if constexpr (kFlight > 1) hot.add(sums, row, product);
        else sums.add(row[0], product[0]);
    }
    if constexpr (kFlight > 1) hot.finish(sums);
    sums.collect(rows, [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <int kFlight>
cudaError_t launch_spread(const Matrix& A, const scalar_t* x, scalar_t* y, int64_t rows, cudaStream_t stream) {
    const int64_t most = msbench::resident_blocks(spread_sums<kFlight>, kThreads);
    const unsigned blocks = unsigned(std::min(most, msbench::ceil_div(A.total, kThreads)));
    return msbench::Launch(blocks, kThreads, stream)
        .cooperative()(spread_sums<kFlight>, A, x, y, int(rows), msbench::SpreadSums(rows));
}

using Bins = msbench::RowBins<float, 768>;
using Scratch = msbench::TileScratch<float, 768>;

__global__ void __launch_bounds__(Bins::kThreads, 2)
    fill_bins(const __grid_constant__ Matrix A, const scalar_t* x, const __grid_constant__ Bins bins) {
    extern __shared__ __align__(16) char memory[];
    const int64_t first = int64_t(blockIdx.x) * Bins::kTile;
    const int64_t end = min(first + Bins::kTile, int64_t(A.total));
    int row[Bins::kEach];
    float product[Bins::kEach];
    load_products(A, x, first + threadIdx.x, end, Bins::kThreads, row, product);
    store_tile(bins, blockIdx.x, row, product, *reinterpret_cast<Scratch*>(memory));
}

}  // namespace

extern "C" size_t spmv_coo_workspace(int64_t rows, int64_t, int64_t nnz) {
    return rows <= msbench::kSpreadRows ? 0 : Bins::bytes(nnz);
}

extern "C" cudaError_t spmv_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, col_indices, int(nnz)};
    if (rows <= msbench::kSpreadRows) {
        if (nnz <= 132 * kBlocks * kThreads) return launch_spread<1>(A, x, y, rows, stream);
        return launch_spread<4>(A, x, y, rows, stream);
    }
    const Bins bins(workspace, rows, nnz);
    const cudaError_t error =
        msbench::Launch(bins.tiles, bins.kThreads, stream).shared(sizeof(Scratch))(fill_bins, A, x, bins);
    if (error != cudaSuccess) return error;
    return msbench::Launch(bins.kBins, bins.kThreads, stream)
        .early()(msbench::sum_bins<scalar_t, Bins::kThreads>, bins, y, rows);
}
