// y = A x with A in COO, in no order.
//
// Plans, by rows:
// - `block_sums`, up to 32768: a block of 1024 threads on each multiprocessor has all of its entries under way at once, and x, if it is
//   short, for shared memory, so that this is one trip; products are added up in shared memory, and behind a grid barrier those sums of
//   all blocks. One cooperative launch. New here: beyond 8192 rows two blocks share a chunk of entries, of which each takes those
//   in its half of the rows. Entries are read twice, the second time from L2, and as many sums less are stored and read again: a
//   matrix of 671,088 entries and 32768 rows would have 16 MiB of sums of 128 blocks each way, and has 8 MiB.
// - `bins`, else: products ordered by bins of rows (msbench_row_bins.cuh); 12 + 6 + 6 bytes an entry and the gathers of x.
// Lanes of a warp with the same row add up first: a full row would make their additions wait for each other.
//
// Bound: paper sizes are a launch, one trip to memory, a grid barrier and one to L2: a cooperative sum of 1 MB takes 5.6 us
// (measured); and the sums of all blocks through L2. Large: gathers, 203 us at 2²⁵ (165·10⁹ a second, measured), then 200 MB of
// products from memory, 46 us.

#include <cooperative_groups.h>

#include <algorithm>

#include "msbench_add_by_row.cuh"
#include "msbench_entries.cuh"
#include "msbench_launch.cuh"
#include "msbench_row_bins.cuh"

namespace {

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

// A pointer that the compiler keeps in registers: else it computes addresses anew for each load that has a condition.
template <typename T>
__device__ const T* kept(const T* pointer) {
    asm("" : "+l"(pointer));
    return pointer;
}

// Sums by row in shared memory, several copies of few rows, which warps take in turn; then those of all blocks through L2. Block b has
// chunk b % chunks of the entries, and of the rows part b / chunks.
struct SplitSums {
    static constexpr int kThreads = 1024, kWarps = kThreads / 32;
    static constexpr int kMostRows = 32768, kWholeRows = 8192, kMostBlocks = 128, kMostCopies = 8;
    static constexpr int kPlaces = 24576;   // copies of all sums in shared memory, if there is more than one
    static constexpr int kMostBits = 5;     // a block adds up 2^bits quads of rows at a time
    static constexpr int kLeastWork = 128;  // entries, or rows, that are worth a block

    float4* partial;  // [chunks][quads]
    int rows, quads, part_quads, copies, bits, chunks, parts;

    static size_t bytes(int64_t rows) { return kMostBlocks * msbench::ceil_div(rows, 4) * sizeof(float4); }

    // `workspace`: bytes(rows), aligned to 16 bytes.
    SplitSums(void* workspace, int64_t all_rows, int64_t entries)
        : partial(static_cast<float4*>(workspace)), rows(int(all_rows)), quads(int(msbench::ceil_div(all_rows, 4))), bits(0) {
        const int64_t worth = msbench::ceil_div(std::max(entries, all_rows), kLeastWork);
        const int blocks = int(std::min<int64_t>({worth, kMostBlocks, msbench::multiprocessors()}));
        parts = rows <= kWholeRows || blocks < 2 ? 1 : 2;
        chunks = blocks / parts;
        part_quads = int(msbench::ceil_div(quads, parts));
        copies = std::clamp(kPlaces / (4 * part_quads), 1, kMostCopies);
        while (bits < kMostBits && (chunks * parts) << bits < quads) ++bits;
    }
    // Floats of shared memory: the copies, and later a quad of each warp for each of a share.
    size_t shared_floats() const { return 4 * size_t(std::max(copies * part_quads, kWarps << bits)); }

