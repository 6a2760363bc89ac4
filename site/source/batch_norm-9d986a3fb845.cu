// Batch normalisation.
// Small N: a block keeps 8 columns x N rows in registers: one read, one write, one barrier; about launch + one memory latency.
// Large N: statistics by slices of rows (two passes over batches of 8 rows in registers, merged by Chan, Golub and LeVeque), merge,
// then normalise from the last rows back, so that part of x is still in L2. Bound: two reads and one write of x, about 185 us for 65536 x 1024.

#include <cuda_runtime.h>
#include <cstdint>
#include <cstddef>

namespace {

// ------------------------------------------------------------------ few rows: everything in registers

// V: columns per thread (4 needs 16-byte aligned rows). K: rows per thread. A block does 8 columns.
template <int V, int K>
__global__ void __launch_bounds__(1024)
resident_kernel(const float* __restrict__ x, const float* __restrict__ gamma, const float* __restrict__ beta, float* __restrict__ y,
                float epsilon, int N, int C) {
    constexpr int LX = 8 / V;       // threads along a row
    constexpr int RPW = 32 / LX;    // rows of a warp
    constexpr int STRIDE = 36;      // 4 * column + partial: 32 different banks
    __shared__ float means[8 * STRIDE];
    __shared__ float squares[8 * STRIDE];
    __shared__ float counts[32];

    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const int warps = blockDim.x / 32;
    const int cx = lane % LX;
    const int column = blockIdx.x * 8 + cx * V;
    const bool inside = column < C;
    const int RY = warps * RPW;
    const int first_row = warp * RPW + lane / LX;

    float v[K][V];
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = first_row + k * RY;
#pragma unroll
        for (int j = 0; j < V; ++j) v[k][j] = 0.0f;
        if (inside && row < N) {
            const float* from = x + static_cast<int64_t>(row) * C + column;
            if constexpr (V == 4) {
                const float4 packet = __ldg(reinterpret_cast<const float4*>(from));
                v[k][0] = packet.x;
                v[k][1] = packet.y;
                v[k][2] = packet.z;
                v[k][3] = packet.w;
            } else {
                v[k][0] = __ldg(from);
            }
        }
    }
    float scale[V], shift[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        scale[j] = inside ? __ldg(gamma + column + j) : 0.0f;
        shift[j] = inside ? __ldg(beta + column + j) : 0.0f;
    }

    int own_rows = 0;  // of this warp
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int left = N - (k * RY + warp * RPW);
        own_rows += left < 0 ? 0 : (left > RPW ? RPW : left);
    }
    const float count = static_cast<float>(own_rows);
    const float share = own_rows > 0 ? 1.0f / count : 0.0f;

    float m[V], q[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        float sum = v[0][j];
#pragma unroll
        for (int k = 1; k < K; ++k) sum += v[k][j];
        m[j] = sum;
    }
#pragma unroll
    for (int distance = LX; distance < 32; distance *= 2) {
#pragma unroll
        for (int j = 0; j < V; ++j) m[j] += __shfl_xor_sync(0xffffffffu, m[j], distance);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
        m[j] *= share;
        q[j] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const bool valid = first_row + k * RY < N;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float d = valid ? v[k][j] - m[j] : 0.0f;
            q[j] = fmaf(d, d, q[j]);
        }
    }
#pragma unroll
    for (int distance = LX; distance < 32; distance *= 2) {
#pragma unroll
        for (int j = 0; j < V; ++j) q[j] += __shfl_xor_sync(0xffffffffu, q[j], distance);
    }
    if (lane < LX) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
            means[(cx * V + j) * STRIDE + warp] = m[j];
            squares[(cx * V + j) * STRIDE + warp] = q[j];
        }
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();

    // Every warp merges what the warps found: 4 lanes for each of the 8 columns.
    const int base = (lane / 4) * STRIDE;
    float mean = 0.0f;
    for (int i = lane % 4; i < warps; i += 4) mean = fmaf(counts[i], means[base + i], mean);
    mean += __shfl_xor_sync(0xffffffffu, mean, 1);
    mean += __shfl_xor_sync(0xffffffffu, mean, 2);
    const float rows = static_cast<float>(N);
    mean /= rows;
    float variance = 0.0f;
    for (int i = lane % 4; i < warps; i += 4) {
        const float d = means[base + i] - mean;
        variance += fmaf(counts[i] * d, d, squares[base + i]);
    }
    variance += __shfl_xor_sync(0xffffffffu, variance, 1);
    variance += __shfl_xor_sync(0xffffffffu, variance, 2);
    const float inverse = 1.0f / sqrtf(variance / rows + epsilon);
