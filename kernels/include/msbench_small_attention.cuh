// softmax(Q K' / sqrt(d)) V of few numbers in fp32: scores by plain arithmetic, and one kernel that makes weights of them in shared memory
// and multiplies these with values.
//
// Measured (H200, November 2026, cold; us): 9.8 for 77 queries, 203 keys, 96 and 80 numbers, and 13.0 for 128, 256, 512 and 512; on the tensor cores
// 36 and 25. Keys read a lane a row, 16 loads of 32 lines each, took 11.8 and 23.2; scores by 16 x 32 10.9 and 15.6.
#pragma once

#include <algorithm>

#include "msbench_score_rows.cuh"
#include "msbench_small_product.cuh"

namespace msbench::small_attention {

inline bool small(int64_t q, int64_t kv, int64_t d, int64_t dv) {
    return q * kv * std::max(d, dv) <= int64_t(1) << 25 && kv <= 1024;
}

// 16 x 16 scores: each of 16 warps multiplies slices of d of its own, 16 deep. Queries and keys both lie in rows, of which a load takes 16
// neighbours of two; the next slice is on its way while one is multiplied.
static __global__ void __launch_bounds__(small_product::kWarps * 32) multiply_rows(const float* Q, const float* K, float* scores, int q, int kv, int d) {
    using namespace small_product;
    constexpr int kHalf = kRows / 2, kStep = kWarps * kDepth;
    __shared__ __align__(16) float shared[kWarps][2][kDepth][kPitch];
    cudaTriggerProgrammaticLaunchCompletion();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles_n = (kv + kRows - 1) / kRows;
    const int row = blockIdx.x / tiles_n * kRows, column = blockIdx.x % tiles_n * kRows;
    const int from_k = lane % kDepth, from_line = lane / kDepth * kHalf;
    float x[kHalf], y[kHalf];
    const auto load = [&](int k) {
#pragma unroll
        for (int i = 0; i < kHalf; ++i) {
            const int m = row + from_line + i, n = column + from_line + i;
            x[i] = m < q && k + from_k < d ? Q[m * d + k + from_k] : 0.0f;
            y[i] = n < kv && k + from_k < d ? K[n * d + k + from_k] : 0.0f;
        }
    };
    if (warp * kDepth < d) load(warp * kDepth);
    auto& a = shared[warp][0];
    auto& b = shared[warp][1];
    const int at_m = lane / 8 * 4, at_n = lane % 8 * 2;  // a lane's 4 x 2
    float sums[4][2] = {};
    for (int k = warp * kDepth; k < d; k += kStep) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kHalf; i += 4) {
            *reinterpret_cast<float4*>(&a[from_k][from_line + i]) = make_float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
            *reinterpret_cast<float4*>(&b[from_k][from_line + i]) = make_float4(y[i], y[i + 1], y[i + 2], y[i + 3]);
        }
        __syncwarp();
        if (k + kStep < d) load(k + kStep);
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            float u[4];
            *reinterpret_cast<float4*>(u) = *reinterpret_cast<const float4*>(&a[i][at_m]);
            const float2 v = *reinterpret_cast<const float2*>(&b[i][at_n]);
#pragma unroll
            for (int m = 0; m < 4; ++m) sums[m][0] = fmaf(u[m], v.x, sums[m][0]), sums[m][1] = fmaf(u[m], v.y, sums[m][1]);
        }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 4; ++m) *reinterpret_cast<float2*>(&a[at_m + m][at_n]) = make_float2(sums[m][0], sums[m][1]);
    __syncthreads();
    const int m = threadIdx.x / kRows, n = threadIdx.x % kRows, used = min(kWarps, (d + kDepth - 1) / kDepth);
    if (m >= kRows || row + m >= q || column + n >= kv) return;
    float sum = 0;
    for (int w = 0; w < used; ++w) sum += shared[w][0][m][n];
    scores[(row + m) * kv + column + n] = sum;
}

