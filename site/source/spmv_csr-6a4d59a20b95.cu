// CSR matrix times vector, split evenly by entries. Products of a tile go to shared memory, groups of threads add up its rows;
// rows that cross tiles are added atomically to a y that a small overlapped kernel has zeroed.
// Bound: launch for the small cases; the gathers of x from L2 (32 bytes an entry) for the large one.

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) zero_kernel(float* __restrict__ y, int rows) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const int first = blockIdx.x * (kThreads * 4) + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = first + i * kThreads;
        if (row < rows) y[row] = 0.0f;
    }
}

// kItems entries a thread, kGroup threads a row; kPackets: values and col_indices are 16-byte aligned.
template <int kItems, int kGroup, bool kPackets>
__global__ void __launch_bounds__(kThreads, 6) spmv_kernel(const float* __restrict__ values, const int* __restrict__ col_indices,
                                                           const int* __restrict__ row_offsets, const float* __restrict__ x,
                                                           float* y, int rows, int nnz) {
    constexpr int kTile = kThreads * kItems;
    __shared__ __align__(16) float products[kTile];
    __shared__ float sums[kThreads / 32];

    const int t = threadIdx.x;
    const int lane = t & 31;
    const int begin = blockIdx.x * kTile;
    const int end = min(nnz, begin + kTile);

    // Values and columns.
    float v[kItems];
    int c[kItems];
    if (kPackets && end - begin == kTile) {
        const float4* v4 = reinterpret_cast<const float4*>(values + begin);
        const int4* c4 = reinterpret_cast<const int4*>(col_indices + begin);
#pragma unroll
        for (int i = 0; i < kItems / 4; ++i) {
            const int4 cc = __ldcs(c4 + i * kThreads + t);
            c[4 * i] = cc.x;
            c[4 * i + 1] = cc.y;
            c[4 * i + 2] = cc.z;
            c[4 * i + 3] = cc.w;
        }
#pragma unroll
        for (int i = 0; i < kItems / 4; ++i) {
            const float4 vv = __ldcs(v4 + i * kThreads + t);
            v[4 * i] = vv.x;
            v[4 * i + 1] = vv.y;
            v[4 * i + 2] = vv.z;
            v[4 * i + 3] = vv.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            const int k = begin + ((i / 4) * kThreads + t) * 4 + (i % 4);
            c[i] = -1;
            v[i] = 0.0f;
            if (k < end) {
                c[i] = __ldg(col_indices + k);
                v[i] = __ldg(values + k);
            }
        }
    }

    // The row of the tile's first entry: the last one whose offset is not beyond it. First a window around the proportional guess.
    int window = static_cast<int>((static_cast<int64_t>(begin) * rows) / nnz) - kThreads / 2;
    if (window > rows + 1 - kThreads) window = rows + 1 - kThreads;
    if (window < 0) window = 0;
    bool reached = false;
    if (window + t <= rows) reached = __ldg(row_offsets + window + t) <= begin;

    float g[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        g[i] = 0.0f;
        if (c[i] >= 0) g[i] = __ldg(x + c[i]);
    }

    int count = __syncthreads_count(reached ? 1 : 0);
    int low = 0;
    int high = rows + 1;  // the row is in [low, high)
    if (count == 0) {
        high = window;
    } else if (count == kThreads && window + kThreads <= rows) {
        low = window + kThreads - 1;
    } else {
        low = window + count - 1;
        high = low + 1;
    }
    while (high - low > 1) {
        const int step = (high - low + kThreads - 1) / kThreads;
        const int64_t at = static_cast<int64_t>(low) + static_cast<int64_t>(t) * step;
        bool below = false;
        if (at < high) below = __ldg(row_offsets + at) <= begin;
        count = __syncthreads_count(below ? 1 : 0);
        if (count < 1) count = 1;
        low += (count - 1) * step;
        high = min(high, low + step);
    }
    const int first_row = low;
    const bool one_row = __ldg(row_offsets + first_row + 1) >= end;

    if (one_row) {
        // The whole tile belongs to one row.
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            if (c[i] >= 0) sum = fmaf(v[i], g[i], sum);
        }
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) sums[t >> 5] = sum;
        __syncthreads();
        if (t == 0) {
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < kThreads / 32; ++w) total += sums[w];
            asm volatile("griddepcontrol.wait;" ::: "memory");
            atomicAdd(y + first_row, total);
        }
        return;
    }

