// Batch normalisation.
// N <= 1024: x stays in registers, one launch, one read and one write; a cluster of 8 blocks shares 32 columns for N > 256
// (bound: launch latency).
// N > 1024: chunk statistics (one read, Chan merges), merge, normalise in reverse row order to reuse L2
// (bound: two reads and one write, about 180 us for 65536 x 1024, less what L2 keeps).

constexpr int kLanes = 32;

__device__ __forceinline__ void bn_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void bn_wait_dependency() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---------------------------------------------------------------- everything in registers

// kWarps rows of threads a block, kCluster blocks for the same 32 columns, at most kHeld rows a thread.
template <int kWarps, int kHeld, int kCluster>
__global__ void __launch_bounds__(kWarps * 32) bn_held_kernel(const float* __restrict__ x, const float* __restrict__ gamma,
                                                             const float* __restrict__ beta, float* __restrict__ y,
                                                             float epsilon, int N, int C) {
    __shared__ float s_mean[kWarps][kLanes];
    __shared__ float s_m2[kWarps][kLanes];
    __shared__ float s_all[3][kCluster][kLanes];  // mean, squared distances, count, of each block of the cluster

    if constexpr (kCluster > 1) asm volatile("barrier.cluster.arrive.release;" ::: "memory");

    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int rank = kCluster > 1 ? static_cast<int>(blockIdx.x % kCluster) : 0;
    const int group = blockIdx.x / kCluster;
    const int column = group * kLanes + lane;
    const bool inside = column < C;
    const int column_read = inside ? column : C - 1;
    constexpr int kStep = kWarps * kCluster;
    const int first = rank * kWarps + warp;

    float held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const int row = first + i * kStep;
        held[i] = 0.0f;
        if (row < N) held[i] = __ldg(x + static_cast<int64_t>(row) * C + column_read);
    }
    const float scale = __ldg(gamma + column_read);
    const float shift = __ldg(beta + column_read);

    // This thread's rows.
    const int count = first < N ? (N - 1 - first) / kStep + 1 : 0;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum += held[i];
    const float own_mean = count > 0 ? sum / static_cast<float>(count) : 0.0f;
    float own_m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
        const float d = held[i] - own_mean;
        if (first + i * kStep < N) own_m2 = fmaf(d, d, own_m2);
    }
    s_mean[warp][lane] = own_mean;
    s_m2[warp][lane] = own_m2;
    __syncthreads();

    // Warp 0 merges the block's rows.
    if (warp == 0) {
        float total = 0.0f;
        float rows = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const int f = rank * kWarps + w;
            const float n = f < N ? static_cast<float>((N - 1 - f) / kStep + 1) : 0.0f;
            rows += n;
            total = fmaf(s_mean[w][lane], n, total);
        }
        const float mean = rows > 0.0f ? total / rows : 0.0f;
        float m2 = 0.0f;
        float between = 0.0f;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
            const int f = rank * kWarps + w;
            const float n = f < N ? static_cast<float>((N - 1 - f) / kStep + 1) : 0.0f;
            const float d = s_mean[w][lane] - mean;
            m2 += s_m2[w][lane];
            between = fmaf(n * d, d, between);
        }
        m2 += between;
        if constexpr (kCluster > 1) {
            asm volatile("barrier.cluster.wait.acquire;" ::: "memory");  // every block of the cluster has started
            const uint32_t a_mean = static_cast<uint32_t>(__cvta_generic_to_shared(&s_all[0][rank][lane]));
            const uint32_t a_m2 = static_cast<uint32_t>(__cvta_generic_to_shared(&s_all[1][rank][lane]));
            const uint32_t a_rows = static_cast<uint32_t>(__cvta_generic_to_shared(&s_all[2][rank][lane]));
#pragma unroll
            for (int target = 0; target < kCluster; ++target) {
                uint32_t r_mean, r_m2, r_rows;
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r_mean) : "r"(a_mean), "r"(target));
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r_m2) : "r"(a_m2), "r"(target));
                asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r_rows) : "r"(a_rows), "r"(target));
                asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(r_mean), "f"(mean) : "memory");
                asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(r_m2), "f"(m2) : "memory");
                asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(r_rows), "f"(rows) : "memory");
            }
        } else {
            s_all[0][0][lane] = mean;
            s_all[1][0][lane] = m2;
            s_all[2][0][lane] = rows;
        }
    } else {
        if constexpr (kCluster > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    }

    float mean, m2;
    if constexpr (kCluster > 1) {
        asm volatile("barrier.cluster.arrive.release;" ::: "memory");
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        float total = 0.0f;
#pragma unroll
        for (int b = 0; b < kCluster; ++b) total = fmaf(s_all[0][b][lane], s_all[2][b][lane], total);
        mean = total / static_cast<float>(N);
        m2 = 0.0f;
#pragma unroll
        for (int b = 0; b < kCluster; ++b) {
            const float d = s_all[0][b][lane] - mean;
            m2 += fmaf(s_all[2][b][lane] * d, d, s_all[1][b][lane]);
        }
    } else {
        __syncthreads();
        mean = s_all[0][0][lane];
        m2 = s_all[1][0][lane];
    }

    const float factor = scale / sqrtf(m2 / static_cast<float>(N) + epsilon);
    if (inside) {
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
            const int row = first + i * kStep;
            if (row < N) y[static_cast<int64_t>(row) * C + column] = fmaf(held[i] - mean, factor, shift);
        }
    }
}