    // By all threads of a block, which meet before they add.
    __device__ void clear(float* shared) const {
#pragma unroll 1
        for (int i = threadIdx.x; i < copies * part_quads; i += kThreads) reinterpret_cast<float4*>(shared)[i] = float4{0, 0, 0, 0};
    }
    // Where this warp adds.
    __device__ float* own(float* shared) const { return shared + int(threadIdx.x) / 32 % copies * part_quads * 4; }
    // Called by whole warps. `row`: within the block's part; lanes that have nothing have different rows below 0, or they would be taken
    // for peers.
    __device__ static void add(float* own, int row, float product) {
        if (msbench::combine_rows(row, product)) atomicAdd(own + row, product);
    }
    // By all threads of the grid, when all is added: calls finish(row, sum) once a row.
    template <typename Finish>
    __device__ void collect(float* shared, Finish finish) const {
        __syncthreads();
        const int part = int(blockIdx.x) / chunks, chunk = int(blockIdx.x) - part * chunks, before = part * part_quads;
        const auto* const sums = reinterpret_cast<const float4*>(shared);
        for (int i = threadIdx.x; i < min(part_quads, quads - before); i += kThreads) {
            float4 sum = sums[i];
#pragma unroll 4
            for (int copy = 1; copy < copies; ++copy) add_to(sum, sums[copy * part_quads + i]);
            partial[int64_t(chunk) * quads + before + i] = sum;
        }
        cooperative_groups::this_grid().sync();
        // Threads next to each other have quads next to each other, and every group of `share` threads some of the chunks.
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = 1 << bits, groups = kThreads >> bits;
        const int warps = min(kWarps, ((chunks << bits) + 31) / 32);  // those that have a chunk
        for (int begin = blockIdx.x * share; begin < quads; begin += gridDim.x * share) {
            const int quad = min(begin + (int(threadIdx.x) & (share - 1)), quads - 1);
            if (warp < warps) {
                float4 sum = groups >= chunks ? of_chunks<1>(quad) : 2 * groups >= chunks ? of_chunks<2>(quad) : of_chunks<4>(quad);
                for (int distance = share; distance < 32; distance *= 2) {
                    add_to(sum, float4{__shfl_xor_sync(~0u, sum.x, distance), __shfl_xor_sync(~0u, sum.y, distance),
                                       __shfl_xor_sync(~0u, sum.z, distance), __shfl_xor_sync(~0u, sum.w, distance)});
                }
                if (lane < share) reinterpret_cast<float4*>(shared)[warp * share + lane] = sum;
            }
            __syncthreads();
            const int row = 4 * begin + int(threadIdx.x);
            if (int(threadIdx.x) < 4 * share && row < rows) {
                float total = 0;
#pragma unroll 8
                for (int i = 0; i < warps; ++i) total += shared[i * 4 * share + int(threadIdx.x)];
                finish(row, total);
            }
            __syncthreads();  // before the next share
        }
    }

   private:
    __device__ static void add_to(float4& sum, const float4& other) {
        sum.x += other.x, sum.y += other.y, sum.z += other.z, sum.w += other.w;
    }
    // What this thread's chunks have, of which kEach loads without a condition are under way.
    template <int kEach>
    __device__ float4 of_chunks(int quad) const {
        const int groups = kThreads >> bits;
        float4 sum = {0, 0, 0, 0};
        for (int chunk = int(threadIdx.x) >> bits; chunk < chunks; chunk += kEach * groups) {
            float4 part[kEach];
#pragma unroll
            for (int i = 0; i < kEach; ++i) part[i] = __ldcg(partial + int64_t(min(chunk + i * groups, chunks - 1)) * quads + quad);
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                if (chunk + i * groups < chunks) add_to(sum, part[i]);
            }
        }
        return sum;
    }
};

constexpr int kTableFlight = 4, kMostTable = kTableFlight * SplitSums::kThreads;  // columns of an x that is held in shared memory

