// Batch normalisation.
// Small N: 16 columns a block, x read once into registers, rows split over a cluster of up to 8 blocks; one launch.
// Bound: launch plus one memory round trip. Large N: statistics by chunks, merge, normalise in reverse order (L2 reuse):
// x is read twice and y written once, about 180 us for 65536 x 1024.

constexpr int kTile = 16;         // columns of a block of the small kernel
constexpr int kSmallThreads = 512;

template <int V>
struct Vec;
template <>
struct Vec<4> {
    static __device__ __forceinline__ void load(const float* p, float* v) {
        const float4 t = __ldg(reinterpret_cast<const float4*>(p));
        v[0] = t.x; v[1] = t.y; v[2] = t.z; v[3] = t.w;
    }
    static __device__ __forceinline__ void store(float* p, const float* v) {
        __stcs(reinterpret_cast<float4*>(p), make_float4(v[0], v[1], v[2], v[3]));
    }
};
template <>
struct Vec<1> {
    static __device__ __forceinline__ void load(const float* p, float* v) { v[0] = __ldg(p); }
    static __device__ __forceinline__ void store(float* p, const float* v) { __stcs(p, v[0]); }
};

// Sums over the rows of the block, for the V columns of this thread, in every thread. `scratch`: [16][kTile], fresh.
template <int V>
__device__ __forceinline__ void block_column_sums(float* s, float (*scratch)[kTile], int lane_column) {
    constexpr int L = kTile / V;
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int warps = blockDim.x >> 5;
#pragma unroll
    for (int d = L; d < 32; d <<= 1) {
#pragma unroll
        for (int j = 0; j < V; ++j) s[j] += __shfl_xor_sync(0xffffffffu, s[j], d);
    }
    if (warps == 1) return;
    if (lane < L) {
#pragma unroll
        for (int j = 0; j < V; ++j) scratch[warp][lane_column + j] = s[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < V; ++j) s[j] = 0.f;
#pragma unroll 4
    for (int w = 0; w < warps; ++w) {
#pragma unroll
        for (int j = 0; j < V; ++j) s[j] += scratch[w][lane_column + j];
    }
}

__device__ __forceinline__ float load_remote(const float* p, int rank) {
    const uint32_t local = static_cast<uint32_t>(__cvta_generic_to_shared(p));
    uint32_t remote;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(remote) : "memory");
    return v;
}

__device__ __forceinline__ int rows_of_rank(int N, int M, int rank) {
    const int left = N - rank * M;
    return left < 0 ? 0 : (left < M ? left : M);
}

template <int V, int K>
__global__ void __launch_bounds__(kSmallThreads)
bn_small(const float* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta,
         float* __restrict__ y, float epsilon, int N, int C, int S, int M) {
    constexpr int L = kTile / V;
    __shared__ alignas(16) float scratch1[kSmallThreads / 32][kTile];
    __shared__ alignas(16) float scratch2[kSmallThreads / 32][kTile];
    __shared__ alignas(16) float shared_mean[kTile];
    __shared__ alignas(16) float shared_m2[kTile];

    const int lane_column = (threadIdx.x % L) * V;
    const int column = blockIdx.x * kTile + lane_column;
    const bool inside = column < C;
    const int rank = blockIdx.y;
    const int r0 = threadIdx.x / L;
    const int pass = blockDim.x / L;
    const int count = rows_of_rank(N, M, rank);
    const int64_t base = static_cast<int64_t>(rank) * M * C + column;

    float v[K][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = k * pass + r0;
#pragma unroll
        for (int j = 0; j < V; ++j) v[k][j] = 0.f;
        if (inside && row < count) Vec<V>::load(x + base + static_cast<int64_t>(row) * C, v[k]);
    }
    float g[V], b[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        g[j] = 0.f;
        b[j] = 0.f;
        if (inside) {
            g[j] = __ldg(gamma + column + j);
            b[j] = __ldg(beta + column + j);
        }
    }

    float mean[V], m2[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        mean[j] = 0.f;
#pragma unroll
        for (int k = 0; k < K; ++k) mean[j] += v[k][j];
    }
    block_column_sums<V>(mean, scratch1, lane_column);
    const float n = static_cast<float>(count > 0 ? count : 1);
#pragma unroll
    for (int j = 0; j < V; ++j) {
        mean[j] = mean[j] / n;
        m2[j] = 0.f;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        if (k * pass + r0 < count) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float d = v[k][j] - mean[j];
                m2[j] = fmaf(d, d, m2[j]);
            }
        }
    }
    block_column_sums<V>(m2, scratch2, lane_column);

    if (S > 1) {
        if (threadIdx.x < L) {
#pragma unroll
            for (int j = 0; j < V; ++j) {
                shared_mean[lane_column + j] = mean[j];
                shared_m2[lane_column + j] = m2[j];
            }
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        float total_mean[V], total_m2[V];
        int seen = 0;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            total_mean[j] = 0.f;
            total_m2[j] = 0.f;
        }
        for (int r = 0; r < S; ++r) {
            const int other = rows_of_rank(N, M, r);
            if (other == 0) break;
            const float share = static_cast<float>(other) / static_cast<float>(seen + other);
            const float weight = static_cast<float>(seen) * share;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float other_mean = load_remote(&shared_mean[lane_column + j], r);
                const float other_m2 = load_remote(&shared_m2[lane_column + j], r);
                const float d = other_mean - total_mean[j];
                if (seen == 0) {
                    total_mean[j] = other_mean;
                    total_m2[j] = other_m2;
                } else {
                    total_mean[j] = fmaf(d, share, total_mean[j]);
                    total_m2[j] += fmaf(d * d, weight, other_m2);
                }
            }
            seen += other;
        }