#pragma unroll
    for (int j = 0; j < V; ++j) {
        m[j] = __shfl_sync(0xffffffffu, mean, (cx * V + j) * 4);
        scale[j] *= __shfl_sync(0xffffffffu, inverse, (cx * V + j) * 4);
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
        const int row = first_row + k * RY;
        if (inside && row < N) {
            float* to = y + static_cast<int64_t>(row) * C + column;
            if constexpr (V == 4) {
                float4 packet;
                packet.x = fmaf(v[k][0] - m[0], scale[0], shift[0]);
                packet.y = fmaf(v[k][1] - m[1], scale[1], shift[1]);
                packet.z = fmaf(v[k][2] - m[2], scale[2], shift[2]);
                packet.w = fmaf(v[k][3] - m[3], scale[3], shift[3]);
                *reinterpret_cast<float4*>(to) = packet;
            } else {
                *to = fmaf(v[k][0] - m[0], scale[0], shift[0]);
            }
        }
    }
}

// ------------------------------------------------------------------ many rows

constexpr int kLanesY = 8;
constexpr int kBatch = 8;
constexpr int kNormRows = 128;  // rows of a block of the normalising kernel

template <int V>
__device__ __forceinline__ void load_row(const float* from, float* to) {
    if constexpr (V == 4) {
        const float4 packet = *reinterpret_cast<const float4*>(from);
        to[0] = packet.x;
        to[1] = packet.y;
        to[2] = packet.z;
        to[3] = packet.w;
    } else {
        to[0] = *from;
    }
}

// Statistics of a slice of rows.
template <int V>
__global__ void __launch_bounds__(256, 3)
slice_kernel(const float* __restrict__ x, float* __restrict__ slice_means, float* __restrict__ slice_squares, int N, int C,
             int rows_per_slice) {
    __shared__ float means[kLanesY][32 * V];
    __shared__ float squares[kLanesY][32 * V];
    __shared__ float counts[kLanesY];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int column = (blockIdx.x * 32 + tx) * V;
    const int start = blockIdx.y * rows_per_slice;
    const int end = start + rows_per_slice < N ? start + rows_per_slice : N;
    float n = 0.0f;
    float mean[V], m2[V];
#pragma unroll
    for (int j = 0; j < V; ++j) mean[j] = m2[j] = 0.0f;
    int row = start + ty;
    if (column < C) {
        const int64_t step = static_cast<int64_t>(kLanesY) * C;
        const float* from = x + static_cast<int64_t>(row) * C + column;
        for (; row + (kBatch - 1) * kLanesY < end; row += kBatch * kLanesY, from += kBatch * step) {
            float v[kBatch][V];
#pragma unroll
            for (int k = 0; k < kBatch; ++k) load_row<V>(from + k * step, v[k]);
            const float total = n + kBatch;
            const float weight = kBatch / total;
            const float cross = n * weight;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                float sum = v[0][j];
#pragma unroll
                for (int k = 1; k < kBatch; ++k) sum += v[k][j];
                const float batch_mean = sum * (1.0f / kBatch);
                float q = 0.0f;
#pragma unroll
                for (int k = 0; k < kBatch; ++k) {
                    const float d = v[k][j] - batch_mean;
                    q = fmaf(d, d, q);
                }
                const float delta = batch_mean - mean[j];
                mean[j] = fmaf(delta, weight, mean[j]);
                m2[j] += fmaf(delta * cross, delta, q);
            }
            n = total;
        }
        for (; row < end; row += kLanesY, from += step) {
            float v[V];
            load_row<V>(from, v);
            const float total = n + 1.0f;
            const float weight = 1.0f / total;
            const float cross = n * weight;
#pragma unroll
            for (int j = 0; j < V; ++j) {
                const float delta = v[j] - mean[j];
                mean[j] = fmaf(delta, weight, mean[j]);
                m2[j] = fmaf(delta * cross, delta, m2[j]);
            }
            n = total;
        }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
        means[ty][tx * V + j] = mean[j];
        squares[ty][tx * V + j] = m2[j];
    }
    if (tx == 0) counts[ty] = n;  // the block's first column is always inside
    __syncthreads();
    const int t = ty * 32 + tx;
    const int to_column = blockIdx.x * 32 * V + t;
    if (t < 32 * V && to_column < C) {
        float sum = 0.0f;
        float rows = 0.0f;
#pragma unroll
        for (int i = 0; i < kLanesY; ++i) {
            sum = fmaf(counts[i], means[i][t], sum);
            rows += counts[i];
        }
        const float whole = sum / rows;
        float q = 0.0f;
#pragma unroll
        for (int i = 0; i < kLanesY; ++i) {
            const float d = means[i][t] - whole;
            if (counts[i] > 0.0f) q += fmaf(counts[i] * d, d, squares[i][t]);
        }
        slice_means[static_cast<int64_t>(blockIdx.y) * C + to_column] = whole;
        slice_squares[static_cast<int64_t>(blockIdx.y) * C + to_column] = q;
    }
}

