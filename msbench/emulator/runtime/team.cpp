#include "team.hpp"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <random>

#include "signals.hpp"

namespace msbench_cpu {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A thread that has not waited for this long may be spinning on another one's progress.
constexpr auto first_tick = milliseconds(10);
constexpr auto shortest_tick = std::chrono::microseconds(200);

// Where no block ended for this long although others could start, they may have to run together.
constexpr auto patience = milliseconds(200);

// What an H200 could hold: blocks a multiprocessor and threads a multiprocessor, times 132.
constexpr unsigned multiprocessors = 132, blocks_each = 32, threads_each = 2048;
constexpr unsigned most_workers = 1024;

std::mutex allowed_mutex;
std::map<const void*, size_t>& allowed() {
    static auto* map = new std::map<const void*, size_t>;
    return *map;
}

uint64_t product(const dim3& d) { return uint64_t{d.x} * d.y * d.z; }

uint64_t resident_blocks(const Launch& launch) {
    return uint64_t{multiprocessors} * std::min<uint64_t>(blocks_each, threads_each / product(launch.block));
}

/// The error that CUDA's own check of a launch gives, or cudaSuccess.
cudaError_t validate(const Launch& l) {
    const dim3 &g = l.grid, &b = l.block;
    if (!product(g) || !product(b) || g.x > 2147483647u || g.y > 65535 || g.z > 65535)
        return cudaErrorInvalidConfiguration;
    if (b.x > 1024 || b.y > 1024 || b.z > 64 || product(b) > 1024) return cudaErrorInvalidConfiguration;
    if (l.cooperative && product(g) > std::min<uint64_t>(resident_blocks(l), most_workers))
        return cudaErrorCooperativeLaunchTooLarge;
    return cudaSuccess;
}

void refuse(LaunchState& state, cudaError_t error, size_t allowed_bytes) {
    const Launch& l = state.launch;
    char text[256];
    if (error == cudaErrorInvalidValue)
        std::snprintf(
            text, sizeof text,
            "%zu bytes of dynamic shared memory asked for, %zu allowed (cudaFuncSetAttribute raises it to 232448)",
            l.shared_bytes, allowed_bytes);
    else
        std::snprintf(text, sizeof text, "%s: grid (%u,%u,%u), block (%u,%u,%u)", cudaGetErrorString(error), l.grid.x,
                      l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z);
    state.fail({error, text});
}

}  // namespace

size_t allowed_shared_bytes(const void* kernel) {
    std::lock_guard lock(allowed_mutex);
    size_t most = 48 * 1024;
    for (auto& [known, bytes] : allowed())
        if (!kernel || known == kernel) most = std::max(most, bytes);
    return most;
}

void allow_shared_bytes(const void* kernel, size_t bytes) {
    std::lock_guard lock(allowed_mutex);
    allowed()[kernel] = bytes;
}

Team& Team::instance() {
    static Team* team = new Team;
    return *team;
}

cudaError_t run(const Launch& launch) { return Team::instance().run(launch); }

void Team::prepare(const Launch& launch) {
    LaunchState& s = state_;
    s.launch = launch;
    s.blocks = product(launch.grid);
    s.next_block = 0;
    s.finished_blocks = 0;
    s.stopping = false;
    {
        std::lock_guard lock(mutex_);
        ++generation_;
        wanted_ = busy_ = 0;
    }
    s.order = options.order;
    s.grid.participants = s.blocks;
    s.grid.arrived = 0;
    s.failure.clear();
    if (s.order == Order::shuffled) {
        s.permutation.resize(product(launch.block));
        for (unsigned i = 0; i < s.permutation.size(); ++i) s.permutation[i] = i;
        std::mt19937_64 generator(options.seed);
        // Not std::shuffle: its result differs between standard libraries.
        for (size_t i = s.permutation.size(); i > 1; --i)
            std::swap(s.permutation[i - 1], s.permutation[generator() % i]);
    }
}

cudaError_t Team::run(const Launch& launch) {
    if (scheduler)
        scheduler->fail({cudaErrorNotSupported, "a kernel launched by a kernel (dynamic parallelism) is not supported",
                         nullptr, 0, true});
    std::lock_guard one(one_launch_);
    // As on a GPU, a launch that failed while it ran stops the ones behind it; one that was refused does not.
    if (unread_.set && unread_.error() >= cudaErrorIllegalAddress) return remember(unread_.error());
    static const bool once = (install_handlers(), true);
    (void)once;
    prepare(launch);
    size_t allowed_bytes = allowed_shared_bytes(launch.function);
    if (launch.shared_bytes > allowed_bytes) {
        refuse(state_, cudaErrorInvalidValue, allowed_bytes);
    } else if (cudaError_t error = validate(launch)) {
        refuse(state_, error, allowed_bytes);
    } else {
        uint64_t workers = launch.cooperative ? state_.blocks : std::min<uint64_t>(state_.blocks, options.workers);
        employ(static_cast<unsigned>(std::max<uint64_t>(workers, 1)));
        watch();
        if (state_.finished_blocks < state_.blocks)
            state_.fail({cudaErrorLaunchTimeout, "the launch did not end within its time limit"});
    }
    if (!state_.failure.set) return cudaSuccess;
    if (!unread_.set) unread_.copy_from(state_.failure);
    return remember(state_.failure.error());
}