#pragma unroll
        for (int j = 0; j < V; ++j) {
            mean[j] = total_mean[j];
            m2[j] = total_m2[j];
        }
        __syncwarp();
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    }

    float a[V];
#pragma unroll
    for (int j = 0; j < V; ++j) a[j] = g[j] / sqrtf(m2[j] / static_cast<float>(N) + epsilon);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = k * pass + r0;
        if (inside && row < count) {
            float o[V];
#pragma unroll
            for (int j = 0; j < V; ++j) o[j] = fmaf(v[k][j] - mean[j], a[j], b[j]);
            Vec<V>::store(y + base + static_cast<int64_t>(row) * C, o);
        }
    }
    if (S > 1) {
        __syncwarp();
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // no block leaves while its sums are read
    }
}

// ---------------------------------------------------------------- many rows

constexpr int kLargeRows = 8;  // rows of threads; 32 threads a row

__device__ __forceinline__ void merge(float& n, float& mean, float& m2, float on, float om, float o2) {
    if (on == 0.f) return;
    if (n == 0.f) {
        n = on;
        mean = om;
        m2 = o2;
        return;
    }
    const float share = on / (n + on);
    const float d = om - mean;
    mean = fmaf(d, share, mean);
    m2 += fmaf(d * d, n * share, o2);
    n += on;
}

template <int V>
__global__ void __launch_bounds__(256)
bn_stats(const float* __restrict__ x, float* __restrict__ means, float* __restrict__ m2s, int N, int C, int chunk_rows) {
    __shared__ float smean[kLargeRows][32 * V];
    __shared__ float sm2[kLargeRows][32 * V];
    const int tx = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = (blockIdx.x * 32 + tx) * V;
    const int start = blockIdx.y * chunk_rows;
    const int end = start + chunk_rows < N ? start + chunk_rows : N;
    const bool inside = column < C;
    float shift[V], a[V], q[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        shift[j] = 0.f;
        a[j] = 0.f;
        q[j] = 0.f;
    }
    int row = start + ty;
    if (inside && row < end) {
        const float* p = x + static_cast<int64_t>(row) * C + column;
        const int64_t step = static_cast<int64_t>(kLargeRows) * C;
        Vec<V>::load(p, shift);
        for (; row + 7 * kLargeRows < end; row += 8 * kLargeRows, p += 8 * step) {
            float v[8][V];
#pragma unroll
            for (int k = 0; k < 8; ++k) Vec<V>::load(p + k * step, v[k]);
#pragma unroll
            for (int k = 0; k < 8; ++k) {
#pragma unroll
                for (int j = 0; j < V; ++j) {
                    const float d = v[k][j] - shift[j];
                    a[j] += d;
                    q[j] = fmaf(d, d, q[j]);
                }
            }
        }
        for (; row < end; row += kLargeRows, p += step) {
            float v[V];
            Vec<V>::load(p, v);
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float d = v[j] - shift[j];
                a[j] += d;
                q[j] = fmaf(d, d, q[j]);
            }
        }
    }
    const int mine = start + ty < end ? (end - start - ty + kLargeRows - 1) / kLargeRows : 0;
    const float n = static_cast<float>(mine > 0 ? mine : 1);