// Merges the slices: the mean and the factor of every column.
__global__ void __launch_bounds__(1024)
merge_kernel(const float* __restrict__ slice_means, const float* __restrict__ slice_squares, const float* __restrict__ gamma,
             float* __restrict__ column_mean, float* __restrict__ column_scale, float epsilon, int N, int C, int slices,
             int rows_per_slice) {
    __shared__ float partial[32][33];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int column = blockIdx.x * 32 + tx;
    const bool inside = column < C;
    float sum = 0.0f;
    if (inside) {
        for (int s = ty; s < slices; s += 32) {
            const int left = N - s * rows_per_slice;
            const float n = static_cast<float>(left < rows_per_slice ? left : rows_per_slice);
            sum = fmaf(n, slice_means[static_cast<int64_t>(s) * C + column], sum);
        }
    }
    partial[ty][tx] = sum;
    __syncthreads();
    float mean = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) mean += partial[i][tx];
    mean /= static_cast<float>(N);
    __syncthreads();
    float q = 0.0f;
    if (inside) {
        for (int s = ty; s < slices; s += 32) {
            const int left = N - s * rows_per_slice;
            const float n = static_cast<float>(left < rows_per_slice ? left : rows_per_slice);
            const float d = slice_means[static_cast<int64_t>(s) * C + column] - mean;
            q += fmaf(n * d, d, slice_squares[static_cast<int64_t>(s) * C + column]);
        }
    }
    partial[ty][tx] = q;
    __syncthreads();
    if (ty == 0 && inside) {
        float m2 = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; ++i) m2 += partial[i][tx];
        column_mean[column] = mean;
        column_scale[column] = gamma[column] / sqrtf(m2 / static_cast<float>(N) + epsilon);
    }
}

template <int V>
__global__ void __launch_bounds__(256)
normalise_kernel(const float* __restrict__ x, const float* __restrict__ column_mean, const float* __restrict__ column_scale,
                 const float* __restrict__ beta, float* __restrict__ y, int N, int C) {
    const int column = (blockIdx.x * 32 + threadIdx.x) * V;
    if (column >= C) return;
    const int start = static_cast<int>(gridDim.y - 1 - blockIdx.y) * kNormRows;
    const int end = start + kNormRows < N ? start + kNormRows : N;
    float m[V], scale[V], shift[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        m[j] = column_mean[column + j];
        scale[j] = column_scale[column + j];
        shift[j] = beta[column + j];
    }
    const int64_t step = static_cast<int64_t>(kLanesY) * C;
    for (int first = start + static_cast<int>(threadIdx.y); first < end; first += kBatch * kLanesY) {
        const int64_t offset = static_cast<int64_t>(first) * C + column;
        float v[kBatch][V];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
#pragma unroll
            for (int j = 0; j < V; ++j) v[k][j] = 0.0f;
            if (first + k * kLanesY < end) {
                if constexpr (V == 4) {
                    const float4 packet = __ldcs(reinterpret_cast<const float4*>(x + offset + k * step));
                    v[k][0] = packet.x;
                    v[k][1] = packet.y;
                    v[k][2] = packet.z;
                    v[k][3] = packet.w;
                } else {
                    v[k][0] = __ldcs(x + offset + k * step);
                }
            }
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            if (first + k * kLanesY < end) {
                if constexpr (V == 4) {
                    float4 packet;
                    packet.x = fmaf(v[k][0] - m[0], scale[0], shift[0]);
                    packet.y = fmaf(v[k][1] - m[1], scale[1], shift[1]);
                    packet.z = fmaf(v[k][2] - m[2], scale[2], shift[2]);
                    packet.w = fmaf(v[k][3] - m[3], scale[3], shift[3]);
                    __stcs(reinterpret_cast<float4*>(y + offset + k * step), packet);
                } else {
                    __stcs(y + offset + k * step, fmaf(v[k][0] - m[0], scale[0], shift[0]));
                }
            }
        }
    }
}

