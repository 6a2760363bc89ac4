// Batch normalisation.
// Small N: 8 columns (one sector) per block, the rows in registers: read once, two passes over registers, write once. Launch-bound.
// Large N: cooperative kernel, x read about 1.7 times instead of 2: 200 KiB of shared memory, 128 KiB of registers per block
// and the tail of x in L2 serve the second pass (about 165 us for 65536 x 1024).

#include <cooperative_groups.h>

template <int V>
struct alignas(4 * V) Vec {
    float e[V];
};

template <int V, bool kStream>
__device__ __forceinline__ Vec<V> load_vec(const float* p) {
    Vec<V> v;
    if constexpr (V == 4) {
        float4 f;
        if constexpr (kStream) f = __ldcs(reinterpret_cast<const float4*>(p));
        else f = __ldg(reinterpret_cast<const float4*>(p));
        v.e[0] = f.x;
        v.e[1] = f.y;
        v.e[2] = f.z;
        v.e[3] = f.w;
    } else {
#pragma unroll
        for (int c = 0; c < V; ++c) {
            if constexpr (kStream) v.e[c] = __ldcs(p + c);
            else v.e[c] = __ldg(p + c);
        }
    }
    return v;
}

template <int V>
__device__ __forceinline__ void store_vec(float* p, const Vec<V>& v) {
    if constexpr (V == 4) {
        __stcs(reinterpret_cast<float4*>(p), make_float4(v.e[0], v.e[1], v.e[2], v.e[3]));
    } else {
#pragma unroll
        for (int c = 0; c < V; ++c) __stcs(p + c, v.e[c]);
    }
}

// ---------------------------------------------------------------- few rows: everything in registers

constexpr int kSlab = 8;

template <int V>
__device__ __forceinline__ void slab_sum(float (&own)[V], float (*partial)[kSlab], int tx, int warps) {
    constexpr int kLanes = kSlab / V;
#pragma unroll
    for (int d = 16; d >= kLanes; d /= 2) {
#pragma unroll
        for (int c = 0; c < V; ++c) own[c] += __shfl_xor_sync(0xffffffffu, own[c], d);
    }
    if ((threadIdx.x & 31) < kLanes) {
#pragma unroll
        for (int c = 0; c < V; ++c) partial[threadIdx.x / 32][tx * V + c] = own[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < V; ++c) own[c] = 0;
#pragma unroll 8
    for (int w = 0; w < warps; ++w) {
        const Vec<V> p = *reinterpret_cast<const Vec<V>*>(&partial[w][tx * V]);
#pragma unroll
        for (int c = 0; c < V; ++c) own[c] += p.e[c];
    }
}

template <int V, int K>
__global__ void __launch_bounds__(1024)
    batch_norm_small(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N, int C) {
    constexpr int kLanes = kSlab / V;
    __shared__ __align__(16) float partial[2][32][kSlab];
    const int tid = threadIdx.x;
    const int tx = tid % kLanes;
    const int ty = tid / kLanes;
    const int stride = blockDim.x / kLanes;
    const int warps = blockDim.x / 32;
    const int column = blockIdx.x * kSlab + tx * V;
    const bool inside = column < C;
    Vec<V> v[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = ty + k * stride;
#pragma unroll
        for (int c = 0; c < V; ++c) v[k].e[c] = 0;
        if (inside && row < N) v[k] = load_vec<V, false>(x + size_t(row) * C + column);
    }
    float g[V], b[V];
#pragma unroll
    for (int c = 0; c < V; ++c) {
        g[c] = inside ? __ldg(gamma + column + c) : 0.0f;
        b[c] = inside ? __ldg(beta + column + c) : 0.0f;
    }
    float mean[V];
#pragma unroll
    for (int c = 0; c < V; ++c) {
        mean[c] = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) mean[c] += v[k].e[c];
    }
    slab_sum<V>(mean, partial[0], tx, warps);
    const float rows = float(N);
    float squares[V];
#pragma unroll
    for (int c = 0; c < V; ++c) {
        mean[c] = mean[c] / rows;
        squares[c] = 0;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        if (ty + k * stride < N) {
#pragma unroll
            for (int c = 0; c < V; ++c) {
                const float d = v[k].e[c] - mean[c];
                v[k].e[c] = d;
                squares[c] = fmaf(d, d, squares[c]);
            }
        }
    }
    slab_sum<V>(squares, partial[1], tx, warps);
#pragma unroll
    for (int c = 0; c < V; ++c) g[c] *= 1.0f / sqrtf(squares[c] / rows + epsilon);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = ty + k * stride;
        if (inside && row < N) {
            Vec<V> o;
#pragma unroll
            for (int c = 0; c < V; ++c) o.e[c] = fmaf(v[k].e[c], g[c], b[c]);
            store_vec<V>(y + size_t(row) * C + column, o);
        }
    }
}

