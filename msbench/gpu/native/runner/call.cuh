// What the worker hands in: a call with its arguments, and what one recorded operation of it is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace {

// What is no CUDA error; worker.py has the same numbers.
constexpr int kBlocked = -1;
constexpr int kWorkspaceOverrun = -2;
constexpr int kWroteElsewhere = -4;
constexpr int kVariableChanged = -6;
constexpr int kUnknownKernel = -7;
constexpr int kUnknownVariable = -8;
constexpr int kForks = -9;

// Where an error was seen; worker.py turns it into words.
enum Stage { kSetUp = 0, kLauncher = 1, kLastError = 2, kKernel = 3, kCapture = 4, kElsewhere = 5 };

using Launch = int (*)(void* const*, const double*, const int64_t*, void*, size_t, void*);
using Hook = int (*)(void* const*, const double*, const int64_t*);

}  // namespace

extern "C" {

// One call, mirrored by worker.py: `pointers` holds `sets` rows of `arrays` device pointers, inputs first; the last `outputs`
// of a row are written by the call and have output_bytes[i] bytes each. `launch` is null where the process has no host code of
// the version and plays records only.
struct Call {
    Launch launch;
    const double* scalars;
    const int64_t* dims;
    size_t workspace_bytes;
    int32_t sets;
    int32_t arrays;
    int32_t outputs;
    int32_t poison;  // whether cold repetitions overwrite outputs and workspace first
    void* const* pointers;
    const uint64_t* output_bytes;
    const uint64_t* permuted;  // of each array of a row: how many elements may change places, and an element's bytes; 0 for none
};

// One operation of a recorded call, mirrored by worker.py; `kind` is CUgraphNodeType's: a kernel, a copy or a memset. `early`: it
// may start before the one before it has ended. A copy or memset has `height` rows of `width` bytes (elements, for a memset).
struct Node {
    int32_t kind;
    int32_t early;
    int32_t cooperative;
    int32_t scheduling;
    int32_t max_shared;
    int32_t carveout;
    int32_t nonportable;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t cluster[3];
    uint32_t shared;
    uint32_t value;
    uint32_t element;
    uint64_t to;
    uint64_t from;
    uint64_t to_pitch;
    uint64_t from_pitch;
    uint64_t width;
    uint64_t height;
    uint64_t bytes;  // of `parameters`
    const char* name;
    const unsigned char* parameters;
};

}  // extern "C"
