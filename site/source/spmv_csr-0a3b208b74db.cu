// CSR SpMV. Rows by groups of lanes; rows over 512 entries are cut at multiples of 512. Every multiple of 512 lies in exactly one row, so that the
// row kernel fills the whole map chunk -> long row (or -1) without initialisation. Bound: the entries from memory, the gathers of x from L2.

constexpr int kThreads = 128;
constexpr int kChunk = 512;
constexpr int kUnroll = 6;

__device__ __forceinline__ float reduce_lanes(float x, int width) {
    for (int d = width / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// This lane's share of entries [k, end), stride apart.
template <int kStride, int U>
__device__ __forceinline__ float products(const float* __restrict__ values, const int32_t* __restrict__ col_indices,
                                          const float* __restrict__ x, int k, int end) {
    float sum[2] = {0, 0};
    for (; k < end; k += kStride * U) {
        int column[U];
        float value[U], factor[U];
#pragma unroll
        for (int j = 0; j < U; ++j) {
            column[j] = 0;
            value[j] = 0;
            if (k + j * kStride < end) {
                column[j] = __ldcs(col_indices + k + j * kStride);
                value[j] = __ldcs(values + k + j * kStride);
            }
        }
#pragma unroll
        for (int j = 0; j < U; ++j) {
            factor[j] = 0;
            if (k + j * kStride < end) factor[j] = __ldg(x + column[j]);
        }
#pragma unroll
        for (int j = 0; j < U; ++j) sum[j & 1] = fmaf(value[j], factor[j], sum[j & 1]);
    }
    return sum[0] + sum[1];
}

template <int G>
__global__ void __launch_bounds__(kThreads)
    spmv_rows(const float* __restrict__ values, const int32_t* __restrict__ col_indices,
              const int32_t* __restrict__ row_offsets, const float* __restrict__ x, float* __restrict__ y, int rows,
              int32_t* __restrict__ map) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    constexpr int kWide = G * kUnroll * 2;  // longer rows are taken by the whole warp
    const int lane = threadIdx.x & 31;
    const int sub = lane & (G - 1);
    const int64_t thread = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    const int row = int(thread / G);
    int start = 0, end = 0;
    if (row < rows) {
        start = __ldg(row_offsets + row);
        end = __ldg(row_offsets + row + 1);
    }
    const bool wide = end - start > kWide;
    float sum = 0;
    if (!wide) sum = products<G, kUnroll>(values, col_indices, x, start + sub, end);
    __syncwarp();
    sum = reduce_lanes(sum, G);
    if (!wide && sub == 0 && row < rows) {
        y[row] = sum;
        const int chunk = (start + kChunk - 1) / kChunk;
        if (chunk * kChunk < end) map[chunk] = -1;
    }
    unsigned waiting = __ballot_sync(0xffffffffu, wide && sub == 0);
    while (waiting != 0) {
        const int source = __ffs(int(waiting)) - 1;
        waiting &= waiting - 1;
        const int its_start = __shfl_sync(0xffffffffu, start, source);
        const int its_end = __shfl_sync(0xffffffffu, end, source);
        const int its_row = __shfl_sync(0xffffffffu, row, source);
        const int chunk = (its_start + kChunk - 1) / kChunk;
        const bool cut = its_end - its_start > kChunk;
        int stop = its_end;
        if (cut) {
            stop = chunk * kChunk;
            for (int c = chunk + lane; c * kChunk < its_end; c += 32) map[c] = its_row;
        } else if (lane == 0 && chunk * kChunk < its_end) {
            map[chunk] = -1;
        }
        float total = products<32, 8>(values, col_indices, x, its_start + lane, stop);
        __syncwarp();
        total = reduce_lanes(total, 32);
        if (lane == 0) y[its_row] = total;
    }
}

// Adds the chunks that belong to long rows, a warp for each.
__global__ void __launch_bounds__(kThreads)
    spmv_chunks(const float* __restrict__ values, const int32_t* __restrict__ col_indices,
                const int32_t* __restrict__ row_offsets, const float* __restrict__ x, float* y, const int32_t* map,
                int chunks) {
    const int lane = threadIdx.x & 31;
    const int warp = blockIdx.x * (kThreads / 32) + (threadIdx.x >> 5);
    const int warps = gridDim.x * (kThreads / 32);
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int64_t first = warp; first < chunks; first += int64_t(32) * warps) {
        const int64_t mine = first + int64_t(lane) * warps;
        const int its_row = mine < chunks ? __ldcg(map + mine) : -1;
        unsigned waiting = __ballot_sync(0xffffffffu, its_row >= 0);
        while (waiting != 0) {
            const int source = __ffs(int(waiting)) - 1;
            waiting &= waiting - 1;
            const int row = __shfl_sync(0xffffffffu, its_row, source);
            const int start = int(first + int64_t(source) * warps) * kChunk;
            const int row_end = __ldg(row_offsets + row + 1);
            const int end = row_end - start < kChunk ? row_end : start + kChunk;
            float total = products<32, 8>(values, col_indices, x, start + lane, end);
            __syncwarp();
            total = reduce_lanes(total, 32);
            if (lane == 0) atomicAdd(y + row, total);
        }
    }
}

static int64_t chunk_count(int64_t nnz) {
    return (nnz + kChunk - 1) / kChunk;
}

extern "C" size_t spmv_csr_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    return size_t(chunk_count(nnz) + 64) * sizeof(int32_t);
}

template <int G>
static void launch_rows(const float* values, const int32_t* col_indices, const int32_t* row_offsets, const float* x,
                        float* y, int64_t rows, int32_t* map, cudaStream_t stream) {
    const int64_t blocks = (rows * G + kThreads - 1) / kThreads;
    spmv_rows<G><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(values, col_indices, row_offsets, x, y,
                                                                         int(rows), map);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz,
                                void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    int32_t* map = static_cast<int32_t*>(workspace);
    if (nnz <= rows * 8) launch_rows<4>(values, col_indices, row_offsets, x, y, rows, map, stream);
    else if (nnz <= rows * 26) launch_rows<8>(values, col_indices, row_offsets, x, y, rows, map, stream);
    else if (nnz <= rows * 72) launch_rows<16>(values, col_indices, row_offsets, x, y, rows, map, stream);
    else launch_rows<32>(values, col_indices, row_offsets, x, y, rows, map, stream);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess || nnz <= kChunk) return error;

    const int chunks = int(chunk_count(nnz));
    int64_t blocks = (chunks + kThreads / 32 - 1) / (kThreads / 32);
    if (blocks > 132 * 8) blocks = 132 * 8;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, spmv_chunks, values, col_indices, row_offsets, x, y,
                               static_cast<const int32_t*>(map), chunks);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
