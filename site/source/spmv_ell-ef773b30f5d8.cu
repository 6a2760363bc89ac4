// y = A x with A in ELL.
//
// Plans, by size:
// - `on_chip`: each block copies all of x, up to 128 KiB, to shared memory while the entries of its rows are under way: one trip to
//   memory, where gathers from L2 make a second one. While all blocks run at once, and their copies move no more than four times as much
//   as the entries. The copy goes first: a version that began with the entries took 4 us longer (w = 327). A row has lanes enough for all of its
//   entries to be under way, six to a lane. y is touched at once: what is stored last waits for its address to be translated, else.
// - `walk` (msbench_ell_walk.cuh) from 2²³ entries on, in fours: blocks that stay, and clusters of them that hold part of x.
// - `groups`, `blocks`, else: kLanes threads or a block share a row; every thread has kFlight entries under way, columns and values at
//   once, since in this format nobody has to ask first where a row begins. Where rows are multiples of four and aligned, and fill the GPU,
//   a load takes four entries.
//
// Padding is skipped by its column, after its (random) value was loaded: waiting for the column would cost more than the bytes.
//
// Bound: paper sizes are a launch, one trip to memory, and a copy of x for each multiprocessor. Large: the gathers that L2 answers,
// 165·10⁹ a second (measured), 203 us at 2²⁵ if it answers all.
// Measured (H100, 2026-11-26, an empty call is 4.7 us) without the first two plans, and with them: 2048 rows, w = 327; 163; 81; 40; 20; 10:
// 10.8; 8.7; 7.8; 7.0; 6.8; 6.5 us, and 8.9; 7.6; 6.9; 6.5; 6.3; 6.3 (bf16 9.7; 8.5; 7.1; 6.9; 6.5; 6.2, and 8.5; 7.1; 6.5; 6.4; 6.2; 6.2).
// Large 264, and 215 (bf16 246, and 196).
// H200, 2026-11-26 (empty: 4.4), w = 10; 20; 40; 81; 163; 327 without touching y, and with that and six entries to a lane: 6.1; 6.3; 6.7; 6.95; 7.4;
// 8.5, and 5.7; 5.9; 6.2; 6.5; 6.9; 8.1 (bf16 6.0; 6.2; 6.4; 6.6; 7.1; 8.2, and 5.7; 5.9; 6.0; 6.4; 6.8; 7.8). Copies of x that the blocks of a cluster
// make for each other (multicast) cost up to 4 us, and a warp that runs through the code before the others need it gains 0.1 at most.

#include <algorithm>

#include "msbench_ell_walk.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int64_t kResident = 132 * 2048;      // threads that the GPU runs at a time
constexpr int64_t kMostOnChip = 128 * 1024;    // bytes of x that each block copies
constexpr int64_t kCopies = 132 * 224 * 1024;  // bytes of copies that there is room for
constexpr int64_t kManyEntries = 1 << 23;

__device__ float product(int32_t column, float value, const scalar_t* x, float sum) {
    return column >= 0 ? fmaf(value, msbench::to_float(__ldg(x + column)), sum) : sum;
}

// The share of a row that begins at entry `first` and goes on every kStride entries (or fours of entries).
template <int kStride, int kFlight, bool kFours>
__device__ float share(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, int first, int w) {
    constexpr int kEach = kFours ? 4 : 1;
    float sum = 0;
    for (int k = first * kEach; k < w; k += kStride * kFlight * kEach) {
        int32_t column[kFlight][kEach];
        float value[kFlight][kEach];
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            const int at = k + i * kStride * kEach;
            if constexpr (kFours) {
                if (at < w) {
                    msbench::load_four_once(col_ids + at, column[i]);
                    msbench::load_four_once(values + at, value[i]);
                }
            } else if (at < w) {
                column[i][0] = msbench::load_once(col_ids + at);
                value[i][0] = msbench::to_float(msbench::load_once(values + at));
            }
        }
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (k + i * kStride * kEach < w) {
#pragma unroll
                for (int j = 0; j < kEach; ++j) sum = product(column[i][j], value[i][j], x, sum);
            }
        }
    }
    return sum;
}

template <int kLanes, int kFlight, bool kFours>
__global__ void __launch_bounds__(kThreads, 2048 / kThreads)
    groups(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y, int64_t rows, int w) {
    const int64_t row = int64_t(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
    const int lane = threadIdx.x % kLanes;
    float sum = 0;
    if (row < rows) sum = share<kLanes, kFlight, kFours>(values + row * w, col_ids + row * w, x, lane, w);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (row < rows && lane == 0) y[row] = msbench::from_float<scalar_t>(sum);
}

template <int kBlock, int kFlight>
__global__ void __launch_bounds__(kBlock)
    blocks(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y, int w) {
    __shared__ float scratch[32];
    const int64_t start = int64_t(blockIdx.x) * w;
    const float sum = share<kBlock, kFlight, false>(values + start, col_ids + start, x, threadIdx.x, w);
    const float total = msbench::block_reduce(sum, msbench::Sum(), scratch);
    if (threadIdx.x == 0) y[blockIdx.x] = msbench::from_float<scalar_t>(total);
}

// kLanes threads a row with all of x on chip.
template <int kLanes, int kFlight>
__global__ void __launch_bounds__(1024)
    on_chip(const scalar_t* values, const int32_t* col_ids, const scalar_t* x_global, scalar_t* y, int rows, int cols, int w) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ float sums[32];
    scalar_t* const x = reinterpret_cast<scalar_t*>(raw);
    msbench::begin_copy(x, x_global, cols);
    const int row = blockIdx.x * (blockDim.x / kLanes) + threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
    if (threadIdx.x == 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(y + row));
    const int64_t start = int64_t(row) * w;
    const int end = row < rows ? w : 0;
    int32_t column[kFlight];
    scalar_t value[kFlight];
    const auto load = [&](int k) {
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            column[i] = -1;
            if (k + i * kLanes < end) {
                column[i] = msbench::load_once(col_ids + start + k + i * kLanes);
                value[i] = msbench::load_once(values + start + k + i * kLanes);
            }
        }
    };
    load(lane);
    msbench::end_copy();
    __syncthreads();
    float sum = 0;
    for (int k = lane;;) {
#pragma unroll
        for (int i = 0; i < kFlight; ++i) {
            if (column[i] >= 0) sum = fmaf(msbench::to_float(value[i]), msbench::to_float(x[column[i]]), sum);
        }
        k += kLanes * kFlight;
        if (k >= end) break;
        load(k);
    }
    constexpr int kInWarp = kLanes < 32 ? kLanes : 32;