#pragma unroll
    for (int j = 0; j < V; ++j) {
        const float delta = a[j] / n;
        smean[ty][tx * V + j] = shift[j] + delta;
        sm2[ty][tx * V + j] = fmaf(-a[j], delta, q[j]);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < 32 * V; c += 256) {
        const int global = blockIdx.x * 32 * V + c;
        if (global < C) {
            float count = 0.f, mean = 0.f, m2 = 0.f;
            for (int r = 0; r < kLargeRows; ++r) {
                const int rows = start + r < end ? (end - start - r + kLargeRows - 1) / kLargeRows : 0;
                merge(count, mean, m2, static_cast<float>(rows), smean[r][c], sm2[r][c]);
            }
            means[static_cast<int64_t>(blockIdx.y) * C + global] = mean;
            m2s[static_cast<int64_t>(blockIdx.y) * C + global] = m2;
        }
    }
}

__global__ void __launch_bounds__(1024)
bn_merge(const float* __restrict__ means, const float* __restrict__ m2s, const float* __restrict__ gamma,
         float* __restrict__ final_mean, float* __restrict__ final_scale, float epsilon, int N, int C, int chunks,
         int chunk_rows) {
    __shared__ float sn[32][32];
    __shared__ float smean[32][32];
    __shared__ float sm2[32][32];
    const int tx = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = blockIdx.x * 32 + tx;
    float n = 0.f, mean = 0.f, m2 = 0.f;
    if (column < C) {
#pragma unroll 4
        for (int p = ty; p < chunks; p += 32) {
            const int left = N - p * chunk_rows;
            const float rows = static_cast<float>(left < chunk_rows ? left : chunk_rows);
            merge(n, mean, m2, rows, means[static_cast<int64_t>(p) * C + column], m2s[static_cast<int64_t>(p) * C + column]);
        }
    }
    sn[ty][tx] = n;
    smean[ty][tx] = mean;
    sm2[ty][tx] = m2;
    __syncthreads();
    for (int half = 16; half > 0; half >>= 1) {
        if (ty < half) {
            merge(n, mean, m2, sn[ty + half][tx], smean[ty + half][tx], sm2[ty + half][tx]);
            sn[ty][tx] = n;
            smean[ty][tx] = mean;
            sm2[ty][tx] = m2;
        }
        __syncthreads();
    }
    if (ty == 0 && column < C) {
        final_mean[column] = mean;
        final_scale[column] = gamma[column] / sqrtf(m2 / static_cast<float>(N) + epsilon);
    }
}

template <int V>
__global__ void __launch_bounds__(256)
bn_normalise(const float* __restrict__ x, const float* __restrict__ final_mean, const float* __restrict__ final_scale,
             const float* __restrict__ beta, float* __restrict__ y, int N, int C, int chunk_rows) {
    const int tx = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = (blockIdx.x * 32 + tx) * V;
    if (column >= C) return;
    const int chunk = gridDim.y - 1 - blockIdx.y;  // what was read last is still in L2
    const int start = chunk * chunk_rows;
    const int end = start + chunk_rows < N ? start + chunk_rows : N;
    float mean[V], a[V], b[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        mean[j] = __ldg(final_mean + column + j);
        a[j] = __ldg(final_scale + column + j);
        b[j] = __ldg(beta + column + j);
    }
    int row = start + ty;
    int64_t at = static_cast<int64_t>(row) * C + column;
    const int64_t step = static_cast<int64_t>(kLargeRows) * C;
    for (; row + 7 * kLargeRows < end; row += 8 * kLargeRows, at += 8 * step) {
        float v[8][V];
#pragma unroll
        for (int k = 0; k < 8; ++k) Vec<V>::load(x + at + k * step, v[k]);
#pragma unroll
        for (int k = 0; k < 8; ++k) {
#pragma unroll
            for (int j = 0; j < V; ++j) v[k][j] = fmaf(v[k][j] - mean[j], a[j], b[j]);
            Vec<V>::store(y + at + k * step, v[k]);
        }
    }
    for (; row < end; row += kLargeRows, at += step) {
        float v[V];
        Vec<V>::load(x + at, v);
#pragma unroll
        for (int j = 0; j < V; ++j) v[j] = fmaf(v[j] - mean[j], a[j], b[j]);
        Vec<V>::store(y + at, v);
    }
}

