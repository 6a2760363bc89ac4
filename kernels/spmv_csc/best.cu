// y = A x with A in CSC.
//
// Plans, by rows:
// - `block_sums`, up to 32768: a block of 1024 threads on each multiprocessor has an equal share of A's entries, however long columns are,
//   and all of a tile's are under way while it looks for their columns: one step of 1024 probes, and then a thread a column loads its
//   bounds and x, and writes x down where the column begins. Products are added up in shared memory, and behind a grid barrier those sums
//   of all blocks (msbench_block_sums.cuh). One cooperative launch.
// - `multiply`, else, with sums in the workspace, cleared before and rounded in a second kernel: kLanes threads share a column, whose
//   element of x they load together with its offsets; then all of its entries are under way at once. Columns of more than 8 steps are
//   shared by the block's warps. Very long ones are not the block's: the last blocks of the grid have an equal share of A's entries each,
//   and look for the column that theirs begins in, as in spmv_csr.
//
// Bound: paper sizes are a launch, two trips to memory, a grid barrier and one to L2, ≈ 7 us, and the sums of all blocks through
// L2, 1 MB. Large: atomic additions, 101·10⁹ a second (measured), 332 us for 2²⁵.
//
// Measured (H100, November 2026, own program, us; 2048 and 32768 columns, and 32768 skewed): 10.7, 15.7, 19.9, when lanes added up by row
// first 10.8, 19.0, 21.6.

#include "msbench_add_quad.cuh"
#include "msbench_block_sums.cuh"
#include "msbench_entries.cuh"
#include "msbench_find_line.cuh"

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kBlocks = 5;  // on a multiprocessor
constexpr int kFlight = 4;
constexpr int kSteps = 8;  // a column of more than kSteps x kLanes entries is put aside
constexpr int kMostShares = 128, kLeastShare = 1024;

struct Matrix {
    const scalar_t* values;
    const int32_t *row_indices, *offsets;
    int cols, total, share;
    unsigned column_blocks;  // those behind have a share each
};

// Sums of all rows in the workspace.
struct MemorySums {
    float* sums;
    __device__ void add(int row, float product) const {
        if (row >= 0) atomicAdd(sums + row, product);
    }
};

// Adds every `stride`-th entry from `first` on, times `factor`. Called by whole warps.
template <typename Sums>
__device__ void add_entries(const Matrix& A, float factor, int first, int end, int stride, const Sums& sums) {
    for (int k = first; __any_sync(~0u, k < end); k += kFlight * stride) {
        int row[kFlight];
        float product[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            row[i] = -1;
            if (k + i * stride < end) {
                row[i] = __ldcs(A.row_indices + k + i * stride);
                product[i] = msbench::to_float(__ldcs(A.values + k + i * stride)) * factor;
            }
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (!__any_sync(~0u, row[i] >= 0)) break;
            sums.add(row[i], product[i]);
        }
    }
}

// By a block: entries of the very long column that has entry `at`, from there to the next share, or from its first on.
template <typename Sums>
__device__ void add_share(const Matrix& A, const scalar_t* x, const Sums& sums) {
    const int at = (blockIdx.x - A.column_blocks) * A.share;
    msbench::FindLine<kThreads> find(A.cols, at);
    find.finish(A.offsets);
    const int begin = A.offsets[find.low], end = A.offsets[find.low + 1];
    if (end - begin < A.share) return;
    const int from = begin > at - A.share ? begin : at;
    add_entries(A, msbench::to_float(x[find.low]), from + int(threadIdx.x), min(end, at + A.share), kThreads, sums);
}

