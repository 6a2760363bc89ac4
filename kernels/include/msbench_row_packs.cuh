// Packs of a row for stencils: N adjacent elements that a thread loads, steps and stores, and what it needs from beside them.
//
// N is 1, or as many as 8 or 16 bytes hold. A pack stays as it was loaded until it is used, so that many fit into registers;
// bf16 is unpacked by words, since a bf16 is the upper half of its float.
#pragma once

#include "msbench.cuh"

#include <type_traits>

namespace msbench {

template <typename T, int N>
using RawPack = std::conditional_t<N == 1, T, std::conditional_t<N * sizeof(T) == 8, uint2, uint4>>;

// Number `at` of the packs that begin at p.
template <int N, typename T, typename Index = int>
__device__ __forceinline__ RawPack<T, N> load_pack(const T* p, bool there, Index at = 0) {
    RawPack<T, N> raw{};
    if (there) raw = reinterpret_cast<const RawPack<T, N>*>(p)[at];
    return raw;
}

template <typename T, int N>
__device__ __forceinline__ void unpack(const RawPack<T, N>& raw, float (&v)[N]) {
    if constexpr (N == 1) {
        v[0] = to_float(raw);
    } else {
        const unsigned* const words = reinterpret_cast<const unsigned*>(&raw);
#pragma unroll
        for (int k = 0; k < int(sizeof(raw)) / 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                v[k] = __uint_as_float(words[k]);
            } else {
                v[2 * k] = __uint_as_float(words[k] << 16);
                v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
            }
        }
    }
}

// Rounded.
template <typename T, int N>
__device__ __forceinline__ RawPack<T, N> packed(const float (&v)[N]) {
    if constexpr (N == 1) {
        return from_float<T>(v[0]);
    } else {
        RawPack<T, N> pack;
#pragma unroll
        for (int k = 0; k < int(sizeof(pack)) / 4; ++k) {
            if constexpr (sizeof(T) == 4) {
                reinterpret_cast<unsigned*>(&pack)[k] = __float_as_uint(v[k]);
            } else {
                const auto pair = __floats2bfloat162_rn(v[2 * k], v[2 * k + 1]);
                reinterpret_cast<unsigned*>(&pack)[k] = reinterpret_cast<const unsigned&>(pair);
            }
        }
        return pack;
    }
}

// `next`, rounded; where an element is boundary, what `old` has there, bit for bit: its first or its last, or all.
template <typename T, int N>
__device__ __forceinline__ RawPack<T, N> pack_inner(const float (&next)[N], const RawPack<T, N>& old, bool first, bool last, bool all) {
    if constexpr (N == 1) {
        return first || last || all ? old : from_float<T>(next[0]);
    } else {
        constexpr int kWords = sizeof(old) / 4;
        RawPack<T, N> pack = packed<T>(next);
#pragma unroll
        for (int k = 0; k < kWords; ++k) {
            unsigned keep = all ? ~0u : 0u, &word = reinterpret_cast<unsigned*>(&pack)[k];
            if (k == 0 && first) keep |= sizeof(T) == 4 ? ~0u : 0xffffu;
            if (k == kWords - 1 && last) keep |= sizeof(T) == 4 ? ~0u : 0xffff0000u;
            word = (reinterpret_cast<const unsigned*>(&old)[k] & keep) | (word & ~keep);
        }
        return pack;
    }
}

// As number `at` of the packs that begin at p. kOnce: past the caches' other contents, as a stencil does not read again what it writes.
template <bool kOnce, int N, typename T, typename Index = int>
__device__ __forceinline__ void store_pack(T* p, const RawPack<T, N>& pack, Index at = 0) {
    auto* const to = reinterpret_cast<RawPack<T, N>*>(p) + at;
    if constexpr (kOnce && N > 1) __stcs(to, pack);
    else *to = pack;
}

// left + right of every element, where lanes hold neighbouring packs. `edge` is the element beyond the pack of a lane that has no
// neighbour there, since it is the first or the last of its warp or of its row of threads.
template <typename T, int N>
__device__ __forceinline__ void sum_beside(const float (&here)[N], T edge, bool first, bool last, float (&sum)[N]) {
    float left = __shfl_up_sync(0xffffffffu, here[N - 1], 1), right = __shfl_down_sync(0xffffffffu, here[0], 1);
    if (first) left = to_float(edge);
    if (last) right = to_float(edge);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] = (k > 0 ? here[k - 1] : left) + (k + 1 < N ? here[k + 1] : right);
}

}  // namespace msbench
