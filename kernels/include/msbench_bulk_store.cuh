// Bulk copies out of shared memory, which run by themselves. sm_90a. Addresses and sizes are multiples of 16 bytes.
//
//     every thread that wrote `shared`: fence_shared_writes(); a barrier among them; one thread: store_bulk(...);
//     that thread, before the place is written again: wait_for_bulk_reads(), and a barrier; before it ends: wait_for_bulk_stores()
#pragma once

#include "msbench_mma.cuh"  // shared_address

namespace msbench {

// Each call is a group of its own.
__device__ __forceinline__ void store_bulk(void* global, const void* shared, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
}

// Until all that this thread stored has been read from shared memory.
__device__ __forceinline__ void wait_for_bulk_reads() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

// Until it has arrived.
__device__ __forceinline__ void wait_for_bulk_stores() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace msbench
