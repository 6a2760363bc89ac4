// What the worker hands in and gets back: a launcher with its arguments, and what is no CUDA error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace {

// What is no CUDA error; worker.py has the same numbers.
constexpr int kBlocked = -1;
constexpr int kWorkspaceOverrun = -2;
constexpr int kEscaped = -3;
constexpr int kWroteElsewhere = -4;
constexpr int kStartsEarly = -5;
constexpr int kVariableChanged = -6;
constexpr int kUnrecorded = -7;

// Where an error was seen; worker.py turns it into words.
enum Stage { kSetUp = 0, kLauncher = 1, kLastError = 2, kKernel = 3 };

using Launch = int (*)(void* const*, const double*, const int64_t*, void*, size_t, void*);
using Hook = int (*)(void* const*, const double*, const int64_t*);

}  // namespace

// One launcher with its arguments, mirrored by worker.py: `pointers` holds `sets` rows of `arrays` device pointers, inputs
// first; the last `outputs` of a row are written by the call and have output_bytes[i] bytes each.
extern "C" struct Call {
    Launch launch;
    const double* scalars;
    const int64_t* dims;
    size_t workspace_bytes;
    int32_t sets;
    int32_t arrays;
    int32_t outputs;
    int32_t poison;  // whether cold repetitions overwrite the outputs first
    void* const* pointers;
    const uint64_t* output_bytes;
    const uint64_t* stirred;  // of each array of a row: how many elements `stir` may swap, and an element's bytes; 0 for none
};
