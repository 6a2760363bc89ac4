// Packs of a row for stencils: N adjacent elements that a thread loads, steps and stores, and what it needs from beside them.
//
// N is 1, or as many as 16 bytes hold. A pack stays as it was loaded until it is used, so that many fit into registers;
// bf16 is unpacked by words, since a bf16 is the upper half of its float.
#pragma once

#include "msbench.cuh"

#include <type_traits>

namespace msbench {

template <typename T, int N>
using RawPack = std::conditional_t<N == 1, T, uint4>;

template <int N, typename T>
__device__ __forceinline__ RawPack<T, N> load_pack(const T* p, bool there) {
    RawPack<T, N> raw{};
    if (there) raw = *reinterpret_cast<const RawPack<T, N>*>(p);
    return raw;
}

template <typename T, int N>
__device__ __forceinline__ void unpack(const RawPack<T, N>& raw, float (&v)[N]) {
    if constexpr (N == 1) {
        v[0] = to_float(raw);
    } else {
        const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                v[k] = __uint_as_float(words[k]);
            } else {
                v[2 * k] = __uint_as_float(words[k] << 16);
                v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
            }
        }
    }
}

// kOnce: past the caches' other contents, as a stencil does not read again what it writes.
template <bool kOnce = true, typename T, int N>
__device__ __forceinline__ void store_pack(T* p, const float (&v)[N]) {
    if constexpr (N == 1) {
        *p = from_float<T>(v[0]);
    } else {
        unsigned words[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                words[k] = __float_as_uint(v[k]);
            } else {
                const __nv_bfloat162 pair = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
                words[k] = reinterpret_cast<const unsigned&>(pair);
            }
        }
        const uint4 pack = make_uint4(words[0], words[1], words[2], words[3]);
        if constexpr (kOnce) __stcs(reinterpret_cast<uint4*>(p), pack);
        else *reinterpret_cast<uint4*>(p) = pack;
    }
}

// left + right of every element, where lanes hold neighbouring packs. `edge` is the element beyond the pack at a warp's ends,
// which only lanes 0 and 31 have loaded.
template <typename T, int N>
__device__ __forceinline__ void sum_beside(const float (&here)[N], T edge, float (&sum)[N]) {
    const int lane = threadIdx.x % 32;
    float left = __shfl_up_sync(0xffffffffu, here[N - 1], 1), right = __shfl_down_sync(0xffffffffu, here[0], 1);
    if (lane == 0) left = to_float(edge);
    if (lane == 31) right = to_float(edge);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = (k > 0 ? here[k - 1] : left) + (k + 1 < N ? here[k + 1] : right);
}

}  // namespace msbench
