// Why a launch failed: the first fault wins, and is told as one line of JSON.
#pragma once

#include <atomic>
#include <cstdint>

#include "../include/msbench_cpu/errors.hpp"
#include "../include/msbench_cpu/vector_types.hpp"

namespace msbench_cpu {

/// What went wrong, before it is known where.
struct Fault {
    cudaError_t error;
    const char* message;
    const Site* site = nullptr;  // the line, where a function of the runtime was told it
    uintptr_t pc = 0;            // else the instruction
    bool in_thread = false;      // threadIdx and blockIdx say who
};

/// Plain arrays, since signal handlers fill it in too.
class Failure {
public:
    /// Read without a lock by every thread that decides whether to go on.
    std::atomic<bool> set{false};

    cudaError_t error() const { return error_; }
    void clear();
    /// Keeps the fault unless there is one already.
    void record(const char* kernel, const Fault& fault);
    /// Writes `{"error": 719, "kernel": …, "message": …, "file": …, "line": …, "pc": …, "thread": […], "block": […]}`.
    void to_json(char* out, size_t size) const;
    void copy_from(const Failure& other);

private:
    std::atomic<bool> taken_{false};
    cudaError_t error_ = cudaSuccess;
    char kernel_[128] = "";
    char message_[1024] = "";
    char file_[256] = "";
    unsigned line_ = 0;
    uintptr_t pc_ = 0;
    bool in_thread_ = false;
    uint3 thread_{}, block_{};
};

}  // namespace msbench_cpu