#pragma unroll
    for (int distance = kInWarp / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if constexpr (kLanes > 32) {
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        if (lane == 0) {
            for (int i = 1; i < kLanes / 32; ++i) sum += sums[threadIdx.x / 32 + i];
        }
    }
    if (row < rows && lane == 0) y[row] = msbench::from_float<scalar_t>(sum);
}

struct Ell {
    const scalar_t* values;
    const int32_t* col_ids;
    const scalar_t* x;
    scalar_t* y;
    int64_t rows, cols, w;
    cudaStream_t stream;
};

template <int kLanes, int kFlight, bool kFours = false>
cudaError_t launch(const Ell& A) {
    const unsigned count = unsigned(msbench::ceil_div(A.rows * kLanes, kThreads));
    groups<kLanes, kFlight, kFours><<<count, kThreads, 0, A.stream>>>(A.values, A.col_ids, A.x, A.y, A.rows, int(A.w));
    return cudaGetLastError();
}

// Of a block.
int64_t rows_on_chip(int lanes) {
    return lanes <= 4 ? 64 : lanes <= 16 ? 32 : 16;
}

template <int kLanes, int kFlight>
cudaError_t launch_on_chip(const Ell& A) {
    const int64_t each = rows_on_chip(kLanes);
    return msbench::Launch(unsigned(msbench::ceil_div(A.rows, each)), unsigned(each * kLanes), A.stream)
        .shared(msbench::vector_bytes(A.cols))(on_chip<kLanes, kFlight>, A.values, A.col_ids, A.x, A.y, int(A.rows), int(A.cols), int(A.w));
}

template <int kLanes>
cudaError_t launch_walk(const Ell& A) {
    const msbench::EllMatrix matrix = {A.values, A.col_ids, int(A.rows), int(A.w)};
    if (msbench::vector_bytes(A.cols) <= msbench::kHeldBytes) return msbench::multiply_by_walking<kLanes, 1>(matrix, A.x, A.y, A.cols, A.stream);
    return msbench::multiply_by_walking<kLanes, msbench::kVectorCluster>(matrix, A.x, A.y, A.cols, A.stream);
}

}  // namespace

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void*, size_t, cudaStream_t stream) {
    const Ell A = {values, col_ids, x, y, rows, cols, w, stream};
    int lanes = 4;
    while (lanes < 64 && 6 * lanes < w && 2 * lanes * rows <= kResident) lanes *= 2;
    const int64_t x_bytes = int64_t(msbench::vector_bytes(cols)), copies = msbench::ceil_div(rows, rows_on_chip(lanes)) * x_bytes;
    const int64_t entries = rows * w * int64_t(sizeof(scalar_t) + sizeof(int32_t));
    if (x_bytes <= kMostOnChip && copies <= std::min(4 * entries, kCopies) && lanes * rows <= kResident && w <= 8 * lanes) {
        if (lanes == 4) return w <= 12 ? launch_on_chip<4, 3>(A) : launch_on_chip<4, 6>(A);
        if (lanes == 8) return launch_on_chip<8, 6>(A);
        if (lanes == 16) return launch_on_chip<16, 6>(A);
        if (lanes == 32) return launch_on_chip<32, 6>(A);
        return launch_on_chip<64, 6>(A);
    }
    if (w % 4 == 0 && w / 4 <= 32 && rows * w >= 4 * kResident && msbench::fours_allowed(col_ids, values)) {
        if (rows * w >= kManyEntries) {
            if (w > 64) return launch_walk<32>(A);
            if (w > 32) return launch_walk<16>(A);
            if (w > 16) return launch_walk<8>(A);
            return launch_walk<4>(A);
        }
        if (w > 64) return launch<32, 1, true>(A);
        if (w > 32) return launch<16, 1, true>(A);
        if (w > 16) return launch<8, 1, true>(A);
        return launch<4, 1, true>(A);
    }
    if (w <= 4 || (w <= 16 && rows * 8 > kResident)) return launch<4, 4>(A);
    if (w <= 8 || (w <= 32 && rows * 16 > kResident)) return launch<8, 4>(A);
    if (w <= 16 || (w <= 64 && rows * 32 > kResident)) return launch<16, 4>(A);
    if (w <= 128 || (w <= 1024 && rows * 64 > kResident)) return launch<32, 4>(A);
    if (w <= 1024) blocks<128, 4><<<unsigned(rows), 128, 0, stream>>>(values, col_ids, x, y, int(w));
    else blocks<512, 8><<<unsigned(rows), 512, 0, stream>>>(values, col_ids, x, y, int(w));
    return cudaGetLastError();
}
