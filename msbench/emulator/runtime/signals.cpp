#include "signals.hpp"

#include <link.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "team.hpp"

#ifdef MSBENCH_CPU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace msbench_cpu {

namespace {

struct Image {
    uintptr_t base = 0, begin = 0, end = 0;  // this library: load address, and its code
} image;

int find_image(dl_phdr_info* info, size_t, void*) {
    auto here = reinterpret_cast<uintptr_t>(&install_handlers);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header.p_vaddr;
        if (header.p_type != PT_LOAD || !(header.p_flags & PF_X) || here < begin || here >= begin + header.p_memsz)
            continue;
        image = {info->dlpi_addr, begin, begin + header.p_memsz};
        return 1;
    }
    return 0;
}

const void* program_counter(void* context) {
    auto* machine = &static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(machine->gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(machine->pc);
#else
#error "msbench's cpu executor knows x86-64 and aarch64"
#endif
}

/// The handlers are this library's code too, so they begin with the interrupt blocked: one that came inside a handler
/// would take it for a kernel's code, and switch threads in the middle of whatever the first signal interrupted.
void allow_interrupt() {
    sigset_t interrupts;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, interrupt_signal);
    pthread_sigmask(SIG_UNBLOCK, &interrupts, nullptr);
}

void fault(int number, siginfo_t* info, void* context) {
    if (!scheduler || !scheduler->running_kernel()) {
        std::signal(number, SIG_DFL);  // not a kernel's: happens again on return, and ends the process
        return;
    }
    scheduler->enter_runtime();
    allow_interrupt();
    auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    char text[200];
    Fault f{cudaErrorIllegalAddress, text, nullptr, code_offset(program_counter(context)), true};
    switch (number) {
        case SIGFPE:
            f.error = cudaErrorLaunchFailure;
            std::snprintf(text, sizeof text, "integer division by zero");
            break;
        case SIGILL:
        case SIGTRAP:  // what -fsanitize=alignment compiles a failed test to
            f.error = cudaErrorMisalignedAddress;
            std::snprintf(text, sizeof text,
                          "misaligned access: a vector type needs an address that is a multiple of its size");
            break;
        default:
            if (scheduler->stack_overflowed(address))
                std::snprintf(text, sizeof text,
                              "stack overflow: a thread may hold about 256 KiB of local variables here");
            else
                std::snprintf(text, sizeof text, "illegal access to address 0x%zx", static_cast<size_t>(address));
    }
    scheduler->fail(f);
}

/// report() below is this library's code too, and another thread's fault inside it would end the process without it.
bool reporting() {
#ifdef MSBENCH_CPU_ASAN
    return __asan_report_present();
#else
    return false;
#endif
}

void interrupt(int, siginfo_t*, void* context) {
    uintptr_t pc = code_offset(program_counter(context));
    // Only in a kernel's own code: elsewhere somebody may hold a lock, or be in the middle of changing a queue.
    if (!scheduler || !scheduler->running_kernel() || scheduler->in_runtime() || !pc || reporting()) return;
    scheduler->enter_runtime();
    allow_interrupt();
    scheduler->yield(pc);
}

#ifdef MSBENCH_CPU_ASAN
void report(const char*) {
    if (!scheduler || !scheduler->running_kernel()) return;
    char json[4096], text[512] = "";
    const char* name = nullptr;
    long offset = 0;
    size_t size = 0;
    auto address = reinterpret_cast<uintptr_t>(__asan_get_report_address());
    if (scheduler->shared_memory().describe(address, &name, &offset, &size))
        std::snprintf(text, sizeof text, "%s\t%ld\t%zu", name, offset, size);
    Failure failure;
    failure.record(Team::instance().state().launch.kernel, {cudaErrorIllegalAddress, text, nullptr, 0, true});
    failure.to_json(json, sizeof json);
    std::fprintf(stderr, "\nmsbench-fault: {\"address\": %zu, \"size\": %zu, \"write\": %s, \"failure\": %s}\n",
                 static_cast<size_t>(address), __asan_get_report_access_size(),
                 __asan_get_report_access_type() ? "true" : "false", json);
}
#endif

}  // namespace

uintptr_t code_offset(const void* address) {
    auto pc = reinterpret_cast<uintptr_t>(address);
    return pc >= image.begin && pc < image.end ? pc - image.base : 0;
}

void install_handlers() {
    dl_iterate_phdr(find_image, nullptr);
    struct sigaction action{};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, interrupt_signal);
    // SA_NODEFER: handlers are left by switching stacks, never by returning, so nothing would unblock the signal.
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    action.sa_sigaction = fault;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigaction(number, &action, nullptr);
    // Not on the signal stack: the interrupted thread is resumed later, when others may have used that stack.
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    action.sa_sigaction = interrupt;
    sigaction(interrupt_signal, &action, nullptr);
#ifdef MSBENCH_CPU_ASAN
    __asan_set_error_report_callback(report);
#endif
}

void install_signal_stack() {
    constexpr size_t bytes = 64 * 1024;
    stack_t stack{};
    stack.ss_sp = std::malloc(bytes);
    stack.ss_size = bytes;
    sigaltstack(&stack, nullptr);
}

}  // namespace msbench_cpu
