// Batch normalisation. N <= 4096: 8 columns a block, all their rows in registers, one launch (launch bound + ~2 us).
// N > 4096: (mean, M2) of parts of the rows, merged after Chan et al., then y = (x - mean) * a + beta in reverse order for L2 hits.
// Three passes of x's size less the L2 hits: ~170-190 us for 65536 x 1024.

constexpr int kWide = 8;  // columns a block, in the register kernel
constexpr int kBatch = 8;
constexpr int kMaxParts = 128;

template <int VEC>
struct Values {
    float lane[VEC];
};

template <int VEC>
__device__ __forceinline__ Values<VEC> load_values(const float* p) {
    Values<VEC> v;
    if constexpr (VEC == 4) {
        const float4 f = *reinterpret_cast<const float4*>(p);
        v.lane[0] = f.x;
        v.lane[1] = f.y;
        v.lane[2] = f.z;
        v.lane[3] = f.w;
    } else {
        v.lane[0] = *p;
    }
    return v;
}

template <int VEC>
__device__ __forceinline__ void store_values(float* p, const Values<VEC>& v) {
    if constexpr (VEC == 4) {
        __stcs(reinterpret_cast<float4*>(p), make_float4(v.lane[0], v.lane[1], v.lane[2], v.lane[3]));
    } else {
        __stcs(p, v.lane[0]);
    }
}

// Sums over the block's rows of every one of its 8 columns: on return own[] holds the totals of this thread's columns.
// Threads of a warp: VEC = 4: lane & 1 says which half of the columns; VEC = 1: lane & 7 is the column.
template <int VEC>
__device__ __forceinline__ void column_sums(float (&own)[VEC], float (*partial)[kWide + 1], float* total) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warps = blockDim.x / 32;
    if constexpr (VEC == 4) {
        const bool high = (lane & 16) != 0;
        const float send0 = high ? own[0] : own[2];
        const float send1 = high ? own[1] : own[3];
        float keep0 = high ? own[2] : own[0];
        float keep1 = high ? own[3] : own[1];
        keep0 += __shfl_xor_sync(0xffffffffu, send0, 16);
        keep1 += __shfl_xor_sync(0xffffffffu, send1, 16);
        const bool odd = (lane & 8) != 0;
        const float send = odd ? keep0 : keep1;
        float sum = odd ? keep1 : keep0;
        sum += __shfl_xor_sync(0xffffffffu, send, 8);
        sum += __shfl_xor_sync(0xffffffffu, sum, 4);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if ((lane & 6) == 0) partial[warp][(lane & 1) * 4 + (high ? 2 : 0) + (odd ? 1 : 0)] = sum;
    } else {
        float sum = own[0];
        sum += __shfl_xor_sync(0xffffffffu, sum, 16);
        sum += __shfl_xor_sync(0xffffffffu, sum, 8);
        if (lane < 8) partial[warp][lane] = sum;
    }
    __syncthreads();
    const int first = VEC == 4 ? (lane & 1) * 4 : (lane & 7);
    if (warps < 8) {
#pragma unroll
        for (int c = 0; c < VEC; ++c) {
            float sum = 0;
            for (int w = 0; w < warps; ++w) sum += partial[w][first + c];
            own[c] = sum;
        }
    } else {
        if (warp < kWide) {
            float sum = lane < warps ? partial[lane][warp] : 0.0f;
#pragma unroll
            for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
            if (lane == 0) total[warp] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < VEC; ++c) own[c] = total[first + c];
    }
}

