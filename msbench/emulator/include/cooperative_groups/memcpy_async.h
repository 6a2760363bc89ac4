// Copies are made when they are asked for, by one thread; the others see them after a wait.
#ifndef MSBENCH_CPU_MEMCPY_ASYNC_H
#define MSBENCH_CPU_MEMCPY_ASYNC_H

#include <algorithm>
#include <cstring>

#include "msbench_cpu/groups.hpp"

namespace cooperative_groups {

template <class Group, class Size>
void memcpy_async(const Group& group, void* to, const void* from, Size bytes) {
    if (group.thread_rank() == 0) std::memcpy(to, from, bytes);
}
/// As many elements as both sides have.
template <class Group, class T, class There, class Here>
void memcpy_async(const Group& group, T* to, There most, const T* from, Here count) {
    if (group.thread_rank() == 0) std::memcpy(to, from, std::min<size_t>(most, count) * sizeof(T));
}
template <class Group>
void wait(const Group& group, detail::Site at = detail::Site::current()) {
    group.sync(at);
}
template <unsigned prior, class Group>
void wait_prior(const Group& group, detail::Site at = detail::Site::current()) {
    group.sync(at);
}

}  // namespace cooperative_groups

#endif
