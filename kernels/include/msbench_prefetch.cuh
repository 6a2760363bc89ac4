// Asking for what a kernel will read before it knows where: from memory to L2, by all of its threads.
//
// Offsets, entries and what they are multiplied by are three trips to memory in turn; what is asked for during the first makes the others trips
// to L2.
#pragma once

#include "msbench.cuh"

namespace msbench {

// A sector of an array for each thread, as far as they go.
template <typename T>
__device__ __forceinline__ void prefetch_sector(const T* array, int64_t count, int thread) {
    const int64_t at = int64_t(thread) * (32 / sizeof(T));
    if (at < count) asm volatile("prefetch.global.L2 [%0];" ::"l"(array + at));
}

}  // namespace msbench
