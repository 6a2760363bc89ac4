// C = A B in fp32 by plain arithmetic in one launch, where K is too short for the tensor cores to earn back a split.
//
// A block has 128 x 64 of C. It loads its factors 64 k at a time, all of them before it uses any, and the next ones while it multiplies; on their
// way to shared memory they are turned, so that rows lie side by side. A factor, as in msbench_small_product.cuh, tells where its element is.
#pragma once

#include "msbench_launch.cuh"
#include "msbench_packets.cuh"

namespace msbench::short_sums {

constexpr int kTileM = 128, kTileN = 64, kDepth = 64, kThreads = 256, kPitchA = kTileM + 4, kPitchB = kTileN + 4;
constexpr int kPerThreadM = 8, kPerThreadN = 4, kSharedBytes = kDepth * (kPitchA + kPitchB) * 4;

// Loads kRows rows of 64 k and turns them, so that rows lie side by side.
template <int kRows, int kPitch>
struct Load {
    static constexpr int kCount = kRows * kDepth / 4 / kThreads;
    float4 x[kCount];

    // A warp has 8 k of 16 rows: of writes below, no two meet in a bank.
    static __device__ __forceinline__ int warp(int i) { return (i * kThreads + int(threadIdx.x)) / 32; }
    static __device__ __forceinline__ int row(int i) { return warp(i) % (kRows / 16) * 16 + int(threadIdx.x) % 32 / 2; }
    static __device__ __forceinline__ int k(int i) { return warp(i) / (kRows / 16) * 8 + int(threadIdx.x) % 2 * 4; }

    template <class Factor>
    __device__ __forceinline__ void load(const Factor& f, int row0, int k0) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (row0 + row(i) < f.count && k0 + k(i) < f.K) x[i] = *reinterpret_cast<const float4*>(f.at(row0 + row(i), k0 + k(i)));
        }
    }
    __device__ __forceinline__ void store(float* to) const {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            float* const at = to + k(i) * kPitch + row(i);
            at[0] = x[i].x, at[kPitch] = x[i].y, at[2 * kPitch] = x[i].z, at[3 * kPitch] = x[i].w;
        }
    }
};

template <class Factor>
__global__ void __launch_bounds__(kThreads) multiply(const Factor left, const Factor right, float* C, int tiles_n, bool vectors) {
    extern __shared__ __align__(16) float a[];
    float* const b = a + kDepth * kPitchA;
    const int row0 = blockIdx.x / tiles_n * kTileM, column0 = blockIdx.x % tiles_n * kTileN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // A warp has 32 x 32 of C: of 128 bytes of either factor, its lanes read four and eight pieces.
    const int at_m = warp % 4 * 32 + lane / 8 * kPerThreadM, at_n = warp / 4 * 32 + lane % 8 * kPerThreadN;
    Load<kTileM, kPitchA> left_part;
    Load<kTileN, kPitchB> right_part;
    left_part.load(left, row0, 0);
    right_part.load(right, column0, 0);
    float sums[kPerThreadM][kPerThreadN] = {};
    for (int k0 = 0; k0 < left.K; k0 += kDepth) {
        if (k0 > 0) __syncthreads();
        left_part.store(a);
        right_part.store(b);
        __syncthreads();
        if (k0 + kDepth < left.K) {
            left_part.load(left, row0, k0 + kDepth);
            right_part.load(right, column0, k0 + kDepth);
        }
#pragma unroll 8
        for (int k = 0; k < kDepth; ++k) {
            float u[kPerThreadM], v[kPerThreadN];
            *reinterpret_cast<float4*>(u) = *reinterpret_cast<const float4*>(a + k * kPitchA + at_m);
            *reinterpret_cast<float4*>(u + 4) = *reinterpret_cast<const float4*>(a + k * kPitchA + at_m + 4);
            *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(b + k * kPitchB + at_n);
#pragma unroll
            for (int m = 0; m < kPerThreadM; ++m) {
#pragma unroll
                for (int n = 0; n < kPerThreadN; ++n) sums[m][n] = fmaf(u[m], v[n], sums[m][n]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < kPerThreadM; ++m) {
        const int row = row0 + at_m + m, column = column0 + at_n;
        if (row >= left.count || column >= right.count) continue;
        float* const to = C + int64_t(row) * right.count + column;
        if (vectors) {
            *reinterpret_cast<float4*>(to) = make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
        } else {
            for (int n = 0; n < kPerThreadN && column + n < right.count; ++n) to[n] = sums[m][n];
        }
    }
}

// Four neighbours along k, from a multiple of four on, have to lie side by side on 16 bytes.
template <class Factor>
cudaError_t launch(const Factor& left, const Factor& right, float* C, cudaStream_t stream) {
    const int64_t tiles_n = ceil_div(right.count, kTileN);
    return Launch(dim3(unsigned(ceil_div(left.count, kTileM) * tiles_n)), dim3(kThreads), stream)
        .shared(kSharedBytes)(multiply<Factor>, left, right, C, int(tiles_n), right.count % 4 == 0 && packets_allowed(C));
}

}  // namespace msbench::short_sums
