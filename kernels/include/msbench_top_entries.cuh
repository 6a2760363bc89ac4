// The elements of an array as keys that all differ, the largest first to be found: reading them by packets, and writing the k best.
//
// A key is an ordered value, then ~index, so that of equal values the one with the lower index is larger.
#pragma once

#include "msbench_ordered_keys.cuh"
#include "msbench_select.cuh"

namespace msbench {

__device__ inline unsigned ordered_value(float x) {  // NaNs equal, zeros equal
    return isnan(x) ? 0xffffffffu : ordered_key(x + 0.0f);
}

__device__ inline Key entry_key(unsigned value, unsigned index) {
    return Key(value) << 32 | unsigned(~index);
}

// x as packets at multiples of 16 bytes; the first and the last may be partial.
template <typename T>
struct PacketSource {
    static constexpr int kPacket = Packet<T>::kSize;
    const T* x;
    int64_t n;
    int head;  // elements that the first packet lacks
    unsigned packets;

    PacketSource(const T* x, int64_t n)
        : x(x), n(n), head(int(reinterpret_cast<uintptr_t>(x) % 16 / sizeof(T))), packets(unsigned(ceil_div(head + n, kPacket))) {}

    __device__ int64_t index_of(unsigned packet, int e) const { return int64_t(packet) * kPacket - head + e; }
    __device__ bool has(int64_t index) const { return index >= 0 && index < n; }
    __device__ Packet<T> load(unsigned packet) const {
        const int64_t first = index_of(packet, 0);
        if (first >= 0 && first + kPacket <= n) {
            const uint4 raw = __ldcs(reinterpret_cast<const uint4*>(x + first));
            return reinterpret_cast<const Packet<T>&>(raw);
        }
        Packet<T> some;
        for (int e = 0; e < kPacket; ++e) some.lane[e] = has(first + e) ? x[first + e] : from_float<T>(-INFINITY);
        return some;
    }
};

// The largest ordered value of a packet.
__device__ inline unsigned packet_max(const Packet<float>& packet) {
    return max(max(ordered_value(packet.lane[0]), ordered_value(packet.lane[1])),
               max(ordered_value(packet.lane[2]), ordered_value(packet.lane[3])));
}
#ifndef MSBENCH_WITHOUT_BF16
__device__ inline unsigned packet_max(const Packet<__nv_bfloat16>& packet) {
    const auto pair = reinterpret_cast<const __nv_bfloat162*>(packet.lane);
    const __nv_bfloat162 most = __hmax2_nan(__hmax2_nan(pair[0], pair[1]), __hmax2_nan(pair[2], pair[3]));
    return ordered_value(__bfloat162float(__hmax_nan(most.x, most.y)));
}
#endif

// Appends the elements of a packet that reach both bounds: of (value, packet) and of (value, index). Called by whole warps.
template <typename T>
__device__ inline void append_packet(const PacketSource<T>& source, const Packet<T>& raw, bool wanted, unsigned packet, Key least,
                                     Key least_entry, Key* list, int* count, int room) {
#pragma unroll
    for (int e = 0; e < PacketSource<T>::kPacket; ++e) {
        const int64_t index = source.index_of(packet, e);
        const unsigned value = wanted ? ordered_value(to_float(raw.lane[e])) : 0;
        const Key entry = entry_key(value, unsigned(index));
        const bool there = wanted && source.has(index);
        append(there && entry_key(value, packet) >= least && entry >= least_entry, entry, list, count, room);
    }
}

// Which elements of a packet reach a bound of (value, packet), a bit each.
template <typename T>
__device__ inline unsigned elements_above(const PacketSource<T>& source, const Packet<T>& raw, unsigned packet, Key least) {
    unsigned hits = 0;
#pragma unroll
    for (int e = 0; e < PacketSource<T>::kPacket; ++e) {
        const Key key = entry_key(ordered_value(to_float(raw.lane[e])), packet);
        hits |= key >= least && source.has(source.index_of(packet, e)) ? 1u << e : 0;
    }
    return hits;
}

// Appends those elements of packets first, first + stride, … whose bit is set to a list that has room for all: one addition a warp.
// Called by whole warps.
template <int kHeld, typename T>
__device__ inline void append_hits(const PacketSource<T>& source, const Packet<T> (&raw)[kHeld], unsigned first, unsigned stride,
                                   unsigned hits, Key* list, int* count) {
    constexpr int kPacket = PacketSource<T>::kPacket;
    static_assert(kHeld * kPacket <= 32);
    if (!__any_sync(~0u, hits != 0)) return;
    const int lane = threadIdx.x % 32, mine = __popc(hits), through = warp_inclusive(mine);
    int at = 0;
    if (lane == 31) at = atomicAdd(count, through);
    at = __shfl_sync(~0u, at, 31) + through - mine;
#pragma unroll
    for (int u = 0; u < kHeld; ++u) {
#pragma unroll
        for (int e = 0; e < kPacket; ++e) {
            const unsigned index = unsigned(source.index_of(first + u * stride, e));
            if (hits >> (u * kPacket + e) & 1) list[at++] = entry_key(ordered_value(to_float(raw[u].lane[e])), index);
        }
    }
}

// Where the k largest go.
template <typename T>
struct TopOutput {
    const T* x;
    T* values;
    int32_t* indices;
    int k;

    // Keys hold no sign of a zero: it is looked up where it lies.
    __device__ void put(Key key, unsigned place) const {
        if (int(place) >= k) return;
        const unsigned index = ~unsigned(key);
        const float value = value_of_ordered(unsigned(key >> 32));
        values[place] = value == 0.0f ? x[index] : from_float<T>(value);
        indices[place] = int32_t(index);
    }

    // Puts keys of a list where their places among all keys of another are: a warp each. Called by kSelectThreads threads. Of kShares that
    // have the same keys, each puts some.
    template <int kShares = 1>
    __device__ void rank(const Key* list, int count, const Key* all, int total, unsigned share = 0) const {
        const int lane = threadIdx.x % 32;
        for (int c = threadIdx.x / 32; c < count; c += kSelectWarps) {
            const Key key = list[c];
            if (~unsigned(key) % kShares != share) continue;
            unsigned before = 0;
#pragma unroll 8
            for (int i = lane; i < total; i += 32) before += all[i] > key;
            before = __reduce_add_sync(~0u, before);
            if (lane == 0) put(key, before);
        }
    }
};

}  // namespace msbench