// kTable: x is held in shared memory. `chunk`: entries of a chunk, of which a warp takes 32 at a time, a thread kFlight.
template <bool kTable, int kFlight>
__global__ void __launch_bounds__(SplitSums::kThreads, 1)
    block_sums(const __grid_constant__ Matrix A, const scalar_t* x, scalar_t* y, int cols, int chunk, const __grid_constant__ SplitSums sums) {
    constexpr int kThreads = SplitSums::kThreads;
    extern __shared__ __align__(16) float table[];
    float *const shared = table + (kTable ? kMostTable : 0), *own = shared;
    const int tid = threadIdx.x, part = int(blockIdx.x) / sums.chunks, number = int(blockIdx.x) - part * sums.chunks;
    const int end = min((number + 1) * chunk, A.total), first_row = part * sums.part_quads * 4, part_rows = sums.part_quads * 4;
    bool first = true;
    for (int begin = number * chunk; first || begin + tid / 32 * 32 < end; begin += kFlight * kThreads, first = false) {
        // Few instructions before the loads: the next ones of 32 warps take as long as a trip to L2.
        const int left = end - begin - tid, left_of_warp = left + tid % 32, at = begin + tid;
        const int32_t *const rows = kept(A.row_indices + at), *const columns = kept(A.columns + at);
        const scalar_t* const values = kept(A.values + at);
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
            scalar_t factor[kTableFlight];
            if constexpr (kTable) {
#pragma unroll
                for (int i = 0; i < kTableFlight; ++i) factor[i] = msbench::load_once(x + min(tid + i * kThreads, cols - 1));
            }
            sums.clear(shared);
            own = sums.own(shared);
            if constexpr (kTable) {
#pragma unroll
                for (int i = 0; i < kTableFlight; ++i) table[tid + i * kThreads] = msbench::to_float(factor[i]);
            }
            __syncthreads();
        }
        float product[kFlight];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (kTable && i * kThreads >= left_of_warp) break;
            const int local = row[i] - first_row;
            const bool mine = row[i] >= 0 && unsigned(local) < unsigned(part_rows);
            row[i] = mine ? local : ~(tid % 32);
            if (mine) product[i] = msbench::to_float(value[i]) * (kTable ? table[column[i]] : msbench::to_float(__ldg(x + column[i])));
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (i * kThreads >= left_of_warp) break;
            sums.add(own, row[i], product[i]);
        }
    }
    sums.collect(shared, [&](int row, float sum) { y[row] = msbench::from_float<scalar_t>(sum); });
}

template <bool kTable, int kFlight>
cudaError_t launch_block(const Matrix& A, const scalar_t* x, scalar_t* y, int64_t cols, const SplitSums& sums, cudaStream_t stream) {
    const int chunk = int(msbench::ceil_div(msbench::ceil_div(A.total, sums.chunks), 32) * 32);
    const size_t floats = sums.shared_floats() + (kTable ? kMostTable : 0);
    return msbench::Launch(unsigned(sums.chunks * sums.parts), SplitSums::kThreads, stream)
        .shared(floats * sizeof(float))
        .cooperative()(block_sums<kTable, kFlight>, A, x, y, int(cols), chunk, sums);
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
    return rows <= SplitSums::kMostRows ? SplitSums::bytes(rows) : Bins::bytes(nnz);
}

extern "C" cudaError_t spmv_coo(const scalar_t* values, const int32_t* row_indices, const int32_t* col_indices,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t, cudaStream_t stream) {
    const Matrix A = {values, row_indices, col_indices, int(nnz)};
    if (rows <= SplitSums::kMostRows) {
        const SplitSums sums(workspace, rows, nnz);
        const bool table = cols <= kMostTable;
        if (nnz <= int64_t(8) * SplitSums::kThreads * sums.chunks) {
            return table ? launch_block<true, 8>(A, x, y, cols, sums, stream) : launch_block<false, 8>(A, x, y, cols, sums, stream);
        }
        return table ? launch_block<true, 11>(A, x, y, cols, sums, stream) : launch_block<false, 11>(A, x, y, cols, sums, stream);
    }
    const Bins bins(workspace, rows, nnz);
    const cudaError_t error =
        msbench::Launch(bins.tiles, bins.kThreads, stream).shared(sizeof(Scratch))(fill_bins, A, x, bins);
    if (error != cudaSuccess) return error;
    return msbench::Launch(bins.kBins, bins.kThreads, stream)
        .early()(msbench::sum_bins<scalar_t, Bins::kThreads>, bins, y, rows);
}
