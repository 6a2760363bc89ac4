// Stacks and the switch between them: the machine part of fibers.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || defined(MSBENCH_CPU_UCONTEXT)
#define MSBENCH_CPU_USES_UCONTEXT 1
#include <ucontext.h>
#endif

namespace msbench_cpu {

/// A suspended flow of control. `stack` and `stack_bytes` tell AddressSanitizer where it runs.
struct Context {
    char* stack = nullptr;
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;
#ifdef MSBENCH_CPU_USES_UCONTEXT
    ucontext_t registers;
#else
    void* stack_pointer = nullptr;
#endif

    /// Makes the next switch to this context call `entry`, which never returns. `colour` staggers the first frames of
    /// neighbouring stacks: equal page offsets would put all of a block's threads into the same few cache sets.
    void prepare(void (*entry)(), unsigned colour);
};

/// A new stack with a guard page below it (while the process may still have that many mappings).
void allocate_stack(Context& context);

/// Saves the running flow in `from` and resumes `to`.
void switch_context(Context& from, Context& to);

/// The first thing that a fresh context does.
void entered_context();

/// Notes the bounds of the calling OS thread's own stack.
void describe_own_stack(Context& context);

}  // namespace msbench_cpu