// ---------------------------------------------------------------- many rows

constexpr int kRowThreads = 8;
constexpr int kBatch = 8;
constexpr int64_t kTargetBlocks = 528;

template <int kVec>
__device__ __forceinline__ void bn_load(const float* from, float (&v)[kVec]) {
    if constexpr (kVec == 4) {
        const float4 p = *reinterpret_cast<const float4*>(from);
        v[0] = p.x;
        v[1] = p.y;
        v[2] = p.z;
        v[3] = p.w;
    } else {
        v[0] = *from;
    }
}

template <int kVec>
__global__ void __launch_bounds__(256, 4) bn_partial_kernel(const float* __restrict__ x, float* __restrict__ p_mean,
                                                           float* __restrict__ p_m2, int N, int C, int rows_per_chunk) {
    __shared__ float s_mean[kRowThreads][kLanes * kVec];
    __shared__ float s_m2[kRowThreads][kLanes * kVec];
    __shared__ float s_count[kRowThreads];
    const int lane = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = (blockIdx.x * kLanes + lane) * kVec;
    const int begin = blockIdx.y * rows_per_chunk;
    const int end = min(N, begin + rows_per_chunk);
    const bool inside = column < C;

    float mean[kVec], m2[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) mean[v] = m2[v] = 0.0f;
    float count = 0.0f;
    int row = begin + ty;
    if (inside) {
        for (; row + (kBatch - 1) * kRowThreads < end; row += kBatch * kRowThreads) {
            float a[kBatch][kVec];
#pragma unroll
            for (int i = 0; i < kBatch; ++i) bn_load<kVec>(x + static_cast<int64_t>(row + i * kRowThreads) * C + column, a[i]);
            const float total = count + static_cast<float>(kBatch);
            const float weight = static_cast<float>(kBatch) / total;
            const float between = count * weight;
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                float s = 0.0f;
#pragma unroll
                for (int i = 0; i < kBatch; ++i) s += a[i][v];
                const float m = s * (1.0f / kBatch);
                float q = 0.0f;
#pragma unroll
                for (int i = 0; i < kBatch; ++i) {
                    const float d = a[i][v] - m;
                    q = fmaf(d, d, q);
                }
                const float d = m - mean[v];
                mean[v] = fmaf(d, weight, mean[v]);
                m2[v] += fmaf(d * between, d, q);
            }
            count = total;
        }
        for (; row < end; row += kRowThreads) {
            float a[kVec];
            bn_load<kVec>(x + static_cast<int64_t>(row) * C + column, a);
            const float total = count + 1.0f;
            const float weight = 1.0f / total;
            const float between = count * weight;
#pragma unroll
            for (int v = 0; v < kVec; ++v) {
                const float d = a[v] - mean[v];
                mean[v] = fmaf(d, weight, mean[v]);
                m2[v] = fmaf(d * between, d, m2[v]);
            }
            count = total;
        }
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
        s_mean[ty][v * kLanes + lane] = mean[v];
        s_m2[ty][v * kLanes + lane] = m2[v];
    }
    if (lane == 0) s_count[ty] = count;  // lane 0 is inside in every block
    __syncthreads();
    const int t = threadIdx.x;
    if (t < kLanes * kVec) {
        const int v = t / kLanes;
        const int l = t % kLanes;
        const int out_column = (blockIdx.x * kLanes + l) * kVec + v;
        if (out_column < C) {
            float total = 0.0f, rows = 0.0f;
#pragma unroll
            for (int r = 0; r < kRowThreads; ++r) {
                total = fmaf(s_mean[r][t], s_count[r], total);
                rows += s_count[r];
            }
            const float m = total / rows;
            float q = 0.0f;
#pragma unroll
            for (int r = 0; r < kRowThreads; ++r) {
                const float d = s_mean[r][t] - m;
                q += fmaf(s_count[r] * d, d, s_m2[r][t]);
            }
            p_mean[static_cast<int64_t>(blockIdx.y) * C + out_column] = m;
            p_m2[static_cast<int64_t>(blockIdx.y) * C + out_column] = q;
        }
    }
}

