// Faults of the processor become failures of the launch, and a timer can take the processor from a thread that never
// waits.
#pragma once

#include <csignal>
#include <cstdint>

namespace msbench_cpu {

/// Sent to a worker whose thread has not waited for a while.
constexpr int interrupt_signal = SIGURG;

/// Once a process. Before it, code_offset answers 0.
void install_handlers();

/// An address in this library's code as addr2line wants it, relative to the load address; 0 for any other address.
uintptr_t code_offset(const void* address);

/// Once an OS thread: handlers need a stack of their own to report that a thread's stack overflowed.
void install_signal_stack();

}  // namespace msbench_cpu