void Team::take_failure(char* json, size_t size) {
    std::lock_guard one(one_launch_);
    *json = '\0';
    if (unread_.set) unread_.to_json(json, size);
    unread_.clear();
}

/// Has so many more workers take part in the launch.
void Team::employ(unsigned count) {
    std::lock_guard lock(mutex_);
    wanted_ += count;
    busy_ += count;
    while (workers_.size() < wanted_) {
        unsigned index = static_cast<unsigned>(workers_.size());
        workers_.push_back(std::make_unique<Worker>());
        Worker& worker = *workers_.back();
        std::thread([this, &worker, index] { work(worker, index); }).detach();
    }
    work_.notify_all();
}

void Team::work(Worker& worker, unsigned index) {
    install_signal_stack();
    scheduler = &worker.scheduler;
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    worker.thread = pthread_self();
    for (;;) {
        work_.wait(lock, [&] { return generation_ != seen && index < wanted_; });
        seen = generation_;
        lock.unlock();
        LaunchState& s = state_;
        worker.running = true;
        for (uint64_t b; !s.stopping && (b = s.next_block++) < s.blocks;) {
            worker.scheduler.run_block(s, b);
            ++s.finished_blocks;
            if (s.launch.cooperative) {
                std::lock_guard grid(s.grid.mutex);
                --s.grid.participants;
                if (s.grid.arrived && s.grid.arrived == s.grid.participants)
                    s.fail({cudaErrorLaunchFailure, "deadlock: grid.sync() waits for a block that has ended"});
            }
        }
        worker.running = false;
        if (s.stopping) {
            std::lock_guard grid(s.grid.mutex);
            s.grid.released.notify_all();
        }
        lock.lock();
        if (--busy_ == 0) done_.notify_one();
    }
}

/// Sends the signal to every worker whose thread computed all through the last tick (or to all that run).
bool Team::interrupt_workers(bool all) {
    bool any = false;
    for (unsigned i = 0; i < wanted_; ++i) {
        Worker& w = *workers_[i];
        if (!w.running) continue;
        uint64_t progress = w.scheduler.progress();
        if (all || progress == std::exchange(w.seen_progress, progress)) {
            pthread_kill(w.thread, interrupt_signal);
            any = true;
        }
    }
    return any;
}

/// The launching thread waits, and looks after the workers.
void Team::watch() {
    LaunchState& s = state_;
    auto started = Clock::now();
    auto last_progress = started;
    uint64_t last_finished = 0;
    std::chrono::nanoseconds tick = first_tick;
    std::unique_lock lock(mutex_);
    while (!done_.wait_for(lock, tick, [&] { return busy_ == 0; })) {
        auto now = Clock::now();
        if (uint64_t finished = s.finished_blocks; finished != last_finished) {
            last_finished = finished;
            last_progress = now;
        }
        if (options.time_limit_s > 0 && std::chrono::duration<double>(now - started).count() > options.time_limit_s)
            s.stopping = true;
        bool stop = s.stopping;
        bool stuck = interrupt_workers(stop);
        tick = stuck && !stop ? std::max<std::chrono::nanoseconds>(tick / 2, shortest_tick) : first_tick;
        if (stop) {
            std::lock_guard grid(s.grid.mutex);
            s.grid.released.notify_all();
        } else if (now - last_progress > patience) {
            last_progress = now;
            lock.unlock();
            employ(helpers());
            lock.lock();
        }
    }
}

/// How many more blocks a GPU would run now: as many as run already, while there are blocks to start and room for them.
unsigned Team::helpers() const {
    uint64_t next = state_.next_block;
    uint64_t waiting = next < state_.blocks ? state_.blocks - next : 0;
    uint64_t room = std::min<uint64_t>(resident_blocks(state_.launch), most_workers);
    return static_cast<unsigned>(std::min<uint64_t>({waiting, wanted_, room > wanted_ ? room - wanted_ : 0}));
}

}  // namespace msbench_cpu
