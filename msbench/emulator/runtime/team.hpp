// The OS threads that run blocks, and one launch on them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "failure.hpp"
#include "scheduler.hpp"

namespace msbench_cpu {

/// In which order the threads of a block start: a missing barrier shows in at least one of them.
enum class Order : int { forward = 0, reverse = 1, shuffled = 2 };

struct Options {
    Order order = Order::forward;
    uint64_t seed = 0;
    unsigned workers = 1;
    double time_limit_s = 0;  // a launch; 0 is none
};

/// grid.sync(): the blocks that arrived, of those that have not ended.
struct GridBarrier {
    std::mutex mutex;
    std::condition_variable released;
    uint64_t participants = 0;
    uint64_t arrived = 0;
    uint64_t generation = 0;
};

/// What the workers of one launch share.
struct LaunchState {
    Launch launch{};
    uint64_t blocks = 0;
    std::atomic<uint64_t> next_block{0};
    std::atomic<uint64_t> finished_blocks{0};
    std::atomic<bool> stopping{false};  // it has failed, or its time is up
    std::vector<unsigned> permutation;  // thread ranks, for Order::shuffled
    Order order = Order::forward;
    GridBarrier grid;
    Failure failure;

    void fail(const Fault& fault) {
        failure.record(launch.kernel, fault);
        stopping = true;
    }

    unsigned rank_of(unsigned nth, unsigned threads) const {
        switch (order) {
            case Order::forward:
                return nth;
            case Order::reverse:
                return threads - 1 - nth;
            case Order::shuffled:
                return permutation[nth];
        }
        return nth;
    }
};

/// The pool. Blocks start in the order of their index, so a block may wait for an earlier one. Where no block ends for
/// a while, further OS threads start further blocks: on a GPU they would be resident together.
class Team {
public:
    Options options;

    /// The process's own; never destroyed, because its threads live to the end of the process.
    static Team& instance();

    cudaError_t run(const Launch& launch);
    LaunchState& state() { return state_; }

    /// The first failure since the last call as JSON, or an empty string; forgets it.
    void take_failure(char* json, size_t size);

private:
    struct Worker {
        Scheduler scheduler;
        std::atomic<bool> running{false};
        pthread_t thread{};
        uint64_t seen_progress = 0;
    };

    void prepare(const Launch& launch);
    void employ(unsigned count);
    void work(Worker& worker, unsigned index);
    void watch();
    bool interrupt_workers(bool all);
    unsigned helpers() const;

    std::mutex one_launch_;
    std::mutex mutex_;
    std::condition_variable work_, done_;
    std::vector<std::unique_ptr<Worker>> workers_;
    uint64_t generation_ = 0;
    unsigned wanted_ = 0;
    unsigned busy_ = 0;
    LaunchState state_;
    Failure unread_;
};

}  // namespace msbench_cpu