// Adds all products. By all threads of the grid.
template <int kLanes, typename Sums>
__device__ void add_columns(const Matrix& A, const scalar_t* x, const Sums& sums) {
    constexpr int kGroups = kThreads / kLanes;
    __shared__ int aside, columns_aside[kGroups];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x >= A.column_blocks) {
        add_share(A, x, sums);
        return;
    }
    for (int start = 0; start < A.cols; start += A.column_blocks * kGroups) {
        // Neighbours go to different blocks, a warp's worth at a time.
        const int column = start + (warp * A.column_blocks + blockIdx.x) * (32 / kLanes) + lane / kLanes;
        if (threadIdx.x == 0) aside = 0;
        int first = 0, end = 0;
        float factor = 0;
        if (column < A.cols) {
            first = A.offsets[column];
            end = A.offsets[column + 1];
            factor = msbench::to_float(x[column]);
        }
        __syncthreads();
        if (end - first > kSteps * kLanes) {
            if (lane % kLanes == 0 && end - first < A.share) columns_aside[atomicAdd(&aside, 1)] = column;
            end = first;
        }
        add_entries(A, factor, first + lane % kLanes, end, kLanes, sums);
        __syncthreads();
        const int count = aside, per_column = count > 0 ? max(1, kWarps / count) : 1;
        for (int i = warp / per_column; i < count && warp < kWarps / per_column * per_column; i += kWarps / per_column) {
            const int c = columns_aside[i], from = A.offsets[c] + warp % per_column * 32 + lane;
            add_entries(A, msbench::to_float(x[c]), from, A.offsets[c + 1], per_column * 32, sums);
        }
        __syncthreads();
    }
}

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
            if constexpr (!kStored) sums.fetch();
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

template <int kLanes>
__global__ void __launch_bounds__(kThreads, kBlocks)
    add_products(const __grid_constant__ Matrix A, const scalar_t* x, const __grid_constant__ MemorySums sums) {
    add_columns<kLanes>(A, x, sums);
}

__global__ void __launch_bounds__(kThreads) round_sums(const float* sums, scalar_t* y, int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    cudaGridDependencySynchronize();
    if (row < rows) y[row] = msbench::from_float<scalar_t>(__ldcg(sums + row));
}

template <int kLanes>
cudaError_t launch(Matrix A, const scalar_t* x, scalar_t* y, int64_t rows, void* workspace, cudaStream_t stream) {
    const int64_t most = msbench::resident_blocks(add_products<kLanes>, kThreads);
    A.share = int(std::max<int64_t>(kLeastShare, msbench::ceil_div(A.total, std::min<int64_t>(kMostShares, most / 4))));
    const int64_t shares = A.total < A.share ? 0 : msbench::ceil_div(A.total, A.share);
    const int64_t columns = msbench::ceil_div(A.cols, kThreads / kLanes);
    const MemorySums sums = {static_cast<float*>(workspace)};
    A.column_blocks = unsigned(columns);
    const cudaError_t error = cudaMemsetAsync(sums.sums, 0, rows * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    add_products<kLanes><<<A.column_blocks + unsigned(shares), kThreads, 0, stream>>>(A, x, sums);
    return msbench::Launch(unsigned(msbench::ceil_div(rows, kThreads)), kThreads, stream)
        .early()(round_sums, sums.sums, y, rows);
}

}  // namespace

extern "C" size_t spmv_csc_workspace(int64_t rows, int64_t, int64_t) {
    return rows <= BlockSums::kMostRows ? BlockSums::bytes(rows) : rows * sizeof(float);
}

extern "C" cudaError_t spmv_csc(const scalar_t* values, const int32_t* row_indices, const int32_t* col_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, col_offsets, int(cols), int(nnz), 0, 0};
    if (rows <= BlockSums::kMostRows) {
        const BlockSums sums(workspace, rows, nnz);
        const int chunk = int(msbench::ceil_div(msbench::ceil_div(nnz, sums.blocks), 32) * 32);
        return sums.launch(stream, 0)(BlockSums::stored(rows) ? block_sums<true> : block_sums<false>, A, x, y, chunk, sums);
    }
    const int64_t mean = msbench::ceil_div(nnz, cols);
    if (mean > 48 || cols * 32 <= 132 * kBlocks * kThreads / 2) return launch<32>(A, x, y, rows, workspace, stream);
    return launch<8>(A, x, y, rows, workspace, stream);
}
