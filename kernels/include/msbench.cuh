// Small helpers that any kernel may use: conversions, 16-byte packets, warp and block reductions.
//
// `scalar_t` (float or __nv_bfloat16) comes from the generated header. Plain CUDA C++, so that the cpu executor runs it too.
#pragma once

#include <cuda_runtime.h>
#ifndef MSBENCH_WITHOUT_BF16
#include <cuda_bf16.h>
#endif

#include <cstdint>

namespace msbench {

// ---------------------------------------------------------------- sizes

// ⌈a / b⌉ for a ≥ 0, b > 0.
__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// ---------------------------------------------------------------- conversions

__host__ __device__ inline float to_float(float x) {
    return x;
}

// Rounds to nearest even. `from_float<scalar_t>(x)`.
template <typename T>
__host__ __device__ inline T from_float(float x);

template <>
__host__ __device__ inline float from_float<float>(float x) {
    return x;
}

#ifndef MSBENCH_WITHOUT_BF16
__host__ __device__ inline float to_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}

template <>
__host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
    return __float2bfloat16_rn(x);
}
#endif

// ---------------------------------------------------------------- 16-byte packets

// As many T as one 16-byte load holds: 4 floats or 8 bf16.
template <typename T>
struct alignas(16) Packet {
    static constexpr int kSize = 16 / sizeof(T);
    T lane[kSize];
};

// Whether packets may be loaded from and stored to every one of these addresses. Arrays are only aligned to their element.
template <typename... T>
__host__ __device__ inline bool packets_allowed(const T*... pointers) {
    return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

// Packet number `index` of an array.
template <typename T>
__device__ inline Packet<T> load_packet(const T* array, int64_t index) {
    return reinterpret_cast<const Packet<T>*>(array)[index];
}

template <typename T>
__device__ inline void store_packet(T* array, int64_t index, const Packet<T>& packet) {
    reinterpret_cast<Packet<T>*>(array)[index] = packet;
}

// ---------------------------------------------------------------- reductions

struct Sum {
    static constexpr float kIdentity = 0;
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
    static constexpr float kIdentity = -__builtin_huge_valf();
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// The reduction over all 32 lanes of a warp, in every lane.
template <typename Operation>
__device__ inline float warp_reduce(float x, Operation operation) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x = operation(x, __shfl_xor_sync(0xffffffffu, x, distance));
    }
    return x;
}

// The reduction over all threads of a one-dimensional block of whole warps, in every thread.
// `scratch`: 32 floats of shared memory, free for other use after the next __syncthreads().
template <typename Operation>
__device__ inline float block_reduce(float x, Operation operation, float* scratch) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    x = warp_reduce(x, operation);
    __syncthreads();  // scratch may still be read by an earlier call
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    x = lane < blockDim.x / 32 ? scratch[lane] : Operation::kIdentity;
    return warp_reduce(x, operation);
}

}  // namespace msbench
