// Barriers and warp-wide operations, and how their deadlocks are told.
#include <cstdarg>
#include <cstdio>

#include "scheduler_inline.hpp"
#include "signals.hpp"

namespace msbench_cpu {

namespace {

__attribute__((format(printf, 3, 4))) void append(char* out, size_t size, const char* format, ...) {
    size_t used = std::strlen(out);
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(out + used, size - used, format, arguments);
    va_end(arguments);
}

bool same_place(const Site& a, const Site& b) {
    return a.line() == b.line() && (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

const char* name_of(Collective kind) {
    switch (kind) {
        case Collective::sync:
            return "__syncwarp";
        case Collective::shuffle:
            return "a shuffle";
        case Collective::vote:
            return "a vote";
        case Collective::match:
            return "a match";
        case Collective::reduce:
            return "a reduction";
    }
    return "";
}

}  // namespace

// ------------------------------------------------------------------ barriers

void Scheduler::barrier(const Site& site) {
    InRuntime guard(*this);
    if (barrier_.arrived == 0) {
        barrier_.site = site;
    } else if (!same_place(barrier_.site, site)) {
        char text[512] = "";
        append(text, sizeof text,
               "divergent barrier: this thread is at __syncthreads() in line %u while %u of its block wait at line %u",
               unsigned(site.line()), barrier_.arrived, unsigned(barrier_.site.line()));
        fail({cudaErrorLaunchFailure, text, &site, 0, true});
    }
    if (++barrier_.arrived == live_) return release_barrier();
    barrier_.waiting.push(current_);
    suspend(site);
}

Votes Scheduler::barrier_vote(int predicate, const Site& site) {
    enter_runtime();
    Votes& votes = barrier_.votes[barrier_.generation & 1];
    bool yes = predicate != 0;
    votes.count += yes;
    votes.all &= yes;
    votes.any |= yes;
    barrier(site);
    return votes;
}

void Scheduler::grid_sync(const Site& site) {
    InRuntime guard(*this);
    if (!launch_->launch.cooperative)
        fail({cudaErrorLaunchFailure, "grid.sync() in a kernel that was not launched by cudaLaunchCooperativeKernel",
              &site, 0, true});
    ++at_grid_barrier_;
    grid_waiting_.push(current_);
    current_->site = site;  // may be told if this thread finds a deadlock
    if (at_grid_barrier_ == live_) check_grid_barrier();
    suspend(site);
}

/// All threads of this block are at grid.sync(): waits, with the whole OS thread, for the other blocks.
void Scheduler::check_grid_barrier() {
    GridBarrier& grid = launch_->grid;
    std::unique_lock lock(grid.mutex);
    uint64_t mine = grid.generation;
    if (++grid.arrived == grid.participants && grid.participants == launch_->blocks) {
        grid.arrived = 0;
        ++grid.generation;
        grid.released.notify_all();
    } else if (grid.arrived == grid.participants) {
        lock.unlock();
        fail({cudaErrorLaunchFailure, "deadlock: grid.sync() waits for a block that has ended",
              &grid_waiting_.head->site, 0, true});
    } else {
        grid.released.wait(lock, [&] { return grid.generation != mine || launch_->stopping; });
    }
    lock.unlock();
    at_grid_barrier_ = 0;
    ready_.take_all(grid_waiting_);
}

// ------------------------------------------------------------------ warps

Exchange Scheduler::exchange(uint32_t mask, const void* value, unsigned size, Collective kind, const Site& site) {
    InRuntime guard(*this);
    Fiber& me = *current_;
    Warp& warp = warp_of(me);
    unsigned my_lane = me.rank & 31;
    if (!(mask >> my_lane & 1)) {
        char text[160] = "";
        append(text, sizeof text, "bad mask: lane %u calls %s with mask 0x%08x, which does not name it", my_lane,
               name_of(kind), mask);
        fail({cudaErrorLaunchFailure, text, &site, 0, true});
    }
    WarpGroup* group = nullptr;
    for (auto& g : warp.groups)
        if (g->mask == mask) group = g.get();
    if (!group) {
        warp.groups.push_back(std::make_unique<WarpGroup>());
        group = warp.groups.back().get();
        group->mask = mask;
    }
    unsigned table = group->generation & 1;
    if (group->arrived == 0) {
        group->kind = kind;
        group->site = site;
        std::memset(group->slots[table], 0xFF, sizeof group->slots[table]);
    } else if (group->kind != kind) {
        char text[256] = "";
        append(text, sizeof text,
               "divergent warp: lane %u is at %s in line %u while others of its mask wait at %s in line %u", my_lane,
               name_of(kind), unsigned(site.line()), name_of(group->kind), unsigned(group->site.line()));
        fail({cudaErrorLaunchFailure, text, &site, 0, true});
    }
    std::memcpy(group->slots[table][my_lane].bytes, value, size);
    group->arrived |= 1u << my_lane;
    if (group->arrived == (mask & ~warp.exited)) {
        complete(*group);
    } else {
        group->waiting.push(&me);
        suspend(site);
    }
    return {group->slots[table], group->present[table]};
}

uint32_t Scheduler::active_mask(const Site& site) {
    InRuntime guard(*this);
    Fiber& me = *current_;
    Warp& warp = warp_of(me);
    warp.converging |= 1u << (me.rank & 31);
    warp.converging_fibers.push(&me);
    suspend(site);
    return me.answer;
}

/// Nothing else can run, so the lanes that wait in active_mask are the ones that are together.
bool Scheduler::resolve_active_masks() {
    bool any = false;
    for (unsigned w = 0; w < (threads_ + 31) / 32; ++w) {
        Warp& warp = warps_[w];
        if (!warp.converging) continue;
        for (Fiber* f = warp.converging_fibers.head; f; f = f->next) f->answer = warp.converging;
        warp.converging = 0;
        ready_.take_all(warp.converging_fibers);
        any = true;
    }
    return any;
}

void Scheduler::deadlock() {
    char text[900] = "deadlock:";
    const Site* site = nullptr;
    if (barrier_.arrived) {
        site = &barrier_.site;
        append(text, sizeof text, " %u of %u threads wait at __syncthreads() in line %u;", barrier_.arrived, live_,
               unsigned(barrier_.site.line()));
    }
    if (at_grid_barrier_) {
        if (!site) site = &grid_waiting_.head->site;
        append(text, sizeof text, " %u of %u threads wait at grid.sync() in line %u;", at_grid_barrier_, live_,
               unsigned(grid_waiting_.head->site.line()));
    }
    int shown = 0;
    for (unsigned w = 0; w < (threads_ + 31) / 32; ++w)
        for (auto& group : warps_[w].groups) {
            if (!group->arrived || ++shown > 3) continue;
            if (!site) site = &group->site;
            append(text, sizeof text, " warp %u waits at %s in line %u for lanes 0x%08x of mask 0x%08x;", w,
                   name_of(group->kind), unsigned(group->site.line()),
                   group->mask & ~group->arrived & ~warps_[w].exited, group->mask);
        }
    text[std::strlen(text) - 1] = '\0';
    append(text, sizeof text, ", block (%u,%u,%u)", blockIdx.x, blockIdx.y, blockIdx.z);
    fail({cudaErrorLaunchFailure, text, site});
}

// ------------------------------------------------------------------ what kernels call

void yield() {
    if (scheduler && scheduler->running_kernel()) scheduler->yield(code_offset(__builtin_return_address(0)));
}
long long ticks() { return scheduler && scheduler->running_kernel() ? scheduler->ticks() : 0; }
void block_barrier(const Site& site) { scheduler->barrier(site); }
Votes block_barrier_vote(int predicate, const Site& site) { return scheduler->barrier_vote(predicate, site); }
void grid_barrier(const Site& site) { scheduler->grid_sync(site); }
bool cooperative() { return Team::instance().state().launch.cooperative; }
uint32_t active_mask(const Site& site) { return scheduler->active_mask(site); }
void* dynamic_shared() { return scheduler->shared_memory().dynamic(); }
size_t dynamic_shared_size() { return scheduler->shared_memory().dynamic_size(); }

Exchange warp_exchange(uint32_t mask, const void* value, unsigned size, Collective kind, const Site& site) {
    return scheduler->exchange(mask, value, size, kind, site);
}

void* shared_variable(unsigned slot, size_t size, size_t align, const char* name) {
    InRuntime guard(*scheduler);
    return scheduler->shared_memory().variable(slot, size, align, name);
}

unsigned new_shared_slot() {
    static std::atomic<unsigned> next{0};
    return next++;
}

void fail(cudaError_t error, const char* message, const Site& site) {
    scheduler->fail({error, message, &site, 0, true});
}

}  // namespace msbench_cpu
