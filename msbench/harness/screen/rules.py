"""What a launcher may call, by name, and in which words the rest is refused. docs/contract.md says it for people.

A symbol that no entry of ``ALLOWED`` matches is refused. The rules below only find the words for it, and say which names a
library version may not call either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """Names that are refused. ``trick`` completes "the file …". ``libraries``: library versions may call them."""

    trick: str
    names: re.Pattern[str]
    libraries: bool = False


def _rule(trick: str, names: str, *, libraries: bool = False) -> Rule:
    return Rule(trick, re.compile("|".join(names.split())), libraries)


RULES = (
    _rule("looks up functions at run time", r"dlm?open dlv?sym dlclose dladdr1? dl_iterate_phdr cuGetProcAddress\w*"),
    _rule(
        "loads device code at run time",
        r"cu(da)?(Module|Library|Kernel)[A-Z]\w* cuLink\w+ nvrtc\w+ nvJitLink\w+ nvPTXCompiler\w+ cudaGetKernel cudaInitDevice",
    ),
    _rule("starts threads", r"pthread_\w+ thrd_\w+ _ZNSt6thread\w* _ZNSt7jthread\w* _ZNKSt6thread\w* GOMP_\w+ omp_\w+ __cilk\w+"),
    _rule("starts processes", r"v?fork clone3? exec[lv]\w* fexecve posix_spawn\w* system popen pclose wait waitpid wait[34] daemon"),
    _rule(
        "signals, stops or looks into processes",
        r"kill killpg tgkill tkill raise sigqueue ptrace process_vm_\w+ pidfd_\w+ prctl arch_prctl getp?pid getppid getpgrp getpgid setsid setpgid",
    ),
    _rule("makes system calls by number", r"syscall"),
    _rule(
        "opens files, pipes or sockets",
        r"(f|fd|f?re)?open(64|at|at64|dir)? __open\w* creat(64)? p?readv?(64)? p?writev?(64)? __p?read\w* f(read|getc|gets|close|scanf)\w* "
        r"mmap(64)? munmap mprotect mremap memfd_create shm\w+ socket\w* connect bind listen accept4? send\w* recv\w* getaddrinfo ioctl "
        r"fcntl(64)? dup[23]? pipe2? close poll ppoll select epoll_\w+ unlink\w* rename\w* mkdir\w* opendir readdir\w* f?stat\w* f?truncate\w* "
        r"link symlink\w* readlink\w* _Z\w*basic_\w*(fstream|filebuf)\w* _ZNSt10filesystem\w* io_\w+ inotify_\w+ sendfile\w*",
    ),
    _rule(
        "looks at the environment or at the clock",
        r"(secure_)?getenv __environ environ _environ uname gethostname getcwd getauxval sysconf getrusage "
        r"program_invocation\w* sched_getaffinity get_nprocs\w* sleep usleep nanosleep",
    ),
    _rule(  # a library's baseline stops looking for the fastest algorithm after a while
        "looks at the environment or at the clock",
        r"time times clock clock_\w+ gettimeofday ftime _ZNSt6chrono\w*now\w*",
        libraries=True,
    ),
    _rule(
        "changes its process",
        r"setenv putenv unsetenv clearenv f?chdir chroot umask setrlimit\w* prlimit\w* sigaction signal bsd_signal sysv_signal sigprocmask "
        r"sigaltstack setitimer alarm timer_\w+ f[e](setround|setenv|updateenv|enableexcept|disableexcept|holdexcept|setexceptflag) sched_\w+ nice "
        r"setpriority personality set[eug]*id setlocale mlock\w* madvise malloc_(trim|info|stats|[gs]et_state) mallopt seccomp",
    ),
    _rule("runs code when the process or a thread ends", r"(__cxa_)?(thread_)?atexit on_exit (__cxa_)?at_quick_exit __cxa_thread_atexit\w*"),
    _rule("ends the process or jumps out of the launcher", r"_exit _Exit quick_exit (sig|_)?(_)?longjmp _?_?(sig)?setjmp (get|set|make|swap)context"),
    _rule(
        "calls a vendor library in a version that declares none",
        r"cublas\w+ cudnn\w+ cusparse\w+ cufft\w+ curand\w+ cusolver\w+ cutensor\w+ nvblas\w+ nccl\w+ npp\w+ _ZN\w*(cudnn_frontend|thrust)\w*",
        libraries=True,
    ),
    _rule(
        "allocates or frees device memory",
        r"cuda(Malloc|Free|HostAlloc|Host(Un)?[rR]egister|HostGet|MemPool|DeviceGet\w*MemPool|DeviceSetMemPool|Ipc|Import|ExternalMemory|Array)\w* cuMem\w+",
        libraries=True,
    ),
    _rule(
        "waits for the device or asks how far it is",
        r"cuda(Device|Thread|Ctx)Synchronize cuda(Stream|Event)(Synchronize|Query)",
        libraries=True,
    ),
    _rule(
        "copies through the host or outside its stream",
        r"cudaMem(cpy|set)(2D|3D|Peer|(To|From)(Array|Symbol)\w*|2D(To|From)Array\w*|3DPeer)? cudaMemcpy(To|From)Symbol\w* cudaMemcpyBatchAsync cudaMemcpy((Host|Device)ToHost|HostToDevice|Default) "
        r"cudaMemPrefetch\w* cudaMemAdvise\w*",
        libraries=True,
    ),
    _rule(
        "runs host code in the stream",
        r"cudaLaunchHostFunc\w* cudaStreamAddCallback cudaUserObject\w*",
        libraries=True,
    ),
    _rule(
        "builds, captures or replays graphs",
        r"cudaGraph\w+ cudaStream(Begin|End|Is|Get|Update)?Captur\w+ cudaStream(Begin|End)\w*Graph\w* cudaThreadExchangeStreamCaptureMode",
        libraries=True,
    ),
    _rule("changes the device's settings", r"cudaSetDevice", libraries=True),  # CUB sets the one that is current already
    _rule(
        "changes the device's settings",
        r"cuda(Device|Ctx)(Set|Reset|Enable|Disable)\w* cudaStream(Set|Get|Copy)?Attr\w* cudaSet\w+ cudaProfiler\w+ cudaGreenCtx\w+ "
        r"cudaExecutionCtx\w* cudaFuncSetCacheConfig cudaFuncSetSharedMemConfig",
    ),
    _rule("keeps state between calls in managed memory", r"__cuda(RegisterManaged|InitModule|InitManaged)\w*", libraries=True),
    _rule("uses another stream, or events", r"cudaStream\w+ cudaEvent\w+", libraries=True),
    _rule("takes the address of device variables", r"cudaGetSymbol\w+ cudaGetFuncBySymbol", libraries=True),
    _rule("calls the driver beside the runtime", r"cu[A-Z]\w+", libraries=True),
    _rule("prints", r"stdout stderr v?f?printf v?dprintf puts fputs putchar putc perror __f?printf_chk __v?f?printf_chk _ZSt4c(out|err|log) _ZNSo\w* _ZSt\w*ostream\w* fwrite fflush fputc", libraries=True),
    _rule("gets symbols under other names", r"__wrap_\w+ __real_\w+"),
    _rule("reaches into the C++ runtime", r"__cxa_\w+ _Unwind_\w+ __gxx_\w+ _ZSt17(current|rethrow)_exception\w* _ZNK?St15__exception_ptr\w*", libraries=True),
)  # fmt: skip

MAKES_STREAM = _rule(
    "makes another stream than the one that it is given", r"cu(da)?(ExecutionCtx|GreenCtx)?StreamCreate\w*"
)
"""Also for who declares a library: work that is left on a stream which nothing joins may end at any time, and nobody sees when."""

_INTERNAL = re.compile(
    r"\b(?:__cuda(?!PushCallConfiguration\b)[A-Z]\w*|__sti____\w+|__device_stub\w*|__fatDeviceText|__ioinit|__dso_handle|_GLOBAL_OFFSET_TABLE_|"
    r"_GLOBAL__sub_\w+|____nv_\w+|_INTERNAL_\w+|_Z[A-Z0-9]\w*)"
)
"""What nvcc, the linker and the C++ library add to a file for themselves: names with which it could register device code that
nobody has read, or pass its own variables and constructors for theirs. Those of C++ begin with ``_Z`` in the object."""

_COUNTERS = re.compile(r"\b_*(?:builtin_)?(?:ia32_)?rd(?:tscp?|pmc|pid\w*)\b|\b__builtin_readcyclecounter\b")
"""The processor's clocks, which are instructions and no calls."""

