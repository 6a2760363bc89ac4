// Sparse matrix (ELL, row-major) times vector, fp32. Bound by the gathers of x in L2 and the stream of 8 bytes an element.
// T lanes per row, U packets of 4 elements per lane and batch, so that common rows are a single batch: one latency for the matrix,
// one for the gathers, then log2(T) shuffles. Packets are aligned in the array, not in the row; foreign elements are masked.
// The matrix is read past L1, which is left to x. Expected: about 150 us at 524288 rows of 64, launch and two latencies if small.

namespace {

constexpr int kThreads = 128;
constexpr int kLongThreads = 256;

// Predicated loads, so that a lane's loads stay together without branches between them. Zero, or padding, where `wanted` is false.
__device__ __forceinline__ float4 load_values(const float4* p, bool wanted) {
    float4 v;
    asm volatile("{\n\t.reg .pred q;\n\tsetp.ne.u32 q, %5, 0;\n\t"
        "mov.f32 %0, 0f00000000;\n\tmov.f32 %1, 0f00000000;\n\tmov.f32 %2, 0f00000000;\n\tmov.f32 %3, 0f00000000;\n\t"
        "@q ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=&f"(v.x), "=&f"(v.y), "=&f"(v.z), "=&f"(v.w)
        : "l"(p), "r"(static_cast<uint32_t>(wanted)));
    return v;
}

__device__ __forceinline__ int4 load_columns(const int4* p, bool wanted) {
    int4 v;
    asm volatile("{\n\t.reg .pred q;\n\tsetp.ne.u32 q, %5, 0;\n\t"
        "mov.s32 %0, -1;\n\tmov.s32 %1, -1;\n\tmov.s32 %2, -1;\n\tmov.s32 %3, -1;\n\t"
        "@q ld.global.nc.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
        : "l"(p), "r"(static_cast<uint32_t>(wanted)));
    return v;
}

// x[column], or 0 for padding
__device__ __forceinline__ float gather(const float* x, int32_t column) {
    float v;
    asm volatile("{\n\t.reg .pred q;\n\tsetp.ge.s32 q, %2, 0;\n\tmov.f32 %0, 0f00000000;\n\t"
        "@q ld.global.nc.L1::evict_last.f32 %0, [%1];\n\t}"
        : "=&f"(v) : "l"(x + column), "r"(column));
    return v;
}

// Padding adds nothing, whatever its value is.
__device__ __forceinline__ float add(float sum, int32_t column, float value, float element) {
    return fmaf(column >= 0 ? value : 0.0f, element, sum);
}

// The part of lane number `lane` of `lanes` in the sum of a row, from packets of 4. Masked: w is no multiple of 4.
template <int U, bool Masked>
__device__ __forceinline__ float packet_sum(const float* values, const int32_t* col_ids, const float* x, int64_t row,
                                            int64_t total, uint32_t w, uint32_t lane, uint32_t lanes) {
    const int64_t begin = row * w;
    const int64_t first_packet = begin / 4;
    const int32_t skip = Masked ? static_cast<int32_t>(begin & 3) : 0;
    const uint32_t count = (w + skip + 3) / 4;  // packets that the row touches
    const float4* value_packets = reinterpret_cast<const float4*>(values) + first_packet;
    const int4* column_packets = reinterpret_cast<const int4*>(col_ids) + first_packet;
    const int64_t whole = total / 4 - first_packet;  // packets from here to the end of the array

    float sum0 = 0, sum1 = 0;
    for (uint32_t base = lane; base < count; base += U * lanes) {
        int4 c[U];
        float4 v[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const uint32_t p = base + u * lanes;
            const bool wanted = p < count && (!Masked || p < whole);
            c[u] = load_columns(column_packets + p, wanted);
            v[u] = load_values(value_packets + p, wanted);
        }
        if (Masked && whole < count) {  // the last row of an array that ends inside a packet
#pragma unroll
            for (int u = 0; u < U; ++u) {
                if (base + u * lanes != whole) continue;
                const int64_t i = (first_packet + whole) * 4;
                if (i < total) c[u].x = col_ids[i], v[u].x = values[i];
                if (i + 1 < total) c[u].y = col_ids[i + 1], v[u].y = values[i + 1];
                if (i + 2 < total) c[u].z = col_ids[i + 2], v[u].z = values[i + 2];
            }
        }
        if (Masked) {
#pragma unroll
            for (int u = 0; u < U; ++u) {
                const int32_t place = static_cast<int32_t>((base + u * lanes) * 4) - skip;  // in the row
                if (static_cast<uint32_t>(place) >= w) c[u].x = -1;
                if (static_cast<uint32_t>(place + 1) >= w) c[u].y = -1;
                if (static_cast<uint32_t>(place + 2) >= w) c[u].z = -1;
                if (static_cast<uint32_t>(place + 3) >= w) c[u].w = -1;
            }
        }
        float4 e[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            e[u].x = gather(x, c[u].x);
            e[u].y = gather(x, c[u].y);
            e[u].z = gather(x, c[u].z);
            e[u].w = gather(x, c[u].w);
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            sum0 = add(sum0, c[u].x, v[u].x, e[u].x);
            sum1 = add(sum1, c[u].y, v[u].y, e[u].y);
            sum0 = add(sum0, c[u].z, v[u].z, e[u].z);
            sum1 = add(sum1, c[u].w, v[u].w, e[u].w);
        }
        if (c[U - 1].w < 0) break;  // padding, or the end of the row: nothing follows
    }
    return sum0 + sum1;
}

// The same from single elements, for arrays that are not aligned to packets.
template <int U>
__device__ __forceinline__ float element_sum(const float* values, const int32_t* col_ids, const float* x, int64_t row,
                                             uint32_t w, uint32_t lane, uint32_t lanes) {
    const float* row_values = values + row * w;
    const int32_t* row_columns = col_ids + row * w;
    float sum = 0;
    for (uint32_t base = lane; base < w; base += U * lanes) {
        int32_t c[U];
        float v[U], e[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const uint32_t i = base + u * lanes;
            c[u] = -1;
            v[u] = 0;
            if (i < w) {
                c[u] = __ldg(row_columns + i);
                v[u] = __ldg(row_values + i);
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) e[u] = gather(x, c[u]);
#pragma unroll
        for (int u = 0; u < U; ++u) sum = add(sum, c[u], v[u], e[u]);
        if (c[U - 1] < 0) break;
    }
    return sum;
}

enum Mode { kElements, kMasked, kPackets };

template <int U, Mode mode>
__device__ __forceinline__ float lane_sum(const float* values, const int32_t* col_ids, const float* x, int64_t row,
                                          int64_t total, uint32_t w, uint32_t lane, uint32_t lanes) {
    if (mode == kElements) return element_sum<4>(values, col_ids, x, row, w, lane, lanes);
    return packet_sum<U, mode == kMasked>(values, col_ids, x, row, total, w, lane, lanes);
}

// T lanes of a warp per row.
template <int T, int U, Mode mode>
__global__ void __launch_bounds__(kThreads, 8)
short_rows(const float* values, const int32_t* col_ids, const float* x, float* y, int64_t rows, uint32_t w) {
    const uint32_t lane = threadIdx.x % T;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / T) + threadIdx.x / T;
    float sum = 0;
    if (row < rows) sum = lane_sum<U, mode>(values, col_ids, x, row, rows * w, w, lane, T);
    __syncwarp();
#pragma unroll
    for (int distance = T / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (lane == 0 && row < rows) y[row] = sum;
}

// A block per row.
template <int U, Mode mode>
__global__ void __launch_bounds__(kLongThreads, 4)
long_rows(const float* values, const int32_t* col_ids, const float* x, float* y, int64_t rows, uint32_t w) {
    __shared__ float partial[kLongThreads / 32];
    const int64_t row = blockIdx.x;
    float sum = lane_sum<U, mode>(values, col_ids, x, row, rows * w, w, threadIdx.x, kLongThreads);
    __syncwarp();
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < kLongThreads / 32 ? partial[threadIdx.x] : 0.0f;
#pragma unroll
        for (int distance = kLongThreads / 64; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        }
        if (threadIdx.x == 0) y[row] = sum;
    }
}

template <int T, int U, Mode mode>
void launch_short(const float* values, const int32_t* col_ids, const float* x, float* y, int64_t rows, uint32_t w,
                  cudaStream_t stream) {
    const int64_t rows_per_block = kThreads / T;
    const unsigned blocks = static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block);
    short_rows<T, U, mode><<<blocks, kThreads, 0, stream>>>(values, col_ids, x, y, rows, w);
}

