// Softmax of every row: y = exp(x - max) / sum(exp(x - max)).
//
// Idea: a row stays in the registers of the threads that share it (a warp up to 512 columns, otherwise a block), so
// memory is read once and written once, in 16-byte accesses that are all in flight together; the maximum and the sum
// cross the warp by shuffles and the block by one barrier each. The exponentials are computed once and scaled by 1 /
// sum. Rows that don't start on 16 bytes take the same path one element at a time.
//
// Bound: 8 bytes an element, 5 flops; one launch. A few rows can't fill the GPU: they cost the launch, one trip to
// memory and what a single multiprocessor needs to move a row and exponentiate it.

#include "msbench.cuh"

namespace {

constexpr int WIDTH = 16 / sizeof(scalar_t);  // elements of a 16-byte access
constexpr int WARPS_PER_BLOCK = 4;            // where a warp has a row of its own and rows are many
constexpr int64_t MANY_ROWS = 528;            // four for each of 132 multiprocessors
constexpr int MAX_COLUMNS = 16384, MAX_THREADS = 1024;

template <int N>
struct alignas(N * sizeof(scalar_t)) Pack {
    scalar_t v[N];
};

template <int N>
__device__ void load(const scalar_t* row, int64_t pack, float (&values)[N]) {
    const Pack<N> raw = reinterpret_cast<const Pack<N>*>(row)[pack];
#pragma unroll
    for (int k = 0; k < N; ++k) values[k] = msbench::to_float(raw.v[k]);
}

template <int N>
__device__ void store(scalar_t* row, int64_t pack, const float (&values)[N]) {
    if constexpr (N == 1) {
        row[pack] = values[0];
    } else {
        __stcs(reinterpret_cast<float4*>(row) + pack, make_float4(values[0], values[1], values[2], values[3]));
    }
}

// The reduction over the THREADS threads of a row, in each of them. `slots` is shared memory of this call alone.
template <int THREADS, typename Op>
__device__ float row_reduce(float v, Op op, float* slots) {
    v = msbench::warp_reduce(v, op);
    if constexpr (THREADS > 32) {
        const int lane = threadIdx.x % 32;
        if (lane == 0) slots[threadIdx.x / 32] = v;
        __syncthreads();
        v = msbench::warp_reduce(lane < THREADS / 32 ? slots[lane] : Op::kIdentity, op);
    }
    return v;
}

template <int N, int THREADS, int HELD>
__global__ void __launch_bounds__(THREADS == 32 ? 32 * WARPS_PER_BLOCK : THREADS)
    softmax_rows(const scalar_t* x, scalar_t* y, int64_t rows, int columns) {
    __shared__ float max_slots[32], sum_slots[32];
    const int64_t row = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    const int packs = columns / N;

    float values[HELD][N];
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] = -INFINITY;
        const int pack = i * THREADS + threadIdx.x;
        if (pack < packs) load<N>(x, pack, values[i]);
    }
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) largest = fmaxf(largest, values[i][k]);
    }
    largest = row_reduce<THREADS>(largest, msbench::Max(), max_slots);

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            values[i][k] = expf(values[i][k] - largest);
            sum += values[i][k];
        }
    }
    const float scale = 1.0f / row_reduce<THREADS>(sum, msbench::Sum(), sum_slots);
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] *= scale;
        const int pack = i * THREADS + threadIdx.x;
        if (pack < packs) store<N>(y, pack, values[i]);
    }
}

template <int N, int THREADS, int HELD>
void launch_rows(const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    const int rows_per_block = THREADS == 32 && rows >= MANY_ROWS ? WARPS_PER_BLOCK : 1;
    const unsigned blocks = unsigned((rows + rows_per_block - 1) / rows_per_block);
    softmax_rows<N, THREADS, HELD><<<blocks, dim3(THREADS, rows_per_block), 0, stream>>>(x, y, rows, int(columns));
}

template <int N>
cudaError_t launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    const int64_t packs = columns / N;
    if (packs <= 32) launch_rows<N, 32, 1>(x, y, rows, columns, stream);
    else if (packs <= 64) launch_rows<N, 32, 2>(x, y, rows, columns, stream);
    else if (packs <= 128) launch_rows<N, 32, 4>(x, y, rows, columns, stream);
    else if (packs <= 256) launch_rows<N, 128, 2>(x, y, rows, columns, stream);
    else if (packs <= 512) launch_rows<N, 256, 2>(x, y, rows, columns, stream);
    else if (packs <= 1024) launch_rows<N, 512, 2>(x, y, rows, columns, stream);
    else if (packs <= 2048) launch_rows<N, 512, 4>(x, y, rows, columns, stream);
    else launch_rows<N, MAX_THREADS, MAX_COLUMNS / MAX_THREADS / N>(x, y, rows, columns, stream);
    return cudaGetLastError();
}

}  // namespace

extern "C" cudaError_t softmax(const scalar_t* x, scalar_t* y, int64_t N, int64_t C, void*, size_t,
                               cudaStream_t stream) {
    if (C > MAX_COLUMNS) return cudaErrorInvalidValue;
    const bool aligned = (uintptr_t(x) | uintptr_t(y)) % 16 == 0 && C % WIDTH == 0;
    return aligned ? launch<WIDTH>(x, y, N, C, stream) : launch<1>(x, y, N, C, stream);
}