#pragma unroll
    for (int i = 0; i < kItems / 4; ++i) {
        float4 p;
        p.x = v[4 * i] * g[4 * i];
        p.y = v[4 * i + 1] * g[4 * i + 1];
        p.z = v[4 * i + 2] * g[4 * i + 2];
        p.w = v[4 * i + 3] * g[4 * i + 3];
        *reinterpret_cast<float4*>(products + (i * kThreads + t) * 4) = p;
    }
    __syncthreads();
    asm volatile("griddepcontrol.wait;" ::: "memory");

    constexpr int kGroups = kThreads / kGroup;
    const int group_lane = t % kGroup;
    for (int row = first_row + t / kGroup;; row += kGroups) {
        int from = 0, to = 0;
        bool active = false, whole = false;
        if (row < rows) {
            const int row_begin = __ldg(row_offsets + row);
            if (row_begin < end) {
                active = true;
                const int row_end = __ldg(row_offsets + row + 1);
                whole = row_begin >= begin && row_end <= end;
                from = max(row_begin, begin) - begin;
                to = min(row_end, end) - begin;
            }
        }
        if (!__any_sync(0xffffffffu, active)) break;
        const bool is_long = to - from > 16 * kGroup;
        float sum = 0.0f;
        if (!is_long) {
            for (int k = from + group_lane; k < to; k += kGroup) sum += products[k];
        }
        unsigned waiting = __ballot_sync(0xffffffffu, is_long && group_lane == 0);
        while (waiting != 0u) {
            const int source = __ffs(waiting) - 1;
            waiting &= waiting - 1u;
            const int long_from = __shfl_sync(0xffffffffu, from, source);
            const int long_to = __shfl_sync(0xffffffffu, to, source);
            float part = 0.0f;
#pragma unroll 4
            for (int k = long_from + lane; k < long_to; k += 32) part += products[k];
#pragma unroll
            for (int d = 16; d > 0; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
            if (lane == source) sum = part;  // the group's other threads hold 0
        }
#pragma unroll
        for (int d = kGroup / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (active && group_lane == 0 && to > from) {
            if (whole) {
                y[row] = sum;
            } else {
                atomicAdd(y + row, sum);
            }
        }
    }
}

template <int kItems, int kGroup, bool kPackets>
static cudaError_t launch_spmv(const float* values, const int* col_indices, const int* row_offsets, const float* x, float* y,
                               int rows, int nnz, cudaStream_t stream) {
    constexpr int kTile = kThreads * kItems;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>((static_cast<int64_t>(nnz) + kTile - 1) / kTile), 1, 1);
    config.blockDim = dim3(kThreads, 1, 1);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, spmv_kernel<kItems, kGroup, kPackets>, values, col_indices, row_offsets, x, y, rows, nnz);
}

template <int kItems, int kGroup>
static cudaError_t launch_either(bool packets, const float* values, const int* col_indices, const int* row_offsets,
                                 const float* x, float* y, int rows, int nnz, cudaStream_t stream) {
    if (packets) return launch_spmv<kItems, kGroup, true>(values, col_indices, row_offsets, x, y, rows, nnz, stream);
    return launch_spmv<kItems, kGroup, false>(values, col_indices, row_offsets, x, y, rows, nnz, stream);
}

extern "C" cudaError_t spmv_csr(const scalar_t* values, const int32_t* col_indices, const int32_t* row_offsets, const scalar_t* x,
                                scalar_t* y, int64_t rows, int64_t cols, int64_t nnz, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    (void)cols;
    (void)workspace;
    (void)workspace_bytes;
    const int r = static_cast<int>(rows);
    const int n = static_cast<int>(nnz);
    zero_kernel<<<static_cast<unsigned>((rows + kThreads * 4 - 1) / (kThreads * 4)), kThreads, 0, stream>>>(y, r);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    const bool packets = ((reinterpret_cast<uintptr_t>(values) | reinterpret_cast<uintptr_t>(col_indices)) & 15) == 0;
    const bool longer_rows = nnz / rows >= 40;
    if (nnz <= (static_cast<int64_t>(1) << 21)) {
        error = longer_rows ? launch_either<4, 8>(packets, values, col_indices, row_offsets, x, y, r, n, stream)
                            : launch_either<4, 4>(packets, values, col_indices, row_offsets, x, y, r, n, stream);
    } else {
        error = longer_rows ? launch_either<8, 8>(packets, values, col_indices, row_offsets, x, y, r, n, stream)
                            : launch_either<8, 4>(packets, values, col_indices, row_offsets, x, y, r, n, stream);
    }
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