template <int VEC, int R>
__global__ void __launch_bounds__(1024)
norm_in_registers(const float* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta,
                  float* __restrict__ y, float epsilon, int N, int64_t C) {
    __shared__ float partial[2][32][kWide + 1];
    __shared__ float total[2][kWide];
    constexpr int kLanes = kWide / VEC;  // threads a row
    const int rows = blockDim.x / kLanes;
    const int row0 = threadIdx.x / kLanes;
    const int64_t column = blockIdx.x * static_cast<int64_t>(kWide) + (threadIdx.x % kLanes) * VEC;
    const bool inside = column < C;  // VEC = 4 only if C is a multiple of 4
    Values<VEC> v[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = row0 + r * rows;
        if (inside && row < N) {
            v[r] = load_values<VEC>(x + row * C + column);
        } else {
#pragma unroll
            for (int c = 0; c < VEC; ++c) v[r].lane[c] = 0;
        }
    }
    float scale[VEC], shift[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        scale[c] = inside ? gamma[column + c] : 0.0f;
        shift[c] = inside ? beta[column + c] : 0.0f;
    }
    float mean[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        mean[c] = 0;
#pragma unroll
        for (int r = 0; r < R; ++r) mean[c] += v[r].lane[c];
    }
    column_sums<VEC>(mean, partial[0], total[0]);
    const float count = static_cast<float>(N);
#pragma unroll
    for (int c = 0; c < VEC; ++c) mean[c] = mean[c] / count;
    float squares[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) squares[c] = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (row0 + r * rows < N) {
#pragma unroll
            for (int c = 0; c < VEC; ++c) {
                v[r].lane[c] -= mean[c];
                squares[c] = fmaf(v[r].lane[c], v[r].lane[c], squares[c]);
            }
        }
    }
    column_sums<VEC>(squares, partial[1], total[1]);
    if (!inside) return;
#pragma unroll
    for (int c = 0; c < VEC; ++c) scale[c] = scale[c] / sqrtf(squares[c] / count + epsilon);
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = row0 + r * rows;
        if (row < N) {
            Values<VEC> out;
#pragma unroll
            for (int c = 0; c < VEC; ++c) out.lane[c] = fmaf(v[r].lane[c], scale[c], shift[c]);
            store_values<VEC>(y + row * C + column, out);
        }
    }
}

// ---------------------------------------------------------------- many rows

// Merges (count b, mean, m2) into (count a, ...). b > 0.
__device__ __forceinline__ void merge(float& mean, float& m2, float a, float mean_b, float m2_b, float b) {
    const float ratio = b / (a + b);
    const float delta = mean_b - mean;
    mean = fmaf(delta, ratio, mean);
    m2 += m2_b + delta * (delta * (a * ratio));
}

template <int VEC>
__global__ void __launch_bounds__(256)
part_statistics(const float* __restrict__ x, float* __restrict__ means, float* __restrict__ m2s, int64_t N, int64_t C,
                int64_t part_rows) {
    __shared__ float shared_mean[8][32 * VEC];
    __shared__ float shared_m2[8][32 * VEC];
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t column = (blockIdx.x * static_cast<int64_t>(32) + lane) * VEC;
    const bool inside = column < C;
    const int64_t begin = blockIdx.y * part_rows;
    int64_t end = begin + part_rows;
    if (end > N) end = N;
    float mean[VEC], m2[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        mean[c] = 0;
        m2[c] = 0;
    }
    float count = 0;
    if (inside) {
        int64_t row = begin + warp;
        for (; row + 8 * (kBatch - 1) < end; row += 8 * kBatch) {
            Values<VEC> v[kBatch];
#pragma unroll
            for (int r = 0; r < kBatch; ++r) v[r] = load_values<VEC>(x + (row + 8 * r) * C + column);
            const float ratio = kBatch / (count + kBatch);
            const float weight = count * ratio;
#pragma unroll
            for (int c = 0; c < VEC; ++c) {
                float sum = 0;
#pragma unroll
                for (int r = 0; r < kBatch; ++r) sum += v[r].lane[c];
                const float batch_mean = sum * (1.0f / kBatch);
                float squares = 0;
#pragma unroll
                for (int r = 0; r < kBatch; ++r) {
                    const float d = v[r].lane[c] - batch_mean;
                    squares = fmaf(d, d, squares);
                }
                const float delta = batch_mean - mean[c];
                mean[c] = fmaf(delta, ratio, mean[c]);
                m2[c] += squares + delta * (delta * weight);
            }
            count += kBatch;
        }
        for (; row < end; row += 8) {
            const Values<VEC> v = load_values<VEC>(x + row * C + column);
#pragma unroll
            for (int c = 0; c < VEC; ++c) merge(mean[c], m2[c], count, v.lane[c], 0.0f, 1.0f);
            count += 1;
        }
    }
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        shared_mean[warp][lane * VEC + c] = mean[c];
        shared_m2[warp][lane * VEC + c] = m2[c];
    }
    __syncthreads();
    const int t = threadIdx.x;
    const int64_t own = blockIdx.x * static_cast<int64_t>(32 * VEC) + t;
    if (t < 32 * VEC && own < C) {
        float all_mean = 0, all_m2 = 0, all = 0;
        for (int w = 0; w < 8; ++w) {
            const int64_t left = end - begin - w;
            if (left <= 0) break;
            const float rows = static_cast<float>((left + 7) / 8);
            merge(all_mean, all_m2, all, shared_mean[w][t], shared_m2[w][t], rows);
            all += rows;
        }
        means[blockIdx.y * C + own] = all_mean;
        m2s[blockIdx.y * C + own] = all_m2;
    }
}

