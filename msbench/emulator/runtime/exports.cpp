// What the worker process calls (msbench/executors/_cpu_worker.py), beside the kernel's own msbench_launch.
#include <atomic>
#include <cstdint>

#include "team.hpp"

namespace msbench_cpu {
namespace {
std::atomic<int> on_default_stream{0};
}

void count_default_stream() { ++on_default_stream; }
}  // namespace msbench_cpu

#define MSBENCH_CPU_EXPORT extern "C" __attribute__((visibility("default"), used))

/// `order`: 0 forward, 1 reverse, 2 shuffled by `seed`; `time_limit_s` is for one launch, 0 is none.
MSBENCH_CPU_EXPORT void msbench_cpu_configure(int order, uint64_t seed, unsigned workers, double time_limit_s) {
    msbench_cpu::last_error = cudaSuccess;
    msbench_cpu::Team::instance().options = {static_cast<msbench_cpu::Order>(order), seed, workers, time_limit_s};
}

/// Whether the calling thread has written to threadIdx or its kin: blocks run in other threads, so nothing else does.
MSBENCH_CPU_EXPORT int msbench_cpu_index_written() {
    auto zero = [](const auto& index) { return index.x == 0 && index.y == 0 && index.z == 0; };
    auto unset = [](const dim3& extent) { return extent.x == 1 && extent.y == 1 && extent.z == 1; };
    return !(zero(threadIdx) && zero(blockIdx) && unset(blockDim) && unset(gridDim));
}

/// How many kernels were launched on the default stream since the last call.
MSBENCH_CPU_EXPORT int msbench_cpu_default_stream() { return msbench_cpu::on_default_stream.exchange(0); }

/// The first failure since the last call, as one line of JSON; empty if there was none.
MSBENCH_CPU_EXPORT void msbench_cpu_failure(char* json, size_t size) {
    msbench_cpu::Team::instance().take_failure(json, size);
}