// 16 x 32 of Y: each of 16 warps makes the weights of a row, and then multiplies slices of 16 keys. Values are on their way meanwhile.
static __global__ void __launch_bounds__(small_product::kWarps * 32)
    weigh_values(const float* scores, const float* V, float* Y, int q, int kv, int dv, float scale) {
    using namespace small_product;
    extern __shared__ __align__(16) float shared[];
    __shared__ float factors[kRows];
    static_assert(kRows == kWarps, "a warp a row");
    constexpr int kStep = kWarps * kDepth, kAtOnce = 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles_n = (dv + kColumns - 1) / kColumns;
    const int row = blockIdx.x / tiles_n * kRows, column = blockIdx.x % tiles_n * kColumns, depth = (kv + kDepth - 1) / kDepth * kDepth;
    float *weights = shared, *parts = shared + depth * kPitch, *b = parts + warp * kDepth * kColumns;
    float y[kDepth];
    const auto load_values = [&](int k) {
#pragma unroll
        for (int i = 0; i < kDepth; ++i) y[i] = column + lane < dv && k + i < kv ? V[(k + i) * int64_t(dv) + column + lane] : 0.0f;
    };
    load_values(warp * kDepth);
    cudaGridDependencySynchronize();

    const bool inside = row + warp < q;
    const float* from = scores + int64_t(row + warp) * kv;
    float largest = -INFINITY;
    for (int k = lane; k < kv; k += kAtOnce * 32) {
        float s[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) s[i] = inside && k + i * 32 < kv ? __ldcg(from + k + i * 32) : -INFINITY;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            largest = fmaxf(largest, s[i]);
            if (k + i * 32 < kv) weights[(k + i * 32) * kPitch + warp] = s[i];
        }
    }
    largest = warp_reduce(largest, Max());
    float total = 0;
    for (int k = lane; k < depth; k += 32) {
        float& weight = weights[k * kPitch + warp];
        weight = k < kv ? exp2_fast((weight - largest) * scale) : 0.0f;
        total += weight;
    }
    total = warp_reduce(total, Sum());
    if (lane == 0) factors[warp] = 1.0f / total;
    __syncthreads();

    const int at_m = lane / 8 * 4, at_n = lane % 8 * 4;  // a lane's 4 x 4
    float sums[4][4] = {};
    for (int k = warp * kDepth; k < kv; k += kStep) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kDepth; ++i) b[i * kColumns + lane] = y[i];
        __syncwarp();
        if (k + kStep < kv) load_values(k + kStep);
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            float u[4], v[4];
            *reinterpret_cast<float4*>(u) = *reinterpret_cast<const float4*>(weights + (k + i) * kPitch + at_m);
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(b + i * kColumns + at_n);
#pragma unroll
            for (int m = 0; m < 4; ++m) {
#pragma unroll
                for (int n = 0; n < 4; ++n) sums[m][n] = fmaf(u[m], v[n], sums[m][n]);
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 4; ++m) *reinterpret_cast<float4*>(b + (at_m + m) * kColumns + at_n) = make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    __syncthreads();
    const int to_row = row + warp, to_column = column + lane, used = min(kWarps, depth / kDepth);
    if (to_row >= q || to_column >= dv) return;
    float sum = 0;
    for (int w = 0; w < used; ++w) sum += parts[w * kDepth * kColumns + threadIdx.x];
    Y[to_row * int64_t(dv) + to_column] = sum * factors[warp];
}

inline cudaError_t attend_small(const float* Q, const float* K, const float* V, float* Y, int64_t q, int64_t kv, int64_t d, int64_t dv, float* scores,
                         cudaStream_t stream) {
    using namespace small_product;
    const int64_t tiles = ceil_div(q, kRows) * ceil_div(kv, kRows);
    multiply_rows<<<unsigned(tiles), kWarps * 32, 0, stream>>>(Q, K, scores, int(q), int(kv), int(d));
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    const int64_t bytes = (round_up(kv, kDepth) * kPitch + kWarps * kDepth * kColumns) * int64_t(sizeof(float));
    return Launch(dim3(unsigned(ceil_div(q, kRows) * ceil_div(dv, kColumns))), dim3(kWarps * 32), stream)
        .shared(bytes)
        .early()(weigh_values, scores, V, Y, int(q), int(kv), int(dv), kLog2e / sqrtf(float(d)));
}

}  // namespace msbench::small_attention