// 32 columns a block, 8 threads a column.
__global__ void __launch_bounds__(256)
coefficients(const float* __restrict__ means, const float* __restrict__ m2s, const float* __restrict__ gamma,
             float* __restrict__ mean_out, float* __restrict__ scale_out, float epsilon, int64_t N, int64_t C,
             int64_t part_rows, int parts) {
    __shared__ double sums[8][32];
    const int lane = threadIdx.x % 32;
    const int group = threadIdx.x / 32;
    const int64_t column = blockIdx.x * static_cast<int64_t>(32) + lane;
    const bool inside = column < C;
    double sum = 0;
    if (inside) {
#pragma unroll 4
        for (int p = group; p < parts; p += 8) {
            int64_t rows = N - p * part_rows;
            if (rows > part_rows) rows = part_rows;
            sum += static_cast<double>(rows) * means[p * C + column];
        }
    }
    sums[group][lane] = sum;
    __syncthreads();
    double mean = 0;
    for (int g = 0; g < 8; ++g) mean += sums[g][lane];
    mean /= static_cast<double>(N);
    __syncthreads();
    sum = 0;
    if (inside) {
#pragma unroll 4
        for (int p = group; p < parts; p += 8) {
            int64_t rows = N - p * part_rows;
            if (rows > part_rows) rows = part_rows;
            const double delta = means[p * C + column] - mean;
            sum += m2s[p * C + column] + static_cast<double>(rows) * delta * delta;
        }
    }
    sums[group][lane] = sum;
    __syncthreads();
    if (group == 0 && inside) {
        double squares = 0;
        for (int g = 0; g < 8; ++g) squares += sums[g][lane];
        const double variance = squares / static_cast<double>(N);
        mean_out[column] = static_cast<float>(mean);
        scale_out[column] = static_cast<float>(gamma[column] / sqrt(variance + static_cast<double>(epsilon)));
    }
}

template <int VEC>
__global__ void __launch_bounds__(256)
apply_backwards(const float* __restrict__ x, const float* __restrict__ means, const float* __restrict__ scales,
                const float* __restrict__ beta, float* __restrict__ y, int64_t N, int64_t C, int64_t part_rows) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int64_t column = (blockIdx.x * static_cast<int64_t>(32) + lane) * VEC;
    if (column >= C) return;
    const int64_t begin = blockIdx.y * part_rows;
    int64_t end = begin + part_rows;
    if (end > N) end = N;
    float mean[VEC], scale[VEC], shift[VEC];
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
        mean[c] = means[column + c];
        scale[c] = scales[column + c];
        shift[c] = beta[column + c];
    }
    int64_t row = end - 1 - warp;
    for (; row - 8 * (kBatch - 1) >= begin; row -= 8 * kBatch) {
        Values<VEC> v[kBatch];
#pragma unroll
        for (int r = 0; r < kBatch; ++r) v[r] = load_values<VEC>(x + (row - 8 * r) * C + column);
#pragma unroll
        for (int r = 0; r < kBatch; ++r) {
#pragma unroll
            for (int c = 0; c < VEC; ++c) v[r].lane[c] = fmaf(v[r].lane[c] - mean[c], scale[c], shift[c]);
            store_values<VEC>(y + (row - 8 * r) * C + column, v[r]);
        }
    }
    for (; row >= begin; row -= 8) {
        Values<VEC> v = load_values<VEC>(x + row * C + column);
#pragma unroll
        for (int c = 0; c < VEC; ++c) v.lane[c] = fmaf(v.lane[c] - mean[c], scale[c], shift[c]);
        store_values<VEC>(y + row * C + column, v);
    }
}

