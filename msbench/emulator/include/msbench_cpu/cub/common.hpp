// What the block- and warp-wide parts of CUB share. Results and requirements are CUB's (version 3, as in CUDA 13); the
// algorithms are the simplest that give them: threads deposit, one of them computes, threads pick up.
#ifndef MSBENCH_CPU_CUB_COMMON_HPP
#define MSBENCH_CPU_CUB_COMMON_HPP

#include <functional>
#include <iterator>

#include "../all.hpp"

#define CUB_PTX_WARP_THREADS 32

namespace msbench_cpu {

/// A value that is not defined, as the results of threads that CUB gives none: 0xFF bytes, NaN for every float type.
template <class T>
T undefined_value() {
    T value;
    std::memset(static_cast<void*>(&value), 0xFF, sizeof value);
    return value;
}

/// One T for each thread, uninitialised, as shared memory is.
template <class T, size_t n>
struct Storage {
    alignas(T) unsigned char bytes[n * sizeof(T)];
    T* values() { return reinterpret_cast<T*>(bytes); }
};

/// A collective's storage, where the caller gave none.
template <class TempStorage>
TempStorage& private_storage() {
    return shared<TempStorage>("the storage of a CUB collective");
}

template <class Iterator>
using value_of = typename std::iterator_traits<Iterator>::value_type;

}  // namespace msbench_cpu

namespace cub {

template <class T, class Op, int items>
T ThreadReduceItems(const T (&input)[items], Op op) {
    T result = input[0];
    for (int i = 1; i < items; ++i) result = op(result, input[i]);
    return result;
}

}  // namespace cub

#endif