// ---------------------------------------------------------------- launchers

static int most_chunks(int64_t N, int64_t column_tiles) {
    int64_t chunks = (1056 + column_tiles - 1) / column_tiles;
    const int64_t limit = (N + 63) / 64;
    if (chunks > limit) chunks = limit;
    return static_cast<int>(chunks < 1 ? 1 : chunks);
}

template <int V, int K>
static cudaError_t launch_small(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N,
                                int C, int S, int M, cudaStream_t stream) {
    constexpr int L = kTile / V;
    int threads = (M * L + 31) / 32 * 32;
    if (threads > kSmallThreads) threads = kSmallThreads;
    const dim3 grid((C + kTile - 1) / kTile, S);
    if (S == 1) {
        bn_small<V, K><<<grid, threads, 0, stream>>>(x, gamma, beta, y, epsilon, N, C, S, M);
        return cudaGetLastError();
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = 1;
    attribute[0].val.clusterDim.y = S;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    const cudaError_t error = cudaLaunchKernelEx(&config, bn_small<V, K>, x, gamma, beta, y, epsilon, N, C, S, M);
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}

template <int V>
static cudaError_t launch_large(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N,
                                int C, float* workspace, cudaStream_t stream) {
    const int column_tiles = (C + 32 * V - 1) / (32 * V);
    int chunks = most_chunks(N, column_tiles);
    const int chunk_rows = (N + chunks - 1) / chunks;
    chunks = (N + chunk_rows - 1) / chunk_rows;
    float* final_mean = workspace;
    float* final_scale = final_mean + C;
    float* means = final_scale + C;
    float* m2s = means + static_cast<int64_t>(chunks) * C;
    const dim3 grid(column_tiles, chunks);
    bn_stats<V><<<grid, 256, 0, stream>>>(x, means, m2s, N, C, chunk_rows);
    bn_merge<<<(C + 31) / 32, 1024, 0, stream>>>(means, m2s, gamma, final_mean, final_scale, epsilon, N, C, chunks,
                                                 chunk_rows);
    bn_normalise<V><<<grid, 256, 0, stream>>>(x, final_mean, final_scale, beta, y, N, C, chunk_rows);
    return cudaGetLastError();
}

extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    (void)epsilon;
    if (N <= 2048) return 256;
    const int64_t chunks = most_chunks(N, (C + 127) / 128);
    return static_cast<size_t>((2 * chunks + 2) * C) * sizeof(float);
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y,
                                  float epsilon, int64_t N64, int64_t C64, void* workspace, size_t workspace_bytes,
                                  cudaStream_t stream) {
    (void)workspace_bytes;
    const int N = static_cast<int>(N64);
    const int C = static_cast<int>(C64);
    const bool packets = C % 4 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (packets) {
        if (N <= 4096) {
            int S = 1;
            while ((N + S - 1) / S > 512) S *= 2;
            const int M = (N + S - 1) / S;
            if (M <= 128) return launch_small<4, 1>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
            if (M <= 256) return launch_small<4, 2>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
            return launch_small<4, 4>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
        }
        return launch_large<4>(x, gamma, beta, y, epsilon, N, C, static_cast<float*>(workspace), stream);
    }
    if (N <= 2048) {
        int S = 1;
        while ((N + S - 1) / S > 256) S *= 2;
        const int M = (N + S - 1) / S;
        if (M <= 32) return launch_small<1, 1>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
        if (M <= 64) return launch_small<1, 2>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
        if (M <= 128) return launch_small<1, 4>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
        return launch_small<1, 8>(x, gamma, beta, y, epsilon, N, C, S, M, stream);
    }
    return launch_large<1>(x, gamma, beta, y, epsilon, N, C, static_cast<float*>(workspace), stream);
}
