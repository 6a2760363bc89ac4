#include <sched.h>

#include <cstdio>

#include "scheduler_inline.hpp"

#ifdef MSBENCH_CPU_ASAN
#include <sanitizer/asan_interface.h>
#endif

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace msbench_cpu {

constinit thread_local Scheduler* scheduler = nullptr;
constinit thread_local int atomics_left = 0;

namespace {

constexpr size_t static_shared_limit = 48 * 1024;

}  // namespace

// ------------------------------------------------------------------ blocks

void Scheduler::start_block(uint64_t index) {
    const Launch& l = launch_->launch;
    blockIdx = {static_cast<unsigned>(index % l.grid.x), static_cast<unsigned>(index / l.grid.x % l.grid.y),
                static_cast<unsigned>(index / l.grid.x / l.grid.y)};
    blockDim = l.block;
    gridDim = l.grid;
    threads_ = live_ = block_size();
    one_dimensional_ = l.block.y == 1 && l.block.z == 1;
    waiting_ = 0;
    started_ = 0;
    clock_ = 0;
    ready_ = {};
    grid_waiting_ = {};
    at_grid_barrier_ = 0;
    barrier_.arrived = barrier_.generation = 0;
    barrier_.waiting = {};
    barrier_.votes[0] = {0, 1, 0};
    unsigned warps = (threads_ + 31) / 32;
    if (warps_.size() < warps) warps_.resize(warps);
    for (unsigned w = 0; w < warps; ++w) {
        unsigned lanes = std::min(32u, threads_ - w * 32);
        Warp& warp = warps_[w];
        warp.exited = lanes == 32 ? 0 : ~0u << lanes;
        warp.converging = 0;
        warp.converging_fibers = {};
        for (auto& group : warp.groups) {
            group->arrived = 0;
            group->waiting = {};
        }
    }
    shared_.start_block(l.shared_bytes);
}

void Scheduler::run_block(LaunchState& state, uint64_t index) {
    launch_ = &state;
    if (!main_.stack) describe_own_stack(main_);
    start_block(index);
    Fiber* first = idle_fiber();
    start_next_thread(first);
    current_ = first;
    switch_context(main_, *first);
    current_ = nullptr;
    if (state.stopping) {
        // Whoever still had a stack starts afresh next time.
        idle_ = {};
        unsigned colour = 0;
        for (auto& fiber : fibers_) {
#ifdef MSBENCH_CPU_ASAN
            __asan_unpoison_memory_region(fiber->stack, fiber->stack_bytes);
#endif
            fiber->prepare(&fiber_main, colour++);
            idle_.push(fiber.get());
        }
        return;
    }
    if (const char* name = shared_.damaged()) {
        char text[256];
        std::snprintf(text, sizeof text, "out-of-bounds write behind %s in shared memory, block (%u,%u,%u)", name,
                      blockIdx.x, blockIdx.y, blockIdx.z);
        state.fail({cudaErrorIllegalAddress, text});
    } else if (shared_.static_bytes() > static_shared_limit) {
        char text[160];
        std::snprintf(text, sizeof text, "uses %zu bytes of static shared memory; the limit is %zu",
                      shared_.static_bytes(), static_shared_limit);
        state.fail({cudaErrorInvalidConfiguration, text});
    }
}

// ------------------------------------------------------------------ threads

Fiber* Scheduler::idle_fiber() {
    if (!idle_.empty()) return idle_.pop();
    fibers_.push_back(std::make_unique<Fiber>());
    Fiber* fiber = fibers_.back().get();
    allocate_stack(*fiber);
    fiber->prepare(&fiber_main, static_cast<unsigned>(fibers_.size()));
    return fiber;
}

void Scheduler::fiber_main() {
    entered_context();
    Scheduler& self = *scheduler;
    Fiber* me = self.current_;
    for (;;) {
        self.leave_runtime();
        self.launch_->launch.call(self.launch_->launch.context);
        self.enter_runtime();
        self.finish_thread();
        if (self.ready_.empty() && self.start_next_thread(me)) continue;
        self.idle_.push(me);
        self.leave();  // comes back when this stack gets another thread
    }
}

inline void Scheduler::finish_thread() {
    Fiber& me = *current_;
    --live_;
    Warp& warp = warp_of(me);
    warp.exited |= 1u << (me.rank & 31);
    if (!waiting_) return;  // nobody's barrier can depend on this thread
    for (auto& group : warp.groups)
        if (group->arrived && group->arrived == (group->mask & ~warp.exited)) complete(*group);
    if (barrier_.arrived && barrier_.arrived == live_) release_barrier();
    if (at_grid_barrier_ && at_grid_barrier_ == live_) check_grid_barrier();
}

void Scheduler::yield(uintptr_t pc) {
    InRuntime guard(*this);
    atomics_left = atomics_between_yields;
    stop_if_asked(&current_->site, pc);
    if (ready_.empty() && started_ == threads_) {
        sched_yield();  // only another block can help
        return;
    }
    ready_.push(current_);
    if (started_ == threads_) return leave();
    Fiber* fiber = idle_fiber();  // who has not started yet may be the one that is waited for
    start_next_thread(fiber);
    run(fiber);
}

void Scheduler::stop(const Site* site, uintptr_t pc) {
    if (launch_->failure.set) abandon();
    char text[128] = "";
    std::snprintf(text, sizeof text, "the launch did not end within %g s", Team::instance().options.time_limit_s);
    fail({cudaErrorLaunchTimeout, text, site, pc, true});
}

bool Scheduler::stack_overflowed(uintptr_t address) const {
    auto bottom = reinterpret_cast<uintptr_t>(current_->stack);
    return address < bottom && address + 4096 >= bottom;
}

void Scheduler::fail(const Fault& fault) {
    enter_runtime();
    launch_->fail(fault);
    abandon();
}

void Scheduler::abandon() {
    Fiber* from = current_;
    current_ = nullptr;
    enter_runtime();
    switch_context(*from, main_);
    __builtin_unreachable();
}

}  // namespace msbench_cpu
