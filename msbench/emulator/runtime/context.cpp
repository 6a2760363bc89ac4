#include "context.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#ifdef MSBENCH_CPU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace msbench_cpu {

namespace {

// Only what a thread touches takes memory. AddressSanitizer puts redzones around local variables.
#ifdef MSBENCH_CPU_ASAN
constexpr size_t usable_bytes = 512 * 1024;
#else
constexpr size_t usable_bytes = 256 * 1024;
#endif
constexpr size_t page = 4096;

// A guard page splits a mapping in two, and Linux allows 65530 of them (vm.max_map_count).
constexpr int most_guards = 20000;
std::atomic<int> guards{0};

}  // namespace

void allocate_stack(Context& context) {
    void* memory =
        mmap(nullptr, usable_bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("msbench: no memory for the stack of a CUDA thread");
        std::abort();
    }
    if (guards.fetch_add(1) < most_guards) mprotect(memory, page, PROT_NONE);
    context.stack = static_cast<char*>(memory) + page;
    context.stack_bytes = usable_bytes;
}

void describe_own_stack(Context& context) {
    pthread_attr_t attributes;
    void* base = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &base, &bytes);
    pthread_attr_destroy(&attributes);
    context.stack = static_cast<char*>(base);
    context.stack_bytes = bytes;
}

#ifdef MSBENCH_CPU_USES_UCONTEXT

void Context::prepare(void (*entry)(), unsigned colour) {
    getcontext(&registers);
    registers.uc_stack.ss_sp = stack;
    registers.uc_stack.ss_size = stack_bytes - colour % 32 * 64;
    registers.uc_link = nullptr;
    makecontext(&registers, entry, 0);
    fake_stack = nullptr;
}

static void swap_registers(Context& from, Context& to) { swapcontext(&from.registers, &to.registers); }

#else

// The System V ABI lets a callee change every register but these six, so a switch is six pushes and pops.
extern "C" void msbench_cpu_swap_stacks(void** save, void* load);
asm(R"(
    .text
    .hidden msbench_cpu_swap_stacks
    .globl msbench_cpu_swap_stacks
    .type msbench_cpu_swap_stacks, @function
msbench_cpu_swap_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size msbench_cpu_swap_stacks, . - msbench_cpu_swap_stacks
)");

void Context::prepare(void (*entry)(), unsigned colour) {
    auto top = reinterpret_cast<void**>(stack + stack_bytes - colour % 32 * 64);
    *--top = nullptr;  // entry's return address; it also leaves the stack as a call would: 8 below a multiple of 16
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    stack_pointer = top;
    fake_stack = nullptr;
}

static void swap_registers(Context& from, Context& to) {
    msbench_cpu_swap_stacks(&from.stack_pointer, to.stack_pointer);
}

#endif

#ifdef MSBENCH_CPU_ASAN

void switch_context(Context& from, Context& to) {
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
    swap_registers(from, to);
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
}

void entered_context() { __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr); }

#else

void switch_context(Context& from, Context& to) { swap_registers(from, to); }

void entered_context() {}

#endif

}  // namespace msbench_cpu