__device__ __forceinline__ float bn_column_sum(float own, float (*partial)[kLanes + 1]) {
    const int lane = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    __syncthreads();
    partial[ty][lane] = own;
    __syncthreads();
    float v = partial[lane][ty];  // warp ty adds up column ty
#pragma unroll
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
    __syncthreads();
    if (lane == 0) partial[0][ty] = v;
    __syncthreads();
    return partial[0][lane];
}

__global__ void __launch_bounds__(1024) bn_merge_kernel(const float* p_mean, const float* p_m2, const float* __restrict__ gamma,
                                                        const float* __restrict__ beta, float* mean_out, float* factor_out,
                                                        float* shift_out, float epsilon, int N, int C, int rows_per_chunk,
                                                        int chunks) {
    __shared__ float partial[kLanes][kLanes + 1];
    const int lane = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = blockIdx.x * kLanes + lane;
    const bool inside = column < C;
    const int column_read = inside ? column : C - 1;
    bn_wait_dependency();
    float own = 0.0f;
    for (int p = ty; p < chunks; p += 32) {
        const float n = static_cast<float>(min(rows_per_chunk, N - p * rows_per_chunk));
        own = fmaf(__ldcg(p_mean + static_cast<int64_t>(p) * C + column_read), n, own);
    }
    const float mean = bn_column_sum(own, partial) / static_cast<float>(N);
    own = 0.0f;
    for (int p = ty; p < chunks; p += 32) {
        const float n = static_cast<float>(min(rows_per_chunk, N - p * rows_per_chunk));
        const float d = __ldcg(p_mean + static_cast<int64_t>(p) * C + column_read) - mean;
        own += fmaf(n * d, d, __ldcg(p_m2 + static_cast<int64_t>(p) * C + column_read));
    }
    const float m2 = bn_column_sum(own, partial);
    if (ty == 0 && inside) {
        mean_out[column] = mean;
        factor_out[column] = gamma[column] / sqrtf(m2 / static_cast<float>(N) + epsilon);
        shift_out[column] = beta[column];
    }
}

template <int kVec>
__global__ void __launch_bounds__(256, 4) bn_apply_kernel(const float* __restrict__ x, const float* mean_in,
                                                         const float* factor_in, const float* shift_in, float* __restrict__ y,
                                                         int N, int C, int rows_per_chunk) {
    constexpr int kAtOnce = kVec == 4 ? 4 : 8;
    bn_wait_dependency();
    const int lane = threadIdx.x & 31;
    const int ty = threadIdx.x >> 5;
    const int column = (blockIdx.x * kLanes + lane) * kVec;
    const int begin = blockIdx.y * rows_per_chunk;
    const int end = min(N, begin + rows_per_chunk);
    if (column >= C) return;
    float mean[kVec], factor[kVec], shift[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
        mean[v] = __ldcg(mean_in + column + v);
        factor[v] = __ldcg(factor_in + column + v);
        shift[v] = __ldcg(shift_in + column + v);
    }
    // Backwards: the statistics kernel read the chunk's last rows last.
    int row = end - 1 - ty;
    for (; row >= begin; row -= kAtOnce * kRowThreads) {
        float a[kAtOnce][kVec];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int r = row - i * kRowThreads;
            if (r >= begin) {
                const float* from = x + static_cast<int64_t>(r) * C + column;
                if constexpr (kVec == 4) {
                    const float4 p = __ldcs(reinterpret_cast<const float4*>(from));
                    a[i][0] = p.x;
                    a[i][1] = p.y;
                    a[i][2] = p.z;
                    a[i][3] = p.w;
                } else {
                    a[i][0] = __ldcs(from);
                }
            } else {
#pragma unroll
                for (int v = 0; v < kVec; ++v) a[i][v] = 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int r = row - i * kRowThreads;
            if (r >= begin) {
                float* to = y + static_cast<int64_t>(r) * C + column;
#pragma unroll
                for (int v = 0; v < kVec; ++v) a[i][v] = fmaf(a[i][v] - mean[v], factor[v], shift[v]);
                if constexpr (kVec == 4) {
                    __stcs(reinterpret_cast<float4*>(to), make_float4(a[i][0], a[i][1], a[i][2], a[i][3]));
                } else {
                    __stcs(to, a[i][0]);
                }
            }
        }
    }
}

