// Sparse matrix times vector (ELL, row-major), fp32. 8 bytes an entry are streamed, and x is gathered from L1 and L2.
// A group of T lanes has a row; a lane has U packets of four entries in flight, then their 4·U gathers, then shuffles. Small cases: bound by
// the launch and two dependent memory latencies (5 to 8 us); large: by the gathers in L2 (about 140 to 200 us for 524288 x 64).

namespace {

template <int V>
struct Entries {
    int32_t col[V];
    float value[V];
};

// Entries `at` to `at + V - 1` relative to the pointers, of which [low, high) belong to the row; others get column -1.
// `limit`: entries from the pointers to the end of the arrays.
template <int V>
__device__ __forceinline__ void load_entries(Entries<V>& e, const int32_t* cols, const float* values, int at, int low, int high,
                                             int limit) {
    if constexpr (V == 4) {
        if (at + 4 <= limit) {
            const int4 c = __ldcs(reinterpret_cast<const int4*>(cols + at));
            const float4 v = __ldcs(reinterpret_cast<const float4*>(values + at));
            e.col[0] = at + 0 >= low && at + 0 < high ? c.x : -1;
            e.col[1] = at + 1 >= low && at + 1 < high ? c.y : -1;
            e.col[2] = at + 2 >= low && at + 2 < high ? c.z : -1;
            e.col[3] = at + 3 >= low && at + 3 < high ? c.w : -1;
            e.value[0] = v.x;
            e.value[1] = v.y;
            e.value[2] = v.z;
            e.value[3] = v.w;
        } else {  // the last packet of the arrays
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const bool inside = at + k >= low && at + k < high;
                e.col[k] = inside ? cols[at + k] : -1;
                e.value[k] = inside ? values[at + k] : 0.0f;
            }
        }
    } else {
        e.col[0] = __ldcs(cols + at);
        e.value[0] = __ldcs(values + at);
    }
}

// The share of lane `lane` of `lanes` in row `row`.
template <int V, int U>
__device__ __forceinline__ float row_share(const float* __restrict__ values, const int32_t* __restrict__ cols,
                                           const float* __restrict__ x, int64_t row, int64_t total, int w, int lane, int lanes) {
    const int64_t start = row * w;
    const int64_t first = start & ~static_cast<int64_t>(V - 1);
    const int low = static_cast<int>(start - first);
    const int high = low + w;
    const int64_t left = total - first;
    const int limit = left < 0x40000000 ? static_cast<int>(left) : 0x40000000;
    values += first;
    cols += first;
    float sum = 0;
    for (int at = lane * V; at < high; at += lanes * (V * U)) {
        Entries<V> e[U];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const int place = at + u * (lanes * V);
            if (place < high) {
                load_entries<V>(e[u], cols, values, place, low, high, limit);
            } else {
#pragma unroll
                for (int k = 0; k < V; ++k) {
                    e[u].col[k] = -1;
                    e[u].value[k] = 0.0f;
                }
            }
        }
        float gathered[U][V];
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int k = 0; k < V; ++k) gathered[u][k] = e[u].col[k] >= 0 ? __ldg(x + e[u].col[k]) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int k = 0; k < V; ++k) {
                const float value = e[u].col[k] >= 0 ? e[u].value[k] : 0.0f;
                sum = fmaf(value, gathered[u][k], sum);
            }
        }
        if (e[U - 1].col[V - 1] < 0) break;  // padding comes last, so nothing follows
    }
    return sum;
}

// T lanes of a warp a row.
template <int V, int T, int U>
__global__ void __launch_bounds__(256) row_by_lanes(const float* __restrict__ values, const int32_t* __restrict__ cols,
                                                    const float* __restrict__ x, float* __restrict__ y, int64_t total, int rows, int w) {
    const int row = static_cast<int>((blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x) / T);
    const int lane = threadIdx.x % T;
    float sum = 0;
    if (row < rows) sum = row_share<V, U>(values, cols, x, row, total, w, lane, T);
#pragma unroll
    for (int distance = T / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (row < rows && lane == 0) y[row] = sum;
}

// A block a row.
template <int V>
__global__ void __launch_bounds__(256) row_by_block(const float* __restrict__ values, const int32_t* __restrict__ cols,
                                                    const float* __restrict__ x, float* __restrict__ y, int64_t total, int w) {
    __shared__ float of_warp[8];
    float sum = row_share<V, V == 4 ? 2 : 4>(values, cols, x, blockIdx.x, total, w, threadIdx.x, 256);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
#pragma unroll
        for (int k = 0; k < 8; ++k) sum += of_warp[k];
        y[blockIdx.x] = sum;
    }
}

template <int V, int T, int U>
void launch_lanes(const float* values, const int32_t* cols, const float* x, float* y, int64_t total, int rows, int w,
                  cudaStream_t stream) {
    const int64_t needed = static_cast<int64_t>(rows) * T;
    const int threads = needed <= 132 * 2048 ? 128 : 256;
    row_by_lanes<V, T, U><<<static_cast<unsigned>((needed + threads - 1) / threads), threads, 0, stream>>>(values, cols, x, y, total, rows, w);
}

template <int V>
void launch(const float* values, const int32_t* cols, const float* x, float* y, int rows, int w, cudaStream_t stream) {
    const int64_t total = static_cast<int64_t>(rows) * w;
    const int accesses = (w + V - 1) / V + (V > 1 && w % V != 0 ? 1 : 0);  // of a row, at most
    // Few rows: more lanes, one access each. Many: more accesses a lane, fewer shuffles.
    const bool many = total > 4000000;
    const int per_lane = many ? 2 : 1;
    if (accesses > 32 * 12) {
        row_by_block<V><<<rows, 256, 0, stream>>>(values, cols, x, y, total, w);
    } else if (accesses > 32 * 2) {
        launch_lanes<V, 32, 3>(values, cols, x, y, total, rows, w, stream);
    } else if (accesses > 32) {
        launch_lanes<V, 32, 2>(values, cols, x, y, total, rows, w, stream);
    } else if (accesses > 16 * per_lane) {
        launch_lanes<V, 32, 1>(values, cols, x, y, total, rows, w, stream);
    } else if (accesses > 8 * per_lane) {
        launch_lanes<V, 16, 2>(values, cols, x, y, total, rows, w, stream);
    } else if (accesses > 4 * per_lane) {
        launch_lanes<V, 8, 2>(values, cols, x, y, total, rows, w, stream);
    } else {
        launch_lanes<V, 4, 2>(values, cols, x, y, total, rows, w, stream);
    }
}

}  // namespace

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(values) | reinterpret_cast<uintptr_t>(col_ids);
    if ((address & 15) == 0) {
        launch<4>(values, col_ids, x, y, static_cast<int>(rows), static_cast<int>(w), stream);
    } else {
        launch<1>(values, col_ids, x, y, static_cast<int>(rows), static_cast<int>(w), stream);
    }
    return cudaGetLastError();
}
