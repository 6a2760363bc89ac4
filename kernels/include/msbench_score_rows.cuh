// Weights of attention from rows of scores in memory, a block a row.
#pragma once

#include "msbench.cuh"
#include "msbench_launch.cuh"
#include "msbench_math.cuh"

namespace msbench {

constexpr int kRowThreads = 256;

// A row of scores is a sum of layers; its weights go to a matrix of `to_pitch`. `scale`: of scores, so that exponentials are to base 2.
static __global__ void __launch_bounds__(kRowThreads)
    softmax_rows(const float* layers, scalar_t* weights, int rows, int columns, int64_t pitch, int64_t to_pitch, int count, float scale) {
    extern __shared__ __align__(16) float row_scores[];
    __shared__ float scratch[32];
    cudaGridDependencySynchronize();
    cudaTriggerProgrammaticLaunchCompletion();
    const float4* from = reinterpret_cast<const float4*>(layers + blockIdx.x * pitch);
    const int64_t layer = rows * pitch / 4;
    float4* const scores = reinterpret_cast<float4*>(row_scores);
    float largest = -INFINITY;
    for (int i = threadIdx.x; i < (columns + 3) / 4; i += kRowThreads) {
        float4 sum = __ldcg(from + i);
        for (int n = 1; n < count; ++n) {
            const float4 more = __ldcg(from + n * layer + i);
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        if (i * 4 + 1 >= columns) sum.y = -INFINITY;
        if (i * 4 + 2 >= columns) sum.z = -INFINITY;
        if (i * 4 + 3 >= columns) sum.w = -INFINITY;
        scores[i] = sum;
        largest = fmaxf(fmaxf(largest, fmaxf(sum.x, sum.y)), fmaxf(sum.z, sum.w));
    }
    largest = block_reduce(largest, Max(), scratch);
    float total = 0;
    for (int i = threadIdx.x; i < (columns + 3) / 4; i += kRowThreads) {
        float4 s = scores[i];
        s.x = exp2_fast((s.x - largest) * scale), s.y = exp2_fast((s.y - largest) * scale);
        s.z = exp2_fast((s.z - largest) * scale), s.w = exp2_fast((s.w - largest) * scale);
        scores[i] = s;
        total += (s.x + s.y) + (s.z + s.w);
    }
    const float factor = 1.0f / block_reduce(total, Sum(), scratch);
    Packet<scalar_t>* const to = reinterpret_cast<Packet<scalar_t>*>(weights + blockIdx.x * to_pitch);
    constexpr int kSize = Packet<scalar_t>::kSize;
    for (int i = threadIdx.x; i < to_pitch / kSize; i += kRowThreads) {
        Packet<scalar_t> packet;
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
            const int at = i * kSize + k;
            packet.lane[k] = from_float<scalar_t>(at < columns ? row_scores[at] * factor : 0.0f);
        }
        to[i] = packet;
    }
}

inline int64_t round_up(int64_t x, int64_t multiple) {
    return ceil_div(x, multiple) * multiple;
}

inline cudaError_t softmax(const float* layers, scalar_t* weights, int64_t q, int64_t kv, int64_t pitch, int64_t to_pitch, int count, int64_t d,
                    cudaStream_t stream) {
    const float scale = kLog2e / sqrtf(float(d));
    const int64_t bytes = round_up(kv, 4) * 4;
    // Together with the kernel's static shared memory that may exceed the default limit where it does not alone.
    const cudaError_t status = cudaFuncSetAttribute(softmax_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    if (status != cudaSuccess) return status;
    return Launch(dim3(unsigned(q)), dim3(kRowThreads), stream).shared(bytes).early()(softmax_rows, layers, weights, int(q), int(kv),
                                                                                                  pitch, to_pitch, count, scale);
}

}  // namespace msbench
