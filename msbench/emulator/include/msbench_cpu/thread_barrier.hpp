// cuda::barrier of a block. Copies that it waits for are made when they are asked for.
#ifndef MSBENCH_CPU_THREAD_BARRIER_HPP
#define MSBENCH_CPU_THREAD_BARRIER_HPP

#include <cstddef>
#include <cstring>

#include "copies.hpp"

namespace cuda {

template <thread_scope scope>
class barrier {
    static_assert(scope == thread_scope_block, "msbench_unsupported: cuda::barrier of this scope");
    ptrdiff_t expected_, missing_;
    unsigned phase_;

public:
    using arrival_token = unsigned;

    barrier() = default;
    barrier(const barrier&) = delete;
    friend void init(barrier* one, ptrdiff_t expected) {
        one->expected_ = one->missing_ = expected;
        one->phase_ = 0;
    }

    [[nodiscard]] arrival_token arrive(ptrdiff_t update = 1) {
        const arrival_token token = __atomic_load_n(&phase_, __ATOMIC_ACQUIRE);
        if (__atomic_sub_fetch(&missing_, update, __ATOMIC_ACQ_REL) == 0) {
            __atomic_store_n(&missing_, __atomic_load_n(&expected_, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
            __atomic_add_fetch(&phase_, 1u, __ATOMIC_ACQ_REL);
        }
        return token;
    }
    void wait(arrival_token token) const {
        while (__atomic_load_n(&phase_, __ATOMIC_ACQUIRE) == token) msbench_cpu::yield();
    }
    void wait_parity(bool parity) const {
        while ((__atomic_load_n(&phase_, __ATOMIC_ACQUIRE) & 1u) == unsigned(parity)) msbench_cpu::yield();
    }
    void arrive_and_wait() { wait(arrive()); }
    void arrive_and_drop() {
        __atomic_sub_fetch(&expected_, ptrdiff_t(1), __ATOMIC_ACQ_REL);
        (void)arrive();
    }
};

template <class Size, thread_scope scope>
void memcpy_async(void* to, const void* from, Size bytes, barrier<scope>&) {
    std::memcpy(to, from, bytes);
}
template <OfThreads Group, class Size, thread_scope scope>
void memcpy_async(const Group& group, void* to, const void* from, Size bytes, barrier<scope>&) {
    if (group.thread_rank() == 0) std::memcpy(to, from, bytes);
}

namespace device {

template <class Size, thread_scope scope>
void memcpy_async_tx(void* to, const void* from, Size bytes, barrier<scope>&) {
    std::memcpy(to, from, bytes);
}
template <thread_scope scope>
[[nodiscard]] typename barrier<scope>::arrival_token barrier_arrive_tx(barrier<scope>& one, ptrdiff_t update, ptrdiff_t) {
    return one.arrive(update);
}

}  // namespace device

}  // namespace cuda

#endif