// ---------------------------------------------------------------- launching

template <typename... P, typename... A>
static cudaError_t bn_launch(void (*kernel)(P...), dim3 grid, int threads, int cluster, bool dependent, cudaStream_t stream,
                             A... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads, 1, 1);
    config.dynamicSmemBytes = 0;
    config.stream = stream;
    cudaLaunchAttribute attributes[2];
    int count = 0;
    if (cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = cluster;
        attributes[count].val.clusterDim.y = 1;
        attributes[count].val.clusterDim.z = 1;
        ++count;
    }
    if (dependent) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count].val.programmaticStreamSerializationAllowed = 1;
        ++count;
    }
    config.attrs = attributes;
    config.numAttrs = count;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...);
}

static void bn_plan(int64_t N, int64_t C, int vec, int64_t* groups, int64_t* rows_per_chunk, int64_t* chunks) {
    *groups = (C + kLanes * vec - 1) / (kLanes * vec);
    int64_t wanted = kTargetBlocks / *groups;
    if (wanted < 1) wanted = 1;
    int64_t rows = (N + wanted - 1) / wanted;
    if (rows < 64) rows = 64;
    *rows_per_chunk = rows;
    *chunks = (N + rows - 1) / rows;
}

extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    (void)epsilon;
    int64_t groups, rows, chunks1, chunks4;
    bn_plan(N, C, 1, &groups, &rows, &chunks1);
    bn_plan(N, C, 4, &groups, &rows, &chunks4);
    const int64_t chunks = chunks1 > chunks4 ? chunks1 : chunks4;
    return static_cast<size_t>((2 * chunks + 3) * C) * sizeof(float);
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y, float epsilon,
                                  int64_t N, int64_t C, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    const int n = static_cast<int>(N);
    const int c = static_cast<int>(C);
    const unsigned groups32 = static_cast<unsigned>((C + 31) / 32);
    if (N <= 1024) {
        if (N <= 32) {
            bn_held_kernel<8, 4, 1><<<groups32, 256, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        } else if (N <= 64) {
            bn_held_kernel<16, 4, 1><<<groups32, 512, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        } else if (N <= 256) {
            bn_held_kernel<32, 8, 1><<<groups32, 1024, 0, stream>>>(x, gamma, beta, y, epsilon, n, c);
        } else {
            const cudaError_t error = bn_launch(bn_held_kernel<16, 8, 8>, dim3(groups32 * 8, 1, 1), 512, 8, false, stream, x,
                                                gamma, beta, y, epsilon, n, c);
            if (error != cudaSuccess) return error;
        }
        return cudaGetLastError();
    }

    const bool packets = C % 4 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    int64_t groups, rows, chunks;
    bn_plan(N, C, packets ? 4 : 1, &groups, &rows, &chunks);
    float* p_mean = static_cast<float*>(workspace);
    float* p_m2 = p_mean + chunks * C;
    float* mean = p_m2 + chunks * C;
    float* factor = mean + C;
    float* shift = factor + C;
    const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(chunks), 1);
    const int rows_int = static_cast<int>(rows);
    const int chunks_int = static_cast<int>(chunks);
    cudaError_t error;
    if (packets) {
        bn_partial_kernel<4><<<grid, 256, 0, stream>>>(x, p_mean, p_m2, n, c, rows_int);
    } else {
        bn_partial_kernel<1><<<grid, 256, 0, stream>>>(x, p_mean, p_m2, n, c, rows_int);
    }
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    error = bn_launch(bn_merge_kernel, dim3(groups32, 1, 1), 1024, 1, true, stream, p_mean, p_m2, gamma, beta, mean, factor,
                      shift, epsilon, n, c, rows_int, chunks_int);
    if (error != cudaSuccess) return error;
    if (packets) {
        error = bn_launch(bn_apply_kernel<4>, grid, 256, 1, true, stream, x, mean, factor, shift, y, n, c, rows_int);
    } else {
        error = bn_launch(bn_apply_kernel<1>, grid, 256, 1, true, stream, x, mean, factor, shift, y, n, c, rows_int);
    }
    if (error != cudaSuccess) return error;
    return cudaGetLastError();
}
