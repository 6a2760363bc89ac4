// What the asynchronous copies of cuda::pipeline and cuda::barrier have in common.
#ifndef MSBENCH_CPU_COPIES_HPP
#define MSBENCH_CPU_COPIES_HPP

#include "groups.hpp"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

template <size_t alignment>
struct aligned_size_t {
    static constexpr size_t align = alignment;
    size_t value;
    constexpr explicit aligned_size_t(size_t bytes) : value(bytes) {}
    constexpr operator size_t() const { return value; }
};

template <class Group>
concept OfThreads = requires(const Group& group) { group.thread_rank(); };

}  // namespace cuda

#endif
