// atomicAdd and its family as real atomics: blocks run at the same time on different OS threads. Overloads are CUDA's
// own, so that what nvcc refuses (say atomicAdd on long long*) is refused here too.
#ifndef MSBENCH_CPU_ATOMICS_HPP
#define MSBENCH_CPU_ATOMICS_HPP

#include "runtime.hpp"

namespace msbench_cpu {

template <size_t bytes>
using Bits = std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, unsigned long long>>;

/// Replaces *p by update(*p) in one step; returns what was there.
template <class T, class F>
T atomic_update(T* p, F update) {
    using B = Bits<sizeof(T)>;
    count_atomic();
    auto* word = reinterpret_cast<B*>(p);
    B old = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        T before, after;
        std::memcpy(static_cast<void*>(&before), &old, sizeof old);
        after = update(before);
        B wanted;
        std::memcpy(&wanted, static_cast<const void*>(&after), sizeof wanted);
        if (__atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return before;
    }
}

template <class T>
T atomic_cas(T* p, T compare, T value) {
    count_atomic();
    __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return compare;
}

}  // namespace msbench_cpu

// X(name, type, how)
#define MSBENCH_CPU_SCOPES(X, name, T, ...) \
    X(name, T, __VA_ARGS__) X(name##_block, T, __VA_ARGS__) X(name##_system, T, __VA_ARGS__)
#define MSBENCH_CPU_FETCH(name, T, builtin)         \
    MSBENCH_CPU_INLINE T name(T* p, T value) {      \
        msbench_cpu::count_atomic();                \
        return builtin(p, value, __ATOMIC_SEQ_CST); \
    }
#define MSBENCH_CPU_UPDATE(name, T, expression)                                           \
    MSBENCH_CPU_INLINE T name(T* p, T value) {                                            \
        return msbench_cpu::atomic_update(p, [value](T old) -> T { return expression; }); \
    }
#define MSBENCH_CPU_CAS(name, T, ...) \
    MSBENCH_CPU_INLINE T name(T* p, T compare, T value) { return msbench_cpu::atomic_cas(p, compare, value); }

MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicAdd, int, __atomic_fetch_add)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicAdd, unsigned, __atomic_fetch_add)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicAdd, unsigned long long, __atomic_fetch_add)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicAdd, float, old + value)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicAdd, double, old + value)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicSub, int, __atomic_fetch_sub)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicSub, unsigned, __atomic_fetch_sub)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicExch, int, __atomic_exchange_n)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicExch, unsigned, __atomic_exchange_n)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicExch, unsigned long long, __atomic_exchange_n)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicExch, float, ((void)old, value))
MSBENCH_CPU_SCOPES(MSBENCH_CPU_CAS, atomicCAS, int)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_CAS, atomicCAS, unsigned)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_CAS, atomicCAS, unsigned long long)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_CAS, atomicCAS, unsigned short)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicInc, unsigned, old >= value ? 0 : old + 1)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicDec, unsigned, old == 0 || old > value ? value : old - 1)

#define MSBENCH_CPU_INTEGER_ATOMICS(T)                                              \
    MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicMin, T, old < value ? old : value) \
    MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicMax, T, old > value ? old : value) \
    MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicAnd, T, __atomic_fetch_and)         \
    MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicOr, T, __atomic_fetch_or)           \
    MSBENCH_CPU_SCOPES(MSBENCH_CPU_FETCH, atomicXor, T, __atomic_fetch_xor)
MSBENCH_CPU_INTEGER_ATOMICS(int)
MSBENCH_CPU_INTEGER_ATOMICS(unsigned)
MSBENCH_CPU_INTEGER_ATOMICS(unsigned long long)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicMin, long long, old < value ? old : value)
MSBENCH_CPU_SCOPES(MSBENCH_CPU_UPDATE, atomicMax, long long, old > value ? old : value)

// From compute capability 9.0 on, each element by itself.
#define MSBENCH_CPU_TWO(name, T, ...) \
    MSBENCH_CPU_INLINE T name(T* p, T value) { return {name(&p->x, value.x), name(&p->y, value.y)}; }
#define MSBENCH_CPU_FOUR(name, T, ...)                                                                                 \
    MSBENCH_CPU_INLINE T name(T* p, T value) {                                                                         \
        return {name(&p->x, value.x), name(&p->y, value.y), name(&p->z, value.z), name(&p->w, value.w)};               \
    }
MSBENCH_CPU_SCOPES(MSBENCH_CPU_TWO, atomicAdd, float2, )
MSBENCH_CPU_SCOPES(MSBENCH_CPU_FOUR, atomicAdd, float4, )

#undef MSBENCH_CPU_INTEGER_ATOMICS
#undef MSBENCH_CPU_TWO
#undef MSBENCH_CPU_FOUR
#undef MSBENCH_CPU_FETCH
#undef MSBENCH_CPU_CAS

#endif