_HANDLING = re.compile(r"\b(?:__cxa_|_Unwind_|__gxx_)\w*")
"""The C++ runtime's own functions, which compilers call for ``throw``, ``catch`` and static variables. Called by hand they leave
exceptions with the thread, which finds them there in its next call."""

_JUMPS = re.compile(r"\b__builtin_(?:setjmp|longjmp|eh_return|unwind_init)\b|\bgoto\s*\*")
"""Ways out of a handler that do not end its exception; the compiler makes instructions of them and no calls."""

UNSEEN = re.compile("|".join(p.pattern for p in (_INTERNAL, _COUNTERS, _HANDLING, _JUMPS)))

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_ATTRIBUTES = re.compile(
    r"\b__attribute(?:__)?\s*\(\((?P<gnu>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)\s*\)|\[\[(?P<standard>[^\]]*)\]\]"
)
_PLACING = re.compile(r"\b(?:__)?(?P<name>section|weakref|alias|symver)(?:__)?\b")
_PLACING_BY_MACRO = re.compile(
    r"\b__(?P<rare>section|weakref|alias|symver)__\b|\b(?P<name>section|weakref|symver)\s*\(\s*\""
)
"""Attributes whose text the compiler hands to the assembler as it stands, and which say where in the object a thing goes."""

