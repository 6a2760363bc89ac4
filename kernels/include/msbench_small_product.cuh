// Small products by plain arithmetic in fp32, in one launch: as many blocks as can share the loads, all of a warp's loads under way at
// once.
//
// Up to 32 deep, a thread has an element of C and loads what it takes itself. Beyond, a block has 16 x 32 of C; each of its 16 warps
// multiplies slices of K of its own, 16 deep. The warps' sums meet in shared memory.
#pragma once

#include <type_traits>

#include "msbench.cuh"
#include "msbench_launch.cuh"

namespace msbench {

namespace small_product {

constexpr int kRows = 16, kColumns = 32, kWarps = 16, kDepth = 16, kPitch = kRows + 4;  // a thread an output
constexpr int kWarpFloats = kDepth * (kPitch + kColumns), kSharedBytes = kWarps * kWarpFloats * 4;

template <typename Left, typename Right, typename Out>
__global__ void __launch_bounds__(kWarps * 32) multiply(Left left, Right right, Out* C, int64_t pitch, int M, int N, int K) {
    extern __shared__ __align__(16) float shared[];
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tiles_n = (N + kColumns - 1) / kColumns;
    const int row = blockIdx.x / tiles_n * kRows, column = blockIdx.x % tiles_n * kColumns;
    float *a = shared + warp * kWarpFloats, *b = a + kDepth * kPitch;
    const int at_m = lane / 8 * 4, at_n = lane % 8 * 4;                      // a lane's 4 x 4
    const int from_k = lane % kDepth, from_row = lane / kDepth * (kRows / 2);  // what it loads of A
    float sums[4][4] = {};
    for (int k = warp * kDepth; k < K; k += kWarps * kDepth) {
        // Nothing is converted before all loads are under way.
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(left.at(0, 0))>>;
        T x[kRows / 2], y[kDepth];
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) {
            x[i] = from_float<T>(0);
            if (row + from_row + i < M && k + from_k < K) x[i] = *left.at(row + from_row + i, k + from_k);
        }
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            y[i] = from_float<T>(0);
            if (column + lane < N && k + i < K) y[i] = *right.at(k + i, column + lane);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kRows / 2; i += 4) {
            *reinterpret_cast<float4*>(a + from_k * kPitch + from_row + i) =
                make_float4(to_float(x[i]), to_float(x[i + 1]), to_float(x[i + 2]), to_float(x[i + 3]));
        }
#pragma unroll
        for (int i = 0; i < kDepth; ++i) b[i * kColumns + lane] = to_float(y[i]);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            float u[4], v[4];
            *reinterpret_cast<float4*>(u) = *reinterpret_cast<const float4*>(a + i * kPitch + at_m);
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
    for (int m = 0; m < 4; ++m) {
        *reinterpret_cast<float4*>(a + (at_m + m) * kColumns + at_n) = make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    }
    __syncthreads();
    const int to_row = row + int(threadIdx.x) / kColumns, to_column = column + int(threadIdx.x) % kColumns;
    if (to_row >= M || to_column >= N) return;
    const int used = min(kWarps, (K + kDepth - 1) / kDepth);
    float sum = 0.0f;
    for (int w = 0; w < used; ++w) sum += shared[w * kWarpFloats + threadIdx.x];
    C[to_row * pitch + to_column] = from_float<Out>(sum);
}

constexpr int kShallow = 32, kWidth = 32, kHeight = 8;  // the depth up to which nothing is shared; a block's threads then

template <typename Left, typename Right, typename Out>
__global__ void __launch_bounds__(kWidth* kHeight) multiply_shallow(Left left, Right right, Out* C, int64_t pitch, int M, int N, int K) {
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    using T = std::remove_cv_t<std::remove_pointer_t<decltype(left.at(0, 0))>>;
    const int tiles_n = (N + kWidth - 1) / kWidth, column = blockIdx.x % tiles_n * kWidth + threadIdx.x;
    const int row = blockIdx.x / tiles_n * kHeight + threadIdx.y;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; k += kDepth) {
        T x[kDepth], y[kDepth];
#pragma unroll
        for (int i = 0; i < kDepth; ++i) {
            x[i] = y[i] = from_float<T>(0);
            if (k + i < K) x[i] = *left.at(row, k + i), y[i] = *right.at(k + i, column);
        }
#pragma unroll
        for (int i = 0; i < kDepth; ++i) sum = fmaf(to_float(x[i]), to_float(y[i]), sum);
    }
    C[row * pitch + column] = from_float<Out>(sum);
}

}  // namespace small_product

// An element of a row-major matrix.
template <typename T>
struct RowMajor {
    const T* data;
    int64_t pitch;

    __device__ __forceinline__ const T* at(int row, int column) const { return data + row * pitch + column; }
};

// C[m, n] = sum of *left.at(m, k) * *right.at(k, n), of one type; C's rows are `pitch` apart. `behind`: not the launcher's first kernel.
template <typename Left, typename Right, typename Out>
cudaError_t multiply_small(Left left, Right right, Out* C, int64_t pitch, int64_t M, int64_t N, int64_t K, bool behind, cudaStream_t stream) {
    using namespace small_product;
    const bool shallow = K <= kShallow;
    const int64_t blocks = shallow ? ceil_div(M, kHeight) * ceil_div(N, kWidth) : ceil_div(M, kRows) * ceil_div(N, kColumns);
    Launch launch(dim3(unsigned(blocks)), shallow ? dim3(kWidth, kHeight) : dim3(kWarps * 32), stream);
    if (!shallow) launch.shared(kSharedBytes);
    if (behind) launch.early();
    const auto kernel = shallow ? multiply_shallow<Left, Right, Out> : multiply<Left, Right, Out>;
    return launch(kernel, left, right, C, pitch, int(M), int(N), int(K));
}

}  // namespace msbench
