// y = A x with A in ELL.
//
// Idea: kLanes threads share a row; every thread has kFlight entries under way, columns and values at once, since in this
// format nobody has to ask first where a row begins. Padding is skipped by its column, after its (random) value was loaded:
// waiting for the column would cost more than the bytes. Columns and values pass L1, which is left to x. Where rows are
// multiples of four and aligned, a load takes four entries.
//
// New here: the second trip. x depends on nothing, but its lines were asked for only when columns had come, and on a cold call they come
// from memory, too. Now each line of an x of up to 256 KiB is asked for by the first instruction of some thread, into L2 and no further,
// while entries are under way; each line by one thread of the grid, spread over its blocks.
//
// Bound: paper sizes are a launch and a trip to memory (entries) and one to L2 (x). Large: not the 8 or 6 bytes an entry
// but the gathers, 32 bytes of L2 traffic each: 165·10⁹ a second when x is 0.5 to 2 MiB (measured), 203 us at 2²⁵.
// Plans, by width and rows (modelled): fours of entries once they fill the GPU, else one entry a load, a warp or less a row
// while that has all of a row in flight, then a block a row.

#include "msbench_entries.cuh"

namespace {

constexpr int kThreads = 256;
constexpr int64_t kResident = 132 * 2048;  // threads that the GPU runs at a time

constexpr int kLine = 128;                // bytes
constexpr int64_t kMostAsked = 1 << 18;   // bytes of x: beyond, blocks that start late would ask for it, too

// x in the thread's share of its lines; `bytes` is 0 for an x that nothing is to be asked of.
__device__ void ask(const scalar_t* x, unsigned bytes) {
    const unsigned at = (blockIdx.x + gridDim.x * threadIdx.x) * kLine;
    if (at < bytes) asm volatile("prefetch.global.L2 [%0];" ::"l"(reinterpret_cast<const char*>(x) + at));
}

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
    groups(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y, int64_t rows, int w, unsigned asked) {
    ask(x, asked);
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
    blocks(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y, int w, unsigned asked) {
    ask(x, asked);
    __shared__ float scratch[32];
    const int64_t start = int64_t(blockIdx.x) * w;
    const float sum = share<kBlock, kFlight, false>(values + start, col_ids + start, x, threadIdx.x, w);
    const float total = msbench::block_reduce(sum, msbench::Sum(), scratch);
    if (threadIdx.x == 0) y[blockIdx.x] = msbench::from_float<scalar_t>(total);
}

template <int kLanes, int kFlight, bool kFours = false>
void launch(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y, int64_t rows, int64_t w,
            unsigned asked, cudaStream_t stream) {
    const unsigned count = unsigned(msbench::ceil_div(rows * kLanes, kThreads));
    groups<kLanes, kFlight, kFours><<<count, kThreads, 0, stream>>>(values, col_ids, x, y, rows, int(w), asked);
}

}  // namespace

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void*, size_t, cudaStream_t stream) {
    const int64_t bytes = cols * int64_t(sizeof(scalar_t));
    const unsigned asked = bytes <= kMostAsked ? unsigned(bytes) : 0;
    if (w % 4 == 0 && w / 4 <= 32 && rows * w >= 4 * kResident && msbench::fours_allowed(col_ids, values)) {
        if (w > 64) launch<32, 1, true>(values, col_ids, x, y, rows, w, asked, stream);
        else if (w > 32) launch<16, 1, true>(values, col_ids, x, y, rows, w, asked, stream);
        else if (w > 16) launch<8, 1, true>(values, col_ids, x, y, rows, w, asked, stream);
        else launch<4, 1, true>(values, col_ids, x, y, rows, w, asked, stream);
    } else if (w <= 4 || (w <= 16 && rows * 8 > kResident)) {
        launch<4, 4>(values, col_ids, x, y, rows, w, asked, stream);
    } else if (w <= 8 || (w <= 32 && rows * 16 > kResident)) {
        launch<8, 4>(values, col_ids, x, y, rows, w, asked, stream);
    } else if (w <= 16 || (w <= 64 && rows * 32 > kResident)) {
        launch<16, 4>(values, col_ids, x, y, rows, w, asked, stream);
    } else if (w <= 128 || (w <= 1024 && rows * 64 > kResident)) {
        launch<32, 4>(values, col_ids, x, y, rows, w, asked, stream);
    } else if (w <= 1024) {
        blocks<128, 4><<<unsigned(rows), 128, 0, stream>>>(values, col_ids, x, y, int(w), asked);
    } else {
        blocks<512, 8><<<unsigned(rows), 512, 0, stream>>>(values, col_ids, x, y, int(w), asked);
    }
    return cudaGetLastError();
}
