// Cache-hinted loads and stores (plain ones here), address spaces, asynchronous copies.
#ifndef MSBENCH_CPU_MEMORY_HPP
#define MSBENCH_CPU_MEMORY_HPP

#include "runtime.hpp"

#define MSBENCH_CPU_LOAD(name)              \
    template <class T>                      \
    MSBENCH_CPU_INLINE T name(const T* p) { \
        return *p;                          \
    }
MSBENCH_CPU_LOAD(__ldg)
MSBENCH_CPU_LOAD(__ldca)
MSBENCH_CPU_LOAD(__ldcg)
MSBENCH_CPU_LOAD(__ldcs)
MSBENCH_CPU_LOAD(__ldlu)
#undef MSBENCH_CPU_LOAD

/// Read again from memory every time: what a thread polls with, so it yields now and then.
template <class T>
MSBENCH_CPU_INLINE T __ldcv(const T* p) {
    msbench_cpu::count_atomic();
    T value;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    std::memcpy(static_cast<void*>(&value), p, sizeof value);
    return value;
}

#define MSBENCH_CPU_STORE(name)                                         \
    template <class T>                                                  \
    MSBENCH_CPU_INLINE void name(T* p, std::type_identity_t<T> value) { \
        *p = value;                                                     \
    }
MSBENCH_CPU_STORE(__stwb)
MSBENCH_CPU_STORE(__stcg)
MSBENCH_CPU_STORE(__stcs)
MSBENCH_CPU_STORE(__stwt)
#undef MSBENCH_CPU_STORE

/// An address in shared memory as PTX wants it. Only its low 32 bits survive there, so what comes back is the offset
/// from the dynamic shared memory's start.
MSBENCH_CPU_INLINE size_t __cvta_generic_to_shared(const void* p) {
    return static_cast<size_t>(static_cast<const char*>(p) - static_cast<const char*>(msbench_cpu::dynamic_shared()));
}
MSBENCH_CPU_INLINE size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }

MSBENCH_CPU_INLINE unsigned __isGlobal(const void*) { return 1; }

// ------------------------------------------------------------------ what ptx.py translates to

namespace msbench_cpu {

MSBENCH_CPU_INLINE void cp_async(size_t to, const void* from, size_t bytes, size_t given = ~size_t{0}) {
    char* shared = static_cast<char*>(dynamic_shared()) + static_cast<int>(to);
    if (given > bytes) given = bytes;
    std::memcpy(shared, from, given);
    std::memset(shared + given, 0, bytes - given);
}

/// Registers of `width` bytes each, from consecutive addresses; the whole access has to be aligned to its size.
template <size_t width, class... Registers>
MSBENCH_CPU_INLINE void ptx_load(const void* base, ptrdiff_t offset, Registers&... registers) {
    count_atomic();  // it may poll
    struct alignas(width * sizeof...(registers)) Access {
        unsigned char bytes[sizeof...(registers)][width];
    } access;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    access = *reinterpret_cast<const Access*>(static_cast<const char*>(base) + offset);
    size_t i = 0;
    ((registers = Registers{}, std::memcpy(static_cast<void*>(&registers), access.bytes[i++], width)), ...);
}
template <size_t width, class... Registers>
MSBENCH_CPU_INLINE void ptx_store(void* base, ptrdiff_t offset, const Registers&... registers) {
    struct alignas(width * sizeof...(registers)) Access {
        unsigned char bytes[sizeof...(registers)][width];
    } access;
    size_t i = 0;
    (std::memcpy(access.bytes[i++], static_cast<const void*>(&registers), width), ...);
    *reinterpret_cast<Access*>(static_cast<char*>(base) + offset) = access;
}

}  // namespace msbench_cpu

// cuda_pipeline_primitives.h: a copy is finished when it is issued, which every wait allows.
MSBENCH_CPU_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
    std::memcpy(to, from, bytes - zeros);
    std::memset(static_cast<char*>(to) + bytes - zeros, 0, zeros);
}
MSBENCH_CPU_INLINE void __pipeline_commit() {}
MSBENCH_CPU_INLINE void __pipeline_wait_prior(size_t) {}

#endif