// ---------------------------------------------------------------- launchers

template <int VEC, int R>
static void launch_in_registers(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int64_t N,
                                int64_t C, cudaStream_t stream) {
    constexpr int64_t lanes = kWide / VEC;
    const int64_t rows = (N + R - 1) / R;
    int64_t threads = (rows * lanes + 31) / 32 * 32;
    if (threads > 1024) threads = 1024;
    const unsigned int blocks = static_cast<unsigned int>((C + kWide - 1) / kWide);
    norm_in_registers<VEC, R><<<blocks, static_cast<unsigned int>(threads), 0, stream>>>(x, gamma, beta, y, epsilon,
                                                                                         static_cast<int>(N), C);
}

template <int VEC>
static void launch_many_rows(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int64_t N,
                             int64_t C, void* workspace, cudaStream_t stream) {
    const int64_t tiles = (C + 32 * VEC - 1) / (32 * VEC);
    int64_t parts = 528 / tiles;
    if (parts < 1) parts = 1;
    if (parts > kMaxParts) parts = kMaxParts;
    const int64_t part_rows = (N + parts - 1) / parts;
    parts = (N + part_rows - 1) / part_rows;
    float* means = static_cast<float*>(workspace);
    float* m2s = means + kMaxParts * C;
    float* mean = m2s + kMaxParts * C;
    float* scale = mean + C;
    const dim3 grid(static_cast<unsigned int>(tiles), static_cast<unsigned int>(parts));
    part_statistics<VEC><<<grid, 256, 0, stream>>>(x, means, m2s, N, C, part_rows);
    coefficients<<<static_cast<unsigned int>((C + 31) / 32), 256, 0, stream>>>(means, m2s, gamma, mean, scale, epsilon, N, C,
                                                                              part_rows, static_cast<int>(parts));
    apply_backwards<VEC><<<grid, 256, 0, stream>>>(x, mean, scale, beta, y, N, C, part_rows);
}

extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    return N <= 4096 ? 256 : static_cast<size_t>(2 * kMaxParts + 2) * static_cast<size_t>(C) * sizeof(float);
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y, float epsilon,
                                  int64_t N, int64_t C, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    const bool vectors = C % 4 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (N > 4096) {
        if (vectors) {
            launch_many_rows<4>(x, gamma, beta, y, epsilon, N, C, workspace, stream);
        } else {
            launch_many_rows<1>(x, gamma, beta, y, epsilon, N, C, workspace, stream);
        }
    } else if (vectors) {
        if (N <= 512) {
            launch_in_registers<4, 1>(x, gamma, beta, y, epsilon, N, C, stream);
        } else if (N <= 1024) {
            launch_in_registers<4, 2>(x, gamma, beta, y, epsilon, N, C, stream);
        } else if (N <= 2048) {
            launch_in_registers<4, 4>(x, gamma, beta, y, epsilon, N, C, stream);
        } else {
            launch_in_registers<4, 8>(x, gamma, beta, y, epsilon, N, C, stream);
        }
    } else {
        if (N <= 128) {
            launch_in_registers<1, 1>(x, gamma, beta, y, epsilon, N, C, stream);
        } else if (N <= 512) {
            launch_in_registers<1, 4>(x, gamma, beta, y, epsilon, N, C, stream);
        } else if (N <= 1024) {
            launch_in_registers<1, 8>(x, gamma, beta, y, epsilon, N, C, stream);
        } else {
            launch_in_registers<1, 32>(x, gamma, beta, y, epsilon, N, C, stream);
        }
    }
    return cudaGetLastError();
}
