// Asking for what a kernel will read before it knows where: from memory to L2, by all of its threads.
//
// Offsets, entries and rows of X are three trips to memory in turn; what is asked for during the first makes the others trips to L2.
#pragma once

#include "msbench_sparse_rows.cuh"

namespace msbench {

// This thread's share of an array.
template <typename T>
__device__ __forceinline__ void prefetch_share(const T* array, int64_t count, int thread, int threads) {
    constexpr int kSector = 32 / sizeof(T);
    for (int64_t i = int64_t(thread) * kSector; i < count; i += int64_t(threads) * kSector)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(array + i));
}

}  // namespace msbench
