// CSR matrix times vector by equal chunks of entries. First kernel: y = 0 and the first row of each chunk. Main kernel (overlapping,
// programmatic dependent launch): products to shared memory, then sums of row pieces. Balanced whatever the row lengths.
// Expected: launch bound + ~4 us for the small cases, ~170-200 us (gathers from L2) for 33.5M entries.

constexpr int kThreads = 256;

__device__ __forceinline__ void dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void dependency_release() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

__global__ void __launch_bounds__(kThreads)
prepare(const int32_t* __restrict__ row_offsets, float* __restrict__ y, int32_t* __restrict__ first_rows, int64_t rows, int chunk) {
    dependency_release();
    const int64_t row = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
    if (row >= rows) return;
    const int begin = row_offsets[row];
    const int end = row_offsets[row + 1];
    y[row] = 0;
    int c = (begin + chunk - 1) / chunk;
    for (int64_t at = static_cast<int64_t>(c) * chunk; at < end; at += chunk) {
        first_rows[c] = static_cast<int32_t>(row);
        ++c;
    }
}

template <int ITEMS>
__global__ void __launch_bounds__(kThreads)
multiply(const float* __restrict__ values, const int32_t* __restrict__ col_indices, const int32_t* __restrict__ row_offsets,
         const float* __restrict__ x, float* __restrict__ y, const int32_t* first_rows, int64_t rows, int64_t nnz, int chunks,
         bool vectors) {
    constexpr int kChunk = kThreads * ITEMS;
    constexpr int kLongest = 32;  // entries a lane adds up before a piece counts as long
    __shared__ __align__(16) float products[kChunk];
    __shared__ int long_row[kChunk / kLongest];
    __shared__ int long_count;
    const int t = threadIdx.x;
    const int lane = t % 32;
    const int warp = t / 32;
    const int base = static_cast<int>(blockIdx.x) * kChunk;
    const int stop = nnz - base < kChunk ? static_cast<int>(nnz) : base + kChunk;
    if (t == 0) long_count = 0;

    if (vectors && stop - base == kChunk) {
        const float4* __restrict__ v4 = reinterpret_cast<const float4*>(values + base);
        const int4* __restrict__ c4 = reinterpret_cast<const int4*>(col_indices + base);
        int4 c[ITEMS / 4];
        float4 v[ITEMS / 4];
#pragma unroll
        for (int j = 0; j < ITEMS / 4; ++j) {
            c[j] = __ldcs(c4 + j * kThreads + t);
            v[j] = __ldcs(v4 + j * kThreads + t);
        }
        float4 g[ITEMS / 4];
#pragma unroll
        for (int j = 0; j < ITEMS / 4; ++j) {
            g[j].x = __ldg(x + c[j].x);
            g[j].y = __ldg(x + c[j].y);
            g[j].z = __ldg(x + c[j].z);
            g[j].w = __ldg(x + c[j].w);
        }
#pragma unroll
        for (int j = 0; j < ITEMS / 4; ++j) {
            reinterpret_cast<float4*>(products)[j * kThreads + t] =
                make_float4(v[j].x * g[j].x, v[j].y * g[j].y, v[j].z * g[j].z, v[j].w * g[j].w);
        }
    } else {
        int c[ITEMS];
        float v[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) {
            const int i = base + j * kThreads + t;
            c[j] = 0;
            v[j] = 0;
            if (i < stop) {
                c[j] = col_indices[i];
                v[j] = values[i];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) products[j * kThreads + t] = v[j] * __ldg(x + c[j]);
    }

    dependency_wait();
    const int row_first = __ldcg(first_rows + blockIdx.x);
    // The chunk's last row, or an empty part of the next chunk's first row.
    const int row_last = static_cast<int>(blockIdx.x) + 1 < chunks ? __ldcg(first_rows + blockIdx.x + 1)
                                                                   : static_cast<int>(rows) - 1;
    const int count = row_last - row_first + 1;
    const int shift = count <= 32 ? 3 : count <= 64 ? 2 : count <= 128 ? 1 : 0;  // log2 of the lanes a row
    const int lanes = 1 << shift;
    const int sub = t & (lanes - 1);
    const int longest = kLongest << shift;
    const int step = kThreads >> shift;
    bool synced = false;
    for (int at = 0; at < count; at += step) {  // the same number of turns for all threads
        const int row = row_first + at + (t >> shift);
        int begin = 0, end = 0, low = 0, high = 0;
        if (row <= row_last) {
            begin = __ldg(row_offsets + row);
            end = __ldg(row_offsets + row + 1);
            low = begin > base ? begin : base;
            high = end < stop ? end : stop;
        }
        if (!synced) {
            __syncthreads();  // the products and long_count are there
            synced = true;
        }
        const int length = high - low;
        const bool is_long = length > longest;
        float sum = 0;
        if (length > 0) {
            if (is_long) {
                if (sub == 0) long_row[atomicAdd(&long_count, 1)] = row;
            } else {
                for (int i = low - base + sub; i < high - base; i += lanes) sum += products[i];
            }
        }
        __syncwarp();
        if (shift > 2) sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        if (shift > 1) sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (shift > 0) sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (length > 0 && !is_long && sub == 0) {
            if (begin >= base && end <= stop) {
                y[row] = sum;
            } else {
                atomicAdd(y + row, sum);
            }
        }
    }
    __syncthreads();
    const int longs = long_count;
    for (int k = warp; k < longs; k += kThreads / 32) {
        const int row = long_row[k];
        const int begin = __ldg(row_offsets + row);
        const int end = __ldg(row_offsets + row + 1);
        const int low = (begin > base ? begin : base) - base;
        const int high = (end < stop ? end : stop) - base;
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        int i = low + lane;
        for (; i + 96 < high; i += 128) {
            s0 += products[i];
            s1 += products[i + 32];
            s2 += products[i + 64];
            s3 += products[i + 96];
        }
        for (; i < high; i += 32) s0 += products[i];
        float sum = (s0 + s1) + (s2 + s3);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) {
            if (begin >= base && end <= stop) {
                y[row] = sum;
            } else {
                atomicAdd(y + row, sum);
            }
        }
    }
}

