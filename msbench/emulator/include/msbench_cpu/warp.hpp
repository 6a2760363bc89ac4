// Warp shuffles, votes, matches and reductions. All rest on one exchange of a value between the lanes of a mask.
#ifndef MSBENCH_CPU_WARP_HPP
#define MSBENCH_CPU_WARP_HPP

#include "barriers.hpp"

namespace msbench_cpu {

template <class T>
T from_slot(const Slot& slot) {
    T value;
    std::memcpy(static_cast<void*>(&value), slot.bytes, sizeof value);
    return value;
}

/// The value that lane `source` deposited. Values of more than 16 bytes take several exchanges (C++ library shims
/// only).
template <class T>
T exchange_from(uint32_t mask, const T& value, unsigned source, const Site& at) {
    static_assert(std::is_trivially_copyable_v<T>, "a value that moves between lanes has to be trivially copyable");
    if constexpr (sizeof(T) <= slot_bytes) {
        return from_slot<T>(warp_exchange(mask, &value, sizeof(T), Collective::shuffle, at).slots[source]);
    } else {
        T result;
        for (size_t done = 0; done < sizeof(T); done += slot_bytes) {
            unsigned n = static_cast<unsigned>(sizeof(T) - done < slot_bytes ? sizeof(T) - done : slot_bytes);
            auto from = reinterpret_cast<const char*>(&value) + done;
            std::memcpy(reinterpret_cast<char*>(&result) + done,
                        warp_exchange(mask, from, n, Collective::shuffle, at).slots[source].bytes, n);
        }
        return result;
    }
}

// The source lane of each kind of shuffle (programming guide, "Warp Shuffle Functions"); segments are `width` lanes.

MSBENCH_CPU_INLINE unsigned index_source(int index, int width) {
    return (lane() & ~unsigned(width - 1)) | (unsigned(index) & unsigned(width - 1));
}
MSBENCH_CPU_INLINE unsigned up_source(unsigned delta, int width) {
    unsigned me = lane(), first = me & ~unsigned(width - 1);
    return me - first < delta ? me : me - delta;
}
MSBENCH_CPU_INLINE unsigned down_source(unsigned delta, int width) {
    unsigned me = lane(), last = me | unsigned(width - 1);
    return last - me < delta ? me : me + delta;
}
MSBENCH_CPU_INLINE unsigned xor_source(int bits, int width) {
    unsigned me = lane(), source = (me ^ unsigned(bits)) & 31u;
    return source > (me | unsigned(width - 1)) ? me : source;
}

inline unsigned ballot(uint32_t mask, bool predicate, const Site& at) {
    unsigned char mine = predicate;
    Exchange all = warp_exchange(mask, &mine, 1, Collective::vote, at);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; ++i) result |= unsigned(all.present >> i & 1 && all.slots[i].bytes[0]) << i;
    return result;
}

/// Folds the lanes' values in lane order, starting with the lowest one present.
template <class T, class Op>
T fold(uint32_t mask, const T& value, Op op, const Site& at) {
    static_assert(sizeof(T) <= slot_bytes);
    Exchange all = warp_exchange(mask, &value, sizeof(T), Collective::reduce, at);
    unsigned i = static_cast<unsigned>(__builtin_ctz(all.present));
    T result = from_slot<T>(all.slots[i]);
    for (++i; i < 32; ++i)
        if (all.present >> i & 1) result = op(result, from_slot<T>(all.slots[i]));
    return result;
}

/// The types that CUDA shuffles; cuda_bf16.h adds its own.
template <class T>
inline constexpr bool can_shuffle = std::is_arithmetic_v<T> && sizeof(T) >= 4;

}  // namespace msbench_cpu

MSBENCH_CPU_INLINE void __syncwarp(unsigned mask = 0xffffffffu, msbench_cpu_site at = msbench_cpu_site::current()) {
    msbench_cpu::warp_exchange(mask, nullptr, 0, msbench_cpu::Collective::sync, at);
}

template <class T>
    requires msbench_cpu::can_shuffle<T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::exchange_from(mask, value, msbench_cpu::index_source(source, width), at);
}
template <class T>
    requires msbench_cpu::can_shuffle<T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::exchange_from(mask, value, msbench_cpu::up_source(delta, width), at);
}
template <class T>
    requires msbench_cpu::can_shuffle<T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::exchange_from(mask, value, msbench_cpu::down_source(delta, width), at);
}
template <class T>
    requires msbench_cpu::can_shuffle<T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::exchange_from(mask, value, msbench_cpu::xor_source(bits, width), at);
}

MSBENCH_CPU_INLINE unsigned __ballot_sync(unsigned mask, int predicate,
                                          msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::ballot(mask, predicate != 0, at);
}
MSBENCH_CPU_INLINE int __any_sync(unsigned mask, int predicate, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::ballot(mask, predicate != 0, at) != 0;
}
MSBENCH_CPU_INLINE int __all_sync(unsigned mask, int predicate, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::ballot(mask, predicate == 0, at) == 0;
}
MSBENCH_CPU_INLINE unsigned __activemask(msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::active_mask(at);
}

template <class T>
unsigned __match_any_sync(unsigned mask, T value, msbench_cpu_site at = msbench_cpu_site::current()) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4);
    auto all = msbench_cpu::warp_exchange(mask, &value, sizeof value, msbench_cpu::Collective::match, at);
    unsigned equal = 0;
    for (unsigned i = 0; i < 32; ++i)
        if (all.present >> i & 1) equal |= unsigned(std::memcmp(all.slots[i].bytes, &value, sizeof value) == 0) << i;
    return equal;
}
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal, msbench_cpu_site at = msbench_cpu_site::current()) {
    static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4);
    auto all = msbench_cpu::warp_exchange(mask, &value, sizeof value, msbench_cpu::Collective::match, at);
    *all_equal = 1;
    for (unsigned i = 0; i < 32; ++i)
        if (all.present >> i & 1 && std::memcmp(all.slots[i].bytes, &value, sizeof value) != 0) *all_equal = 0;
    return *all_equal ? all.present : 0;
}

#define MSBENCH_CPU_WARP_REDUCE(name, T, expression)                                                 \
    MSBENCH_CPU_INLINE T __reduce_##name##_sync(unsigned mask, T value,                              \
                                                msbench_cpu_site at = msbench_cpu_site::current()) { \
        return msbench_cpu::fold(mask, value, [](T a, T b) -> T { return expression; }, at);         \
    }
MSBENCH_CPU_WARP_REDUCE(add, unsigned, a + b)
MSBENCH_CPU_WARP_REDUCE(min, unsigned, a < b ? a : b)
MSBENCH_CPU_WARP_REDUCE(max, unsigned, a > b ? a : b)
MSBENCH_CPU_WARP_REDUCE(add, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
MSBENCH_CPU_WARP_REDUCE(min, int, a < b ? a : b)
MSBENCH_CPU_WARP_REDUCE(max, int, a > b ? a : b)
MSBENCH_CPU_WARP_REDUCE(and, unsigned, a& b)
MSBENCH_CPU_WARP_REDUCE(or, unsigned, a | b)
MSBENCH_CPU_WARP_REDUCE(xor, unsigned, a ^ b)
#undef MSBENCH_CPU_WARP_REDUCE

#endif
