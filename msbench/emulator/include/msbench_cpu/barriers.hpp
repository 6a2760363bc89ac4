// __syncthreads and its voting forms, fences, and the other ways for a thread to wait.
#ifndef MSBENCH_CPU_BARRIERS_HPP
#define MSBENCH_CPU_BARRIERS_HPP

#include "runtime.hpp"

using msbench_cpu_site = msbench_cpu::Site;

MSBENCH_CPU_INLINE void __syncthreads(msbench_cpu_site at = msbench_cpu_site::current()) {
    msbench_cpu::block_barrier(at);
}
MSBENCH_CPU_INLINE int __syncthreads_count(int predicate, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::block_barrier_vote(predicate, at).count;
}
MSBENCH_CPU_INLINE int __syncthreads_and(int predicate, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::block_barrier_vote(predicate, at).all;
}
MSBENCH_CPU_INLINE int __syncthreads_or(int predicate, msbench_cpu_site at = msbench_cpu_site::current()) {
    return msbench_cpu::block_barrier_vote(predicate, at).any;
}

MSBENCH_CPU_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MSBENCH_CPU_INLINE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
MSBENCH_CPU_INLINE void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

MSBENCH_CPU_INLINE void __nanosleep(unsigned) { msbench_cpu::yield(); }
[[noreturn]] MSBENCH_CPU_INLINE void __trap(msbench_cpu_site at = msbench_cpu_site::current()) {
    msbench_cpu::fail(cudaErrorLaunchFailure, "__trap()", at);
}
MSBENCH_CPU_INLINE void __brkpt() {}

/// No time, but a count that each call of the block advances: what a kernel does depends on nothing but its arguments. A
/// thread that polls the clock waits for something.
MSBENCH_CPU_INLINE long long clock64() {
    msbench_cpu::count_atomic();
    return msbench_cpu::ticks();
}
MSBENCH_CPU_INLINE unsigned long long globaltimer() { return static_cast<unsigned long long>(clock64()); }

// Programmatic dependent launch: kernels run one after the other here, so there is nothing to wait for.
MSBENCH_CPU_INLINE void cudaGridDependencySynchronize() {}
MSBENCH_CPU_INLINE void cudaTriggerProgrammaticLaunchCompletion() {}

#endif
