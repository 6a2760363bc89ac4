// The scheduler's hot path, inline in both of its source files: a switch between threads costs about as much as a call.
#pragma once

#include "scheduler.hpp"
#include "team.hpp"

namespace msbench_cpu {

/// How many atomics a thread may run before it yields: enough that no ordinary kernel notices.
constexpr int atomics_between_yields = 256;

inline bool Scheduler::start_next_thread(Fiber* fiber) {
    if (started_ == threads_) return false;
    unsigned rank = launch_->rank_of(started_++, threads_);
    unsigned x = rank, y = 0, z = 0;
    if (!one_dimensional_) {
        x = rank % blockDim.x;
        y = rank / blockDim.x % blockDim.y;
        z = rank / blockDim.x / blockDim.y;
    }
    fiber->rank = rank;
    fiber->site = Site();
    // Component by component: to copy what was just stored in parts, the processor would have to wait for the stores.
    fiber->thread.x = threadIdx.x = x;
    fiber->thread.y = threadIdx.y = y;
    fiber->thread.z = threadIdx.z = z;
    atomics_left = atomics_between_yields;
    note_progress();
    return true;
}

/// Another block failed, or the launch's time is up.
inline void Scheduler::stop_if_asked(const Site* site, uintptr_t pc) {
    if (launch_->stopping.load(std::memory_order_relaxed)) [[unlikely]]
        stop(site, pc);
}

/// Continues with another stack; threadIdx is its thread's already.
inline void Scheduler::run(Fiber* fiber) {
    note_progress();
    atomics_left = atomics_between_yields;
    switch_context(*std::exchange(current_, fiber), *fiber);
}

/// Continues a thread that waited; the current one is queued somewhere already, perhaps as the next.
inline void Scheduler::resume(Fiber* fiber) {
    if (fiber == current_) return;
    threadIdx = fiber->thread;
    run(fiber);
}

/// The current thread can't go on: runs whatever can.
inline void Scheduler::leave() {
    for (;;) {
        stop_if_asked(&current_->site, 0);
        if (!ready_.empty()) return resume(ready_.pop());
        if (started_ < threads_) {
            Fiber* fiber = idle_fiber();
            start_next_thread(fiber);
            return run(fiber);
        }
        if (live_ == 0) {
            Fiber* from = current_;
            current_ = nullptr;
            return switch_context(*from, main_);
        }
        if (!resolve_active_masks()) deadlock();
    }
}

inline void Scheduler::suspend(const Site& site) {
    current_->site = site;
    ++waiting_;
    leave();
    --waiting_;
}

inline void Scheduler::release_barrier() {
    barrier_.arrived = 0;
    ++barrier_.generation;
    barrier_.votes[barrier_.generation & 1] = {0, 1, 0};
    ready_.take_all(barrier_.waiting);
}

inline void Scheduler::complete(WarpGroup& group) {
    group.present[group.generation & 1] = group.arrived;
    ++group.generation;
    group.arrived = 0;
    ready_.take_all(group.waiting);
}

}  // namespace msbench_cpu