// ---------------------------------------------------------------- many rows: one cooperative kernel

constexpr int kThreads = 512;
constexpr int kKept = 16;                     // vectors per thread that stay in registers
constexpr int kBatch = 8;                     // vectors per thread in flight
constexpr int kCacheBytes = 200 * 1024;       // of x, in shared memory
constexpr int kColumnsMax = 256;              // columns of a slab

template <int V>
struct Moments {
    float shift[V], sum[V], square[V];
};

// Adds `count` (at most M) vectors.
template <int V, int M>
__device__ __forceinline__ void gather(Moments<V>& m, const Vec<V> (&v)[M], int count) {
#pragma unroll
    for (int h = 0; h < M; h += 8) {
        float s[V], q[V];
#pragma unroll
        for (int c = 0; c < V; ++c) s[c] = q[c] = 0;
#pragma unroll
        for (int k = h; k < h + 8; ++k) {
            if (k < count) {
#pragma unroll
                for (int c = 0; c < V; ++c) {
                    const float d = v[k].e[c] - m.shift[c];
                    s[c] += d;
                    q[c] = fmaf(d, d, q[c]);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < V; ++c) {
            m.sum[c] += s[c];
            m.square[c] += q[c];
        }
    }
}

template <int V>
__global__ void __launch_bounds__(kThreads, 1)
    batch_norm_large(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N, int C,
                     int lane_bits, int groups, int l2_passes, float* workspace) {
    extern __shared__ __align__(16) unsigned char dynamic[];
    Vec<V>* cache = reinterpret_cast<Vec<V>*>(dynamic);
    float* scratch = reinterpret_cast<float*>(dynamic + kCacheBytes);  // 2 x kThreads x V floats
    constexpr int kCachePasses = kCacheBytes / (kThreads * 4 * V);

    const int tid = threadIdx.x;
    const int lanes = 1 << lane_bits;
    const int tx = tid & (lanes - 1);
    const int ty = tid >> lane_bits;
    const int pass_rows = kThreads >> lane_bits;
    const int width = lanes * V;
    const int slab = blockIdx.x / groups;
    const int group = blockIdx.x % groups;
    const int column = slab * width + tx * V;
    const bool inside = column < C;
    const int r0 = int(int64_t(N) * group / groups);
    const int r1 = int(int64_t(N) * (group + 1) / groups);
    // This thread's rows: r0 + ty + p * pass_rows for p < count.
    const int mine = r1 - r0 - ty;
    const int count = inside && mine > 0 ? (mine + pass_rows - 1) >> (9 - lane_bits) : 0;
    const size_t step = size_t(pass_rows) * C;
    const size_t first = size_t(r0 + ty) * C + column;
    const float* xp = x + first;
    float* yp = y + first;

    const int cached = min(count, kCachePasses);
    const int kept = min(count - cached, kKept);
    const int streamed = count - kept;  // passes [cached, streamed) are read twice
    const int l2_from = max(cached, streamed - l2_passes);

    Moments<V> m;
#pragma unroll
    for (int c = 0; c < V; ++c) m.shift[c] = m.sum[c] = m.square[c] = 0;
    if (count > 0) {
        const Vec<V> v = load_vec<V, false>(xp);
#pragma unroll
        for (int c = 0; c < V; ++c) m.shift[c] = v.e[c];
    }
    {
        int p = 0;
        for (; p < cached; p += kBatch) {
            Vec<V> v[kBatch];
#pragma unroll
            for (int k = 0; k < kBatch; ++k) {
                if (p + k < cached) v[k] = load_vec<V, true>(xp + size_t(p + k) * step);
            }
#pragma unroll
            for (int k = 0; k < kBatch; ++k) {
                if (p + k < cached) cache[(p + k) * kThreads + tid] = v[k];
            }
            gather<V, kBatch>(m, v, cached - p);
        }
        p = cached;
        for (; p + kBatch <= l2_from; p += kBatch) {
            Vec<V> v[kBatch];
#pragma unroll
            for (int k = 0; k < kBatch; ++k) v[k] = load_vec<V, true>(xp + size_t(p + k) * step);
            gather<V, kBatch>(m, v, kBatch);
        }
        for (; p + kBatch <= streamed; p += kBatch) {
            Vec<V> v[kBatch];
#pragma unroll
            for (int k = 0; k < kBatch; ++k) v[k] = load_vec<V, false>(xp + size_t(p + k) * step);
            gather<V, kBatch>(m, v, kBatch);
        }
        if (p < streamed) {
            Vec<V> v[kBatch];
#pragma unroll
            for (int k = 0; k < kBatch; ++k) {
                if (p + k < streamed) v[k] = load_vec<V, false>(xp + size_t(p + k) * step);
            }
            gather<V, kBatch>(m, v, streamed - p);
        }
    }
    Vec<V> held[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
#pragma unroll
        for (int c = 0; c < V; ++c) held[k].e[c] = 0;
        if (k < kept) held[k] = load_vec<V, true>(xp + size_t(streamed + k) * step);
    }
    gather<V, kKept>(m, held, kept);

    // This block's mean and sum of squared distances for each column.
    float* means = scratch;
    float* squares = scratch + kThreads * V;
#pragma unroll
    for (int c = 0; c < V; ++c) {
        const float n = float(count);
        const float average = count > 0 ? m.sum[c] / n : 0.0f;
        means[ty * width + tx * V + c] = m.shift[c] + average;
        squares[ty * width + tx * V + c] = m.square[c] - m.sum[c] * average;
    }
    __syncthreads();
    float* all_means = workspace;
    float* all_squares = workspace + size_t(groups) * C;
    for (int j = tid; j < width; j += kThreads) {
        const int global = slab * width + j;
        if (global < C && r1 > r0) {
            float sum = 0;
            for (int t = 0; t < pass_rows; ++t) {
                const int left = r1 - r0 - t;
                const int n = left > 0 ? (left + pass_rows - 1) >> (9 - lane_bits) : 0;
                if (n > 0) sum += float(n) * means[t * width + j];
            }
            const float mean = sum / float(r1 - r0);
            float square = 0;
            for (int t = 0; t < pass_rows; ++t) {
                const int left = r1 - r0 - t;
                const int n = left > 0 ? (left + pass_rows - 1) >> (9 - lane_bits) : 0;
                if (n > 0) {
                    const float d = means[t * width + j] - mean;
                    square += squares[t * width + j] + float(n) * d * d;
                }
            }
            all_means[size_t(group) * C + global] = mean;
            all_squares[size_t(group) * C + global] = square;
        }
    }

    cooperative_groups::this_grid().sync();

    // Merge the groups: all threads, several per column.
    {
        const int j = tid & (width - 1);
        const int part = tid / width;
        const int parts = kThreads / width;
        const int global = slab * width + j;
        float sum = 0, square = 0;
        if (global < C) {
            const float shift = __ldcg(all_means + global);
#pragma unroll 8
            for (int g = part; g < groups; g += parts) {
                const float mean = __ldcg(all_means + size_t(g) * C + global);
                const float q = __ldcg(all_squares + size_t(g) * C + global);
                const float n = float(int(int64_t(N) * (g + 1) / groups) - int(int64_t(N) * g / groups));
                const float d = mean - shift;
                sum = fmaf(n, d, sum);
                square += fmaf(n * d, d, q);
            }
        }
        scratch[tid] = sum;
        scratch[kThreads + tid] = square;
        __syncthreads();
        float mean = 0, inverse = 0;
        if (part == 0 && global < C) {
            for (int t = 1; t < parts; ++t) {
                sum += scratch[t * width + j];
                square += scratch[kThreads + t * width + j];
            }
            const float average = sum / float(N);
            mean = __ldcg(all_means + global) + average;
            float variance = (square - sum * average) / float(N);
            if (variance < 0.0f) variance = 0.0f;  // keeps NaN
            inverse = 1.0f / sqrtf(variance + epsilon);
        }
        __syncthreads();
        if (part == 0) {
            scratch[j] = mean;
            scratch[kThreads + j] = inverse;
        }
        __syncthreads();
    }
    float mean[V], scale[V], shift[V];
#pragma unroll
    for (int c = 0; c < V; ++c) {
        mean[c] = scratch[tx * V + c];
        scale[c] = inside ? __ldg(gamma + column + c) * scratch[kThreads + tx * V + c] : 0.0f;
        shift[c] = inside ? __ldg(beta + column + c) : 0.0f;
    }
    auto put = [&](const Vec<V>& v, int pass) {
        Vec<V> o;
#pragma unroll
        for (int c = 0; c < V; ++c) o.e[c] = fmaf(v.e[c] - mean[c], scale[c], shift[c]);
        store_vec<V>(yp + size_t(pass) * step, o);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
        if (k < kept) put(held[k], streamed + k);
    }
    int p = streamed;
    for (; p - kBatch >= cached; p -= kBatch) {
        Vec<V> v[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) v[k] = load_vec<V, true>(xp + size_t(p - 1 - k) * step);
#pragma unroll
        for (int k = 0; k < kBatch; ++k) put(v[k], p - 1 - k);
    }
    for (; p > cached; --p) put(load_vec<V, true>(xp + size_t(p - 1) * step), p - 1);
#pragma unroll 4
    for (int q = 0; q < cached; ++q) put(cache[q * kThreads + tid], q);
}

// ---------------------------------------------------------------- host

static int multiprocessors() {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count > 0 ? count : 132;
}

extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    const size_t columns = size_t(multiprocessors()) * kColumnsMax;
    return 2 * sizeof(float) * (columns > size_t(C) ? columns : size_t(C)) + 256;
}

template <int V>
static cudaError_t launch_large(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N,
                                int C, float* workspace, cudaStream_t stream) {
    int lane_bits = 0;
    while ((V << lane_bits) < C && (V << lane_bits) < kColumnsMax) ++lane_bits;
    const int width = V << lane_bits;
    const int slabs = (C + width - 1) / width;
    int groups = multiprocessors() / slabs;
    if (groups < 1) groups = 1;
    const int blocks = slabs * groups;
    const int l2_passes = int((int64_t(36) << 20) / (int64_t(blocks) * kThreads * V * 4));
    const size_t shared = kCacheBytes + size_t(2) * kThreads * V * sizeof(float);
    cudaError_t error =
        cudaFuncSetAttribute(batch_norm_large<V>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    if (error != cudaSuccess) return error;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    cudaLaunchAttribute attribute[1] = {};
    attribute[0].id = cudaLaunchAttributeCooperative;
    attribute[0].val.cooperative = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    error = cudaLaunchKernelEx(&config, batch_norm_large<V>, x, gamma, beta, y, epsilon, N, C, lane_bits, groups,
                               l2_passes, workspace);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y,
                                  float epsilon, int64_t N, int64_t C, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    const int n = int(N), c = int(C);
    const bool vectors = C % 4 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    float* scratch = static_cast<float*>(workspace);
    if (N > 1024) {
        return vectors ? launch_large<4>(x, gamma, beta, y, epsilon, n, c, scratch, stream)
                       : launch_large<1>(x, gamma, beta, y, epsilon, n, c, scratch, stream);
    }
    const int blocks = (c + kSlab - 1) / kSlab;
    if (vectors) {
        if (n <= 16) batch_norm_small<4, 1><<<blocks, 32, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else if (n <= 64) batch_norm_small<4, 1><<<blocks, 128, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else if (n <= 256) batch_norm_small<4, 2><<<blocks, 256, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else batch_norm_small<4, 4><<<blocks, 512, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
    } else {
        if (n <= 16) batch_norm_small<1, 1><<<blocks, 128, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else if (n <= 64) batch_norm_small<1, 2><<<blocks, 256, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else if (n <= 256) batch_norm_small<1, 4><<<blocks, 512, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        else batch_norm_small<1, 8><<<blocks, 1024, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
    }
    return cudaGetLastError();
}
