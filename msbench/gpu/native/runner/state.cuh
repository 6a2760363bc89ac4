// What the runner holds for the life of its process.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace {

constexpr int kMaxRepetitions = 512;

// What is counted on the device.
enum Counter { kReadOver, kOverrun, kChanged, kCounters };

struct Runner {
    cudaStream_t stream = nullptr;
    cudaEvent_t begin[kMaxRepetitions] = {};
    cudaEvent_t end[kMaxRepetitions] = {};
    unsigned* flags = nullptr;  // host-mapped: [0] last ticket released, [1] last ticket that timed out
    unsigned ticket = 0;
    uint64_t hold_ns = 0;
    void* flush = nullptr;
    size_t flush_bytes = 0;
    unsigned char* workspace = nullptr;  // of the call that is made: in `lent`, or `own`
    unsigned char* own = nullptr;
    size_t own_capacity = 0;
    unsigned char* lent = nullptr;
    size_t lent_capacity = 0;
    unsigned long long* counters = nullptr;  // see Counter
    unsigned char* aside = nullptr;  // what a repetition that is compared has written
    size_t aside_capacity = 0;
    int shared_bytes = 0;            // that a block may have at most
    int multiprocessors = 1;
} runner;

}  // namespace
