// Softmax over rows, in the registers of the threads that share a row; a cluster of 2 to 8 blocks shares a long row where rows are few,
// and reduces through distributed shared memory.

#include <cooperative_groups.h>

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
        row[pack] = __float2bfloat16_rn(values[0]);
    } else {
        Pack<N> raw;
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(values[k], values[k + 1]);  // one instruction rounds two
            raw.v[k] = pair.x;
            raw.v[k + 1] = pair.y;
        }
        __stcs(reinterpret_cast<uint4*>(row) + pack, reinterpret_cast<const uint4&>(raw));
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
            values[i][k] = __expf(values[i][k] - largest);
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

constexpr int CLUSTER_THREADS = 256, CLUSTER_HELD = 4;
constexpr int64_t MULTIPROCESSORS = 132;

// The reduction over all blocks of the cluster, in every thread. `slots` and `total` are shared memory of this call
// alone.
template <typename Op>
__device__ float cluster_reduce(float v, Op op, float* slots, float* total) {
    const auto cluster = cooperative_groups::this_cluster();
    v = row_reduce<CLUSTER_THREADS>(v, op, slots);
    if (threadIdx.x == 0) *total = v;
    cluster.sync();
    v = Op::kIdentity;
    for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) v = op(v, *cluster.map_shared_rank(total, rank));
    return v;
}

// One cluster a row: each block holds an equal run of its packs.
template <int N>
__global__ void __launch_bounds__(CLUSTER_THREADS) softmax_clusters(const scalar_t* x, scalar_t* y, int columns) {
    __shared__ float max_slots[32], sum_slots[32], max_total, sum_total;
    const auto cluster = cooperative_groups::this_cluster();
    const int blocks = cluster.num_blocks(), packs = columns / N, share = (packs + blocks - 1) / blocks;
    const int64_t row = blockIdx.x / blocks;
    const int first = cluster.block_rank() * share, end = min(first + share, packs);
    x += row * columns;
    y += row * columns;

    float values[CLUSTER_HELD][N];
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < CLUSTER_HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] = -INFINITY;
        const int pack = first + i * CLUSTER_THREADS + int(threadIdx.x);
        if (pack < end) load<N>(x, pack, values[i]);
    }
#pragma unroll
    for (int i = 0; i < CLUSTER_HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) largest = fmaxf(largest, values[i][k]);
    }
    largest = cluster_reduce(largest, msbench::Max(), max_slots, &max_total);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CLUSTER_HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
            values[i][k] = __expf(values[i][k] - largest);
            sum += values[i][k];
        }
    }
    const float scale = 1.0f / cluster_reduce(sum, msbench::Sum(), sum_slots, &sum_total);
#pragma unroll
    for (int i = 0; i < CLUSTER_HELD; ++i) {
#pragma unroll
        for (int k = 0; k < N; ++k) values[i][k] *= scale;
        const int pack = first + i * CLUSTER_THREADS + int(threadIdx.x);
        if (pack < end) store<N>(y, pack, values[i]);
    }
    cluster.sync();  // nobody leaves while its shared memory may still be read
}

template <int N>
cudaError_t launch_clusters(const scalar_t* x, scalar_t* y, int64_t rows, int64_t columns, int blocks_per_row,
                            cudaStream_t stream) {
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks_per_row;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(rows * blocks_per_row));
    config.blockDim = dim3(CLUSTER_THREADS);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, softmax_clusters<N>, x, y, int(columns));
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
    int blocks_per_row = 8;  // the portable limit
    while (blocks_per_row > 1 && (rows * blocks_per_row > MULTIPROCESSORS || packs < 128 * blocks_per_row))
        blocks_per_row /= 2;
    if (blocks_per_row > 1 && packs <= int64_t(CLUSTER_THREADS) * CLUSTER_HELD * blocks_per_row) {
        return launch_clusters<N>(x, y, rows, columns, blocks_per_row, stream);
    }
    if (packs <= 32) launch_rows<N, 32, 1>(x, y, rows, columns, stream);
    else if (packs <= 64) launch_rows<N, 32, 2>(x, y, rows, columns, stream);
    else if (packs <= 128) launch_rows<N, 32, 4>(x, y, rows, columns, stream);
    else if (packs <= 256) launch_rows<N, 128, 2>(x, y, rows, columns, stream);
    else if (packs <= 512) launch_rows<N, 256, 2>(x, y, rows, columns, stream);
    else if (packs <= 1024) launch_rows<N, 256, 4>(x, y, rows, columns, stream);
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