// ------------------------------------------------------------------ host

struct Slices {
    int number;
    int rows;
};

Slices slices_of(int64_t N, int64_t C) {
    const int64_t tiles = (C + 127) / 128;
    int64_t wanted = (792 + tiles - 1) / tiles;
    const int64_t most = (N + 63) / 64;
    if (wanted > most) wanted = most;
    if (wanted < 1) wanted = 1;
    const int64_t rows = (N + wanted - 1) / wanted;
    return {static_cast<int>((N + rows - 1) / rows), static_cast<int>(rows)};
}

template <int V, int K>
void launch_resident(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N, int C, cudaStream_t stream) {
    constexpr int rows = (32 / (8 / V)) * K;
    const int warps = (N + rows - 1) / rows;
    resident_kernel<V, K><<<(C + 7) / 8, warps * 32, 0, stream>>>(x, gamma, beta, y, epsilon, N, C);
}

template <int V>
void launch_large(const float* x, const float* gamma, const float* beta, float* y, float epsilon, int N, int C, float* workspace,
                  cudaStream_t stream) {
    const Slices slices = slices_of(N, C);
    const int64_t size = static_cast<int64_t>(slices.number) * C;
    float* slice_means = workspace;
    float* slice_squares = slice_means + size;
    float* column_mean = slice_squares + size;
    float* column_scale = column_mean + C;
    const int tiles = (C + 32 * V - 1) / (32 * V);
    slice_kernel<V><<<dim3(tiles, slices.number), dim3(32, kLanesY), 0, stream>>>(x, slice_means, slice_squares, N, C, slices.rows);
    merge_kernel<<<(C + 31) / 32, dim3(32, 32), 0, stream>>>(slice_means, slice_squares, gamma, column_mean, column_scale, epsilon, N, C,
                                                             slices.number, slices.rows);
    normalise_kernel<V><<<dim3(tiles, (N + kNormRows - 1) / kNormRows), dim3(32, kLanesY), 0, stream>>>(x, column_mean, column_scale,
                                                                                                        beta, y, N, C);
}

}  // namespace

extern "C" size_t batch_norm_workspace(float epsilon, int64_t N, int64_t C) {
    (void)epsilon;
    const Slices slices = slices_of(N, C);
    return (2 * static_cast<size_t>(slices.number) * static_cast<size_t>(C) + 2 * static_cast<size_t>(C)) * sizeof(float);
}

extern "C" cudaError_t batch_norm(const scalar_t* x, const scalar_t* gamma, const scalar_t* beta, scalar_t* y, float epsilon, int64_t N,
                                  int64_t C, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    (void)workspace_bytes;
    const int n = static_cast<int>(N), c = static_cast<int>(C);
    float* ws = static_cast<float*>(workspace);
    const bool packets = C % 4 == 0 && ((reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) & 15) == 0;
    if (packets) {
        if (n <= 32) launch_resident<4, 1>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 128) launch_resident<4, 2>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 512) launch_resident<4, 4>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 4096) launch_resident<4, 8>(x, gamma, beta, y, epsilon, n, c, stream);
        else launch_large<4>(x, gamma, beta, y, epsilon, n, c, ws, stream);
    } else {
        if (n <= 32) launch_resident<1, 1>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 128) launch_resident<1, 2>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 512) launch_resident<1, 4>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 1024) launch_resident<1, 8>(x, gamma, beta, y, epsilon, n, c, stream);
        else if (n <= 2048) launch_resident<1, 16>(x, gamma, beta, y, epsilon, n, c, stream);
        else launch_large<1>(x, gamma, beta, y, epsilon, n, c, ws, stream);
    }
    return cudaGetLastError();
}