// `count`: the most packets that a row touches.
template <Mode mode>
void launch(const float* values, const int32_t* col_ids, const float* x, float* y, int64_t rows, uint32_t w,
            uint32_t count, cudaStream_t stream) {
    if (count <= 4) {
        launch_short<4, 1, mode>(values, col_ids, x, y, rows, w, stream);
    } else if (count <= 8) {
        launch_short<8, 1, mode>(values, col_ids, x, y, rows, w, stream);
    } else if (count <= 16) {
        launch_short<8, 2, mode>(values, col_ids, x, y, rows, w, stream);
    } else if (count <= 32) {
        launch_short<16, 2, mode>(values, col_ids, x, y, rows, w, stream);
    } else if (count <= 64) {
        launch_short<32, 2, mode>(values, col_ids, x, y, rows, w, stream);
    } else if (count <= 192) {
        launch_short<32, 3, mode>(values, col_ids, x, y, rows, w, stream);
    } else {
        long_rows<2, mode><<<static_cast<unsigned>(rows), kLongThreads, 0, stream>>>(values, col_ids, x, y, rows, w);
    }
}

}  // namespace

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    (void)cols;
    (void)workspace;
    (void)workspace_bytes;
    if (rows <= 0) return cudaSuccess;
    const uint32_t width = static_cast<uint32_t>(w);
    const uint32_t count = width % 4 == 0 ? width / 4 : (width + 6) / 4;
    if (((reinterpret_cast<uintptr_t>(values) | reinterpret_cast<uintptr_t>(col_ids)) & 15) != 0) {
        launch<kElements>(values, col_ids, x, y, rows, width, count, stream);
    } else if (width % 4 != 0) {
        launch<kMasked>(values, col_ids, x, y, rows, width, count, stream);
    } else {
        launch<kPackets>(values, col_ids, x, y, rows, width, count, stream);
    }
    return cudaGetLastError();
}