_CUDA = r"""
    cudaLaunch(Cooperative)?Kernel cudaLaunchKernelExC cuda(Get|PeekAt)LastError cudaGetError(Name|String)
    cudaMemsetAsync cudaMemset2DAsync cudaMemset3DAsync cudaMemcpyAsync cudaMemcpy2DAsync cudaMemcpy3DAsync
    cudaGetDevice cudaDeviceGetAttribute cudaGetDeviceProperties(_v2)? cudaRuntimeGetVersion cudaDriverGetVersion
    cudaFuncSetAttribute cudaFuncGetAttributes cudaOccupancy\w+ cudaGetDriverEntryPoint(ByVersion)?
    __cuda(Register|Unregister)(FatBinary|FatBinaryEnd|Function|Var) __cuda(Push|Pop)CallConfiguration __cudaGetKernel
    __cudaLaunchKernel(_ptsz)?
"""

_C = r"""
    mem(cpy|move|set|cmp|chr|ccpy) __mem(cpy|move|set)_chk str(n?cmp|n?len|n?cpy|chr|rchr) bcmp
    malloc calloc realloc free malloc_usable_size aligned_alloc posix_memalign abort exit __assert_fail __stack_chk_fail l?l?abs l?l?div qsort
    (__)?(a?(sin|cos|tan)h?|sincos|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|l?l?(gamma|round|rint)|tgamma|pow|sqrt|cbrt|hypot|fabs|floor|ceil|trunc|
    nearbyint|fmod|remainder|remquo|fma|fmax|fmin|fdim|erfc?|ldexp|frexp|modf|scalbl?n|ilogb|copysign|nextafter|nan|j[01n]|y[01n]|
    isnan|isinf|finite|signbit|fpclassify)[fl]?(_finite)?
    __(udivti3|divti3|umodti3|modti3|mulodi4|truncsfbf2|extendbfsf2|truncdfbf2|extendhfsf2|truncsfhf2|floatuntisf|floattisf|popcountdi2|mulsc3|muldc3|divsc3|divdc3)
    c(abs|arg|exp|log|pow|sqrt)f?
    sched_yield _GLOBAL_OFFSET_TABLE_ __dso_handle __tls_get_addr __gxx_personality_v0 __gcc_personality_v0 _Unwind_Resume
    _Zn[aw]\w+ _Zd[la]\w+ __cxa_(guard_(acquire|release|abort)|allocate_exception|free_exception|throw|rethrow|begin_catch|end_catch|
    pure_virtual|throw_bad_array_new_length|bad_cast|get_exception_ptr|call_unexpected)
    _ZSt\d+__throw_\w+ _ZSt9terminatev _ZNK?St\d+(exception|\w+_error|out_of_range|invalid_argument|bad_alloc|bad_function_call)\w* _ZNK?St7__cxx1112basic_string\w*
    _ZSt(18|29)_Rb_tree\w+ _ZNK?St8__detail\w+ _ZSt11_Hash_bytesPKvmm _ZSt7nothrow __dynamic_cast _ZNSt8ios_base4Init[CD]1Ev _ZSt21ios_base_library_initv _ZT[IVS]\w+ _ZTVN10__cxxabiv1\w+
"""

_EMULATOR = r"""_Z\w*11msbench_cpu\w* msbench_cpu_\w+ threadIdx blockIdx blockDim gridDim _ZTH(threadIdx|blockIdx|blockDim|gridDim)"""

ALLOWED = re.compile("|".join(f"(?:{part})" for part in re.sub(r"\|\s+", "|", _CUDA + _C + _EMULATOR).split()))
"""What a version that declares no library may refer to: the runtime's launches and questions, C's memory and arithmetic, and
what the compilers themselves put in."""


def allowed(symbol: str) -> bool:
    """Whether any version may refer to it."""
    return ALLOWED.fullmatch(symbol) is not None


def broken(name: str, library: bool = False) -> Rule | None:
    """The rule that a name breaks."""
    rule = next((r for r in RULES if r.names.fullmatch(name)), None)
    return None if rule is None or (library and rule.libraries) else rule


def unseen_by_linkers(code: str) -> str | None:
    """What code without comments and strings names that is refused and leaves no symbol, or one that nvcc uses itself."""
    if found := _INTERNAL.search(code):
        return f"reaches into what the compilers add to it ({found[0]})"
    if placing := _placing(_STRING.sub('""', code)):
        return f"says where in the object it wants something ({placing}, in an attribute)"
    if found := _COUNTERS.search(code):
        return f"looks at the environment or at the clock ({found[0]})"
    if found := _HANDLING.search(code):
        return f"reaches into the C++ runtime ({found[0]})"
    if found := _JUMPS.search(code):
        return f"ends the process or jumps out of the launcher ({found[0]})"
    return None


def _placing(code: str) -> str | None:
    """The attribute by which code names a section, or gives a symbol another's name."""
    for attributes in _ATTRIBUTES.finditer(code):
        if found := _PLACING.search(attributes["gnu"] or attributes["standard"] or ""):
            return found["name"]
    by_macro = _PLACING_BY_MACRO.search(code)
    return by_macro and (by_macro["rare"] or by_macro["name"])