constexpr int64_t kSmall = 1048576;  // entries up to which chunks are of 1024, beyond of 2048

static int chunk_size(int64_t nnz) { return nnz <= kSmall ? 4 * kThreads : 8 * kThreads; }

extern "C" size_t spmv_csr_workspace(int64_t rows, int64_t cols, int64_t nnz) {
    const int64_t chunk = chunk_size(nnz);
    return static_cast<size_t>((nnz + chunk - 1) / chunk + 64) * sizeof(int32_t);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets,
                                const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace,
                                size_t workspace_bytes, cudaStream_t stream) {
    const int chunk = chunk_size(nnz);
    const int chunks = static_cast<int>((nnz + chunk - 1) / chunk);
    int32_t* first_rows = static_cast<int32_t*>(workspace);
    const bool vectors = ((reinterpret_cast<uintptr_t>(values) | reinterpret_cast<uintptr_t>(col_indices)) & 15) == 0;
    prepare<<<static_cast<unsigned int>((rows + kThreads - 1) / kThreads), kThreads, 0, stream>>>(row_offsets, y, first_rows,
                                                                                                 rows, chunk);
    if (chunks == 0) return cudaGetLastError();
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned int>(chunks));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const int32_t* starts = first_rows;
    cudaError_t error;
    if (chunk == 4 * kThreads) {
        error = cudaLaunchKernelEx(&config, multiply<4>, values, col_indices, row_offsets, x, y, starts, rows, nnz, chunks,
                                   vectors);
    } else {
        error = cudaLaunchKernelEx(&config, multiply<8>, values, col_indices, row_offsets, x, y, starts, rows, nnz, chunks,
                                   vectors);
    }
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
