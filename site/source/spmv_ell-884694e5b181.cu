// Sparse matrix times vector in ELL, bf16: the gathers of x go through L1 and L2 sector by sector, so the large case is bound by
// them (98 us in L2), and the small ones by two memory latencies (column, then x) on top of a launch.
//
// A group of 2 to 32 lanes takes a row; all columns and values that it needs are loaded first, independently of each other,
// then all gathers are in flight together, then the lanes add up by shuffles. Where rows allow it (w a multiple of 4, aligned)
// a lane loads four columns at once. Columns and values stream past L1, which is left to x. Padding comes last, so a lane
// stops at its first padding. Rows of more than 1024 elements get a whole block.

__device__ __forceinline__ int32_t load_column(const int32_t* p) {
    int32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.b32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

__device__ __forceinline__ int4 load_columns(const int4* p) {
    int4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

using Four = uint2;

__device__ __forceinline__ Four load_four(const __nv_bfloat16* p) {
    Four v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

__device__ __forceinline__ float4 floats_of(Four v) {
    return make_float4(__uint_as_float(v.x << 16), __uint_as_float(v.x & 0xffff0000u), __uint_as_float(v.y << 16),
                       __uint_as_float(v.y & 0xffff0000u));
}

__device__ __forceinline__ __nv_bfloat16 load_value(const __nv_bfloat16* p) {
    unsigned short v;
    asm volatile("ld.global.nc.L1::no_allocate.b16 %0, [%1];" : "=h"(v) : "l"(p));
    return __ushort_as_bfloat16(v);
}

__device__ __forceinline__ float gather(const scalar_t* __restrict__ x, int32_t col) {
    return col >= 0 ? static_cast<float>(__ldg(x + col)) : 0.0f;
}

// A padded value may be anything, even NaN: it is not used.
__device__ __forceinline__ float add_product(float sum, int32_t col, float value, float element) {
    return col >= 0 ? fmaf(value, element, sum) : sum;
}

template <int kLanes>
__device__ __forceinline__ float group_sum(float x) {
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ __forceinline__ scalar_t to_scalar(float x) {
    return static_cast<scalar_t>(x);
}

// Rows of w = 4·units elements, aligned to four elements.
template <int kLanes>
__global__ void __launch_bounds__(128) spmv_fours(const scalar_t* __restrict__ values, const int32_t* __restrict__ cols,
                                                  const scalar_t* __restrict__ x, scalar_t* __restrict__ y, uint32_t rows,
                                                  uint32_t units) {
    constexpr int kBatch = 2;
    const uint32_t thread = blockIdx.x * 128u + threadIdx.x;  // at most 2^25
    const uint32_t row = thread / kLanes;
    const uint32_t lane = thread % kLanes;
    float sum = 0;
    if (row < rows) {
        const size_t start = static_cast<size_t>(row) * units;
        const int4* c = reinterpret_cast<const int4*>(cols) + start;
        const scalar_t* v = values + 4 * start;
        for (uint32_t u = lane; u < units; u += kBatch * kLanes) {
            int4 col[kBatch];
            Four value[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                col[i] = make_int4(-1, -1, -1, -1);
                value[i] = Four{};
                if (u + i * kLanes < units) {
                    col[i] = load_columns(c + u + i * kLanes);
                    value[i] = load_four(v + 4 * (u + i * kLanes));
                }
            }
            float4 element[kBatch];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                element[i].x = gather(x, col[i].x);
                element[i].y = gather(x, col[i].y);
                element[i].z = gather(x, col[i].z);
                element[i].w = gather(x, col[i].w);
            }
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                const float4 f = floats_of(value[i]);
                sum = add_product(sum, col[i].x, f.x, element[i].x);
                sum = add_product(sum, col[i].y, f.y, element[i].y);
                sum = add_product(sum, col[i].z, f.z, element[i].z);
                sum = add_product(sum, col[i].w, f.w, element[i].w);
            }
            if (col[kBatch - 1].w < 0) break;  // padding comes last
        }
    }
    sum = group_sum<kLanes>(sum);
    if (row < rows && lane == 0) y[row] = to_scalar(sum);
}

// What one of `lanes` threads adds up of a row of any length and alignment.
template <int kBatch>
__device__ __forceinline__ float lane_sum(const scalar_t* __restrict__ v, const int32_t* __restrict__ c,
                                          const scalar_t* __restrict__ x, uint32_t w, uint32_t lane, uint32_t lanes) {
    float sum = 0;
    for (uint32_t j = lane; j < w; j += kBatch * lanes) {
        int32_t col[kBatch];
        scalar_t value[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
            col[i] = -1;
            value[i] = to_scalar(0.0f);
            if (j + i * lanes < w) {
                col[i] = load_column(c + j + i * lanes);
                value[i] = load_value(v + j + i * lanes);
            }
        }
        float element[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) element[i] = gather(x, col[i]);
#pragma unroll
        for (int i = 0; i < kBatch; ++i) sum = add_product(sum, col[i], static_cast<float>(value[i]), element[i]);
        if (col[kBatch - 1] < 0) break;  // padding comes last
    }
    return sum;
}

template <int kLanes, int kBatch>
__global__ void __launch_bounds__(128) spmv_any(const scalar_t* __restrict__ values, const int32_t* __restrict__ cols,
                                                const scalar_t* __restrict__ x, scalar_t* __restrict__ y, uint32_t rows,
                                                uint32_t w) {
    const uint32_t thread = blockIdx.x * 128u + threadIdx.x;
    const uint32_t row = thread / kLanes;
    const uint32_t lane = thread % kLanes;
    float sum = 0;
    if (row < rows) {
        const size_t start = static_cast<size_t>(row) * w;
        sum = lane_sum<kBatch>(values + start, cols + start, x, w, lane, kLanes);
    }
    sum = group_sum<kLanes>(sum);
    if (row < rows && lane == 0) y[row] = to_scalar(sum);
}

// Long rows: a block each.
__global__ void __launch_bounds__(256) spmv_long(const scalar_t* __restrict__ values, const int32_t* __restrict__ cols,
                                                 const scalar_t* __restrict__ x, scalar_t* __restrict__ y, uint32_t w) {
    __shared__ float partial[8];
    const size_t start = static_cast<size_t>(blockIdx.x) * w;
    float sum = lane_sum<8>(values + start, cols + start, x, w, threadIdx.x, 256);
    sum = group_sum<32>(sum);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = group_sum<8>(partial[threadIdx.x % 8]);
        if (threadIdx.x == 0) y[blockIdx.x] = to_scalar(sum);
    }
}

template <int kLanes>
static void launch_fours(const scalar_t* values, const int32_t* cols, const scalar_t* x, scalar_t* y, uint32_t rows, uint32_t w,
                         cudaStream_t stream) {
    constexpr uint32_t kRows = 128 / kLanes;
    spmv_fours<kLanes><<<(rows + kRows - 1) / kRows, 128, 0, stream>>>(values, cols, x, y, rows, w / 4);
}

template <int kLanes, int kBatch>
static void launch_any(const scalar_t* values, const int32_t* cols, const scalar_t* x, scalar_t* y, uint32_t rows, uint32_t w,
                       cudaStream_t stream) {
    constexpr uint32_t kRows = 128 / kLanes;
    spmv_any<kLanes, kBatch><<<(rows + kRows - 1) / kRows, 128, 0, stream>>>(values, cols, x, y, rows, w);
}

extern "C" cudaError_t spmv_ell(const scalar_t* values, const int32_t* col_ids, const scalar_t* x, scalar_t* y,
                                int64_t rows, int64_t cols, int64_t w, void* workspace, size_t workspace_bytes,
                                cudaStream_t stream) {
    const uint32_t r = static_cast<uint32_t>(rows);
    const uint32_t n = static_cast<uint32_t>(w);
    const bool fours = n % 4 == 0 && reinterpret_cast<uintptr_t>(values) % (4 * sizeof(scalar_t)) == 0 &&
                       reinterpret_cast<uintptr_t>(col_ids) % 16 == 0;
    const bool many = rows * w > 4 * 132 * 2048;  // more than one wave of threads with four elements each
    if (n > 1024) {
        spmv_long<<<r, 256, 0, stream>>>(values, col_ids, x, y, n);
    } else if (fours && (many || n >= 36)) {
        // Many rows: two units of four for each lane. Few rows: one, for more lanes at work.
        const uint32_t lanes = many ? (n / 4 + 1) / 2 : n / 4;
        if (lanes <= 2) launch_fours<2>(values, col_ids, x, y, r, n, stream);
        else if (lanes <= 4) launch_fours<4>(values, col_ids, x, y, r, n, stream);
        else if (lanes <= 8) launch_fours<8>(values, col_ids, x, y, r, n, stream);
        else if (lanes <= 16) launch_fours<16>(values, col_ids, x, y, r, n, stream);
        else launch_fours<32>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 4) {
        launch_any<4, 1>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 8) {
        launch_any<8, 1>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 16) {
        launch_any<16, 1>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 32) {
        launch_any<32, 1>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 64) {
        launch_any<32, 2>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 96) {
        launch_any<32, 3>(values, col_ids, x, y, r, n, stream);
    } else if (n <= 192) {
        launch_any<32, 6>(values, col_ids, x, y, r, n, stream);
    } else {
        launch_any<32, 11>(values, col_ids, x, y, r, n, stream);
    }
    return cudaGetLastError();
}
