// cuda::pipeline. Copies are made when they are waited for: who reads too early reads what was there before.
#ifndef MSBENCH_CPU_PIPELINE_HPP
#define MSBENCH_CPU_PIPELINE_HPP

#include <cstring>
#include <deque>
#include <vector>

#include "copies.hpp"

namespace cuda {

template <thread_scope scope, size_t stages>
struct pipeline_shared_state {
    static_assert(scope == thread_scope_block, "msbench_unsupported: cuda::pipeline of this scope");
};

/// Of a thread, or of a block whose threads all produce and consume: one waits for the others where they hand over a stage.
template <thread_scope scope>
class pipeline {
    using Site = msbench_cpu::Site;
    struct Copy {
        void* to;
        const void* from;
        size_t bytes;
    };
    std::deque<std::vector<Copy>> stages_{1};  // the last one is not committed yet
    size_t most_ = 0, acquired_ = 0;

    void finish() {
        if (stages_.size() < 2) return;
        for (const Copy& copy : stages_.front()) std::memcpy(copy.to, copy.from, copy.bytes);
        stages_.pop_front();
    }

public:
    explicit pipeline(size_t most = 0) : most_(most) {}
    pipeline(const pipeline&) = delete;
    pipeline(pipeline&&) = default;
    ~pipeline() { wait_prior(0); }

    void producer_acquire(Site at = Site::current()) {
        if (scope == thread_scope_block && acquired_++ >= most_) msbench_cpu::block_barrier(at);
    }
    void producer_commit() { stages_.emplace_back(); }
    void consumer_wait(Site at = Site::current()) {
        finish();
        if (scope == thread_scope_block) msbench_cpu::block_barrier(at);
    }
    void consumer_release() {}
    bool quit() { return true; }

    void msbench_copy(void* to, const void* from, size_t bytes) { stages_.back().push_back({to, from, bytes}); }
    void wait_prior(size_t left) {
        while (stages_.size() > left + 1) finish();
    }
};

inline pipeline<thread_scope_thread> make_pipeline() { return pipeline<thread_scope_thread>(); }
template <size_t stages>
pipeline<thread_scope_block> make_pipeline(const cooperative_groups::thread_block&,
                                           pipeline_shared_state<thread_scope_block, stages>*) {
    return pipeline<thread_scope_block>(stages);
}
template <class Group, size_t stages, class... Roles>
pipeline<thread_scope_block> make_pipeline(const Group&, pipeline_shared_state<thread_scope_block, stages>*, Roles...) {
    static_assert(sizeof(Group) == 0, "msbench_unsupported: cuda::pipeline of a part of a block, or with roles");
    return pipeline<thread_scope_block>(stages);
}

template <class Size, thread_scope scope>
void memcpy_async(void* to, const void* from, Size bytes, pipeline<scope>& pipe) {
    pipe.msbench_copy(to, from, bytes);
}
template <OfThreads Group, class Size, thread_scope scope>
void memcpy_async(const Group& group, void* to, const void* from, Size bytes, pipeline<scope>& pipe) {
    if (group.thread_rank() == 0) pipe.msbench_copy(to, from, bytes);
}

template <uint8_t prior>
void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>& pipe) {
    pipe.wait_prior(prior);
}

}  // namespace cuda

#endif
