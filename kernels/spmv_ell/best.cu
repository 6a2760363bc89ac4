// y = A x with A in ELL.
//
// Plans, by size:
// - `walk` (msbench_ell_walk.cuh) from 2²³ entries on, in fours: blocks that stay, and clusters of them that hold part of x.
// - `groups`, `blocks`, else: kLanes threads or a block share a row; every thread has kFlight entries under way, columns and values at
//   once, since in this format nobody has to ask first where a row begins. Where rows are multiples of four and aligned, and fill the GPU,
//   a load takes four entries.
//
// Padding is skipped by its column, after its (random) value was loaded: waiting for the column would cost more than the bytes.
//
// Bound: paper sizes are a launch and two trips to memory (entries, then x), ≈ 5 us. Large: the gathers that L2 answers,
// 165·10⁹ a second (measured), 203 us at 2²⁵ if it answers all.

#include "msbench_ell_walk.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int64_t kResident = 132 * 2048;      // threads that the GPU runs at a time
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
