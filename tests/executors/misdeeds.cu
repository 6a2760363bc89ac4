// y = x on the processor, after a misdeed that the scalar `mode` chooses.
#include <arpa/inet.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

__global__ void copy(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = x[i];
}

static void sleeping_child(bool leave) {
    if (fork() == 0) {
        if (leave) setsid();
        if (!leave || fork() == 0) sleep(300);
        _exit(0);
    }
}

static int reached(long result) { return result >= 0 ? 1 : 0; }

// 1: the misdeed worked though nobody was told.
static int misdeed(int mode) {
    char place[64];
    switch (mode) {
        case 1: raise(SIGSEGV); break;
        case 2: abort();
        case 3: _exit(0);
        case 4: for (;;) usleep(1000);
        case 5: for (;;) std::memset(malloc(1 << 26), 1, 1 << 26);
        case 6: for (int i = 0; i < 20; ++i) sleeping_child(false); break;
        case 7: sleeping_child(true); break;
        case 8: system("sleep 300 &"); break;
        case 9: execl("/bin/true", "true", nullptr); break;
        case 10: std::thread([] { sleeping_child(true); }).join(); break;
        case 11: raise(SIGSTOP); break;
        case 12: kill(getppid(), SIGKILL); break;
        case 13: kill(getppid(), SIGSTOP); break;
        case 14: kill(-1, SIGTERM); break;
        case 15: return reached(socket(AF_INET, SOCK_STREAM, 0));
        case 16: return reached(socket(AF_UNIX, SOCK_STREAM, 0));
        case 17: return reached(open("made-by-a-kernel", O_CREAT | O_WRONLY, 0600));
        case 18: return reached(open("victim", O_WRONLY | O_TRUNC));
        case 19: return reached(unlink("victim"));
        case 20: return reached(rename("victim", "moved"));
        case 21: return reached(mkdir("folder-of-a-kernel", 0700));
        case 22: return reached(ptrace(PTRACE_ATTACH, getppid(), 0, 0));
        case 23: {
            char byte = 0;
            iovec here{&byte, 1}, there{&byte, 1};
            return reached(process_vm_writev(getppid(), &here, 1, &there, 1, 0));
        }
        case 24:
            std::snprintf(place, sizeof place, "/proc/%d/mem", getppid());
            return reached(open(place, O_RDWR));
        case 25: {  // nobody is told of a read; it fails
            std::snprintf(place, sizeof place, "/proc/%d/mem", getppid());
            return reached(open(place, O_RDONLY));
        }
        case 26: {  // hides its flags from a filter; the kernel seems not to have it
            unsigned long long arguments[11] = {};
            arguments[4] = SIGCHLD;
            const long child = syscall(SYS_clone3, arguments, sizeof arguments);
            if (child == 0) _exit(0);
            return reached(child);
        }
        case 27: {
            rlimit more{RLIM_INFINITY, RLIM_INFINITY};
            return reached(setrlimit(RLIMIT_FSIZE, &more));
        }
        case 28: {  // by a number of the 32-bit interface: fork
            int result = 2;
            asm volatile("int $0x80" : "+a"(result)::"memory");
            if (result == 0) _exit(0);
            return reached(result);
        }
        case 29: return reached(chmod("victim", 0777));
        case 30: for (int i = 0; i < 1 << 20; ++i) std::puts("a line that is printed until the disk is full, or the log is"); break;
    }
    return 0;
}

extern "C" cudaError_t misdeeds(const scalar_t* x, scalar_t* y, float mode, int64_t n, void* workspace,
                                size_t workspace_bytes, cudaStream_t stream) {
    if (misdeed(int(mode))) return cudaErrorUnknown;
    copy<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
