// One OS thread's part: it runs one block at a time, the block's threads as fibers.
//
// A CUDA thread costs one function call until it waits for others; only then does it keep a stack of its own. Threads
// are never moved between OS threads, so thread_local variables stay valid.
#pragma once

#include <atomic>
#include <csignal>
#include <memory>
#include <vector>

#include "../include/msbench_cpu/runtime.hpp"
#include "context.hpp"
#include "failure.hpp"
#include "shared_memory.hpp"

namespace msbench_cpu {

/// A thread of the block that has a stack: it runs, is ready, or waits.
struct Fiber : Context {
    Fiber* next = nullptr;
    uint3 thread{};
    unsigned rank = 0;
    uint32_t answer = 0;  // what active_mask found out for this thread
    Site site;            // where it waits
};

/// First in, first out; intrusive, so that waking all waiters of a barrier is one splice.
struct FiberQueue {
    Fiber* head = nullptr;
    Fiber* tail = nullptr;

    bool empty() const { return !head; }
    void push(Fiber* fiber) {
        fiber->next = nullptr;
        (tail ? tail->next : head) = fiber;
        tail = fiber;
    }
    Fiber* pop() {
        Fiber* fiber = head;
        head = fiber->next;
        if (!head) tail = nullptr;
        return fiber;
    }
    void take_all(FiberQueue& other) {
        if (other.empty()) return;
        (tail ? tail->next : head) = other.head;
        tail = other.tail;
        other = {};
    }
};

/// The lanes of one warp that named the same mask. Two tables, because a fast lane may deposit for the next collective
/// while a slow one still reads this one's.
struct WarpGroup {
    uint32_t mask = 0;
    uint32_t arrived = 0;
    unsigned generation = 0;
    Collective kind = Collective::sync;
    Site site;
    FiberQueue waiting;
    uint32_t present[2] = {0, 0};
    Slot slots[2][32];
};

struct Warp {
    uint32_t exited = 0;
    uint32_t converging = 0;  // lanes that wait in active_mask
    FiberQueue converging_fibers;
    std::vector<std::unique_ptr<WarpGroup>> groups;
};

/// A barrier of the whole block; `votes` alternates by generation, as the tables of a WarpGroup do.
struct BlockBarrier {
    unsigned arrived = 0;
    unsigned generation = 0;
    Site site;
    FiberQueue waiting;
    Votes votes[2];
};

struct LaunchState;  // what all workers of one launch share: team.hpp

class Scheduler {
public:
    /// Runs block number `index` to its end. Returns early where the launch failed.
    void run_block(LaunchState& state, uint64_t index);

    // What runtime.hpp promises, for the current thread.

    /// `pc` is where it was: told if the launch's time is up. Also called by a timer in a thread that never waits.
    void yield(uintptr_t pc);
    void barrier(const Site& site);
    Votes barrier_vote(int predicate, const Site& site);
    void grid_sync(const Site& site);
    Exchange exchange(uint32_t mask, const void* value, unsigned size, Collective kind, const Site& site);
    uint32_t active_mask(const Site& site);
    SharedMemory& shared_memory() { return shared_; }

    /// Drops the block where it stands and returns to run_block's caller; the failure is already recorded.
    [[noreturn]] void abandon();
    /// Ends the launch for a reason that this thread found.
    [[noreturn]] void fail(const Fault& fault);
    /// Whether an address lies in the guard page of the running thread's stack.
    bool stack_overflowed(uintptr_t address) const;

    /// The running block's clock.
    long long ticks() { return clock_ += ticks_a_call; }

    bool running_kernel() const { return current_ != nullptr; }
    /// Counts threads started and resumed: where it stands still, one thread computes for long, or spins.
    uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

    // Inside the runtime a timer must not take the processor away. The fences keep the compiler from moving the
    // runtime's own reads and writes out of the stretch.
    void enter_runtime() {
        in_runtime_ = 1;
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    void leave_runtime() {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        in_runtime_ = 0;
    }
    bool in_runtime() const { return in_runtime_ != 0; }

private:
    static void fiber_main();
    void start_block(uint64_t index);
    void finish_thread();
    Fiber* idle_fiber();
    bool start_next_thread(Fiber* fiber);
    void run(Fiber* fiber);
    void note_progress() { progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
    void resume(Fiber* fiber);
    void leave();
    void suspend(const Site& site);
    void release_barrier();
    void complete(WarpGroup& group);
    bool resolve_active_masks();
    void check_grid_barrier();
    void stop_if_asked(const Site* site, uintptr_t pc);
    [[noreturn]] void stop(const Site* site, uintptr_t pc);
    [[noreturn]] void deadlock();
    Warp& warp_of(const Fiber& fiber) { return warps_[fiber.rank / 32]; }

    LaunchState* launch_ = nullptr;
    Context main_;
    Fiber* current_ = nullptr;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    FiberQueue idle_, ready_;
    std::atomic<uint64_t> progress_{0};
    volatile sig_atomic_t in_runtime_ = 1;

    static constexpr long long ticks_a_call = 64;

    unsigned threads_ = 0, live_ = 0, started_ = 0;
    long long clock_ = 0;
    unsigned waiting_ = 0;  // threads that have to be woken by others
    bool one_dimensional_ = true;
    BlockBarrier barrier_;
    std::vector<Warp> warps_;
    SharedMemory shared_;
    unsigned at_grid_barrier_ = 0;
    FiberQueue grid_waiting_;
};

/// The calling OS thread's scheduler; null in a thread that runs no blocks.
extern constinit thread_local Scheduler* scheduler MSBENCH_CPU_TLS;

/// Marks a stretch of runtime code (see Scheduler::in_runtime).
struct InRuntime {
    Scheduler& self;
    explicit InRuntime(Scheduler& s) : self(s) { self.enter_runtime(); }
    ~InRuntime() { self.leave_runtime(); }
};

}  // namespace msbench_cpu
