"""What a file's text shows before it runs, and what only looks like a trick. The exploit corpus has a whole kernel for most of these."""

from __future__ import annotations

from dataclasses import replace

import pytest

from msbench.harness import screen
from msbench.harness.screen import rules, source
from msbench.model import Candidate, Entry, Fault, Origin
from msbench.spec import Precision


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('#include "/etc/passwd"', "from outside: /etc/passwd"),
        ("#include <../x.h>", "from outside"),
        ('#/**/include "/x"', "from outside: /x"),
        ('#inc\\\nlude "/x"', "from outside: /x"),
        ('%:include "/x"', "digraph"),
        ("#define F <x>\n#include F", "whose name a macro makes"),
        ("#include_next <x.h>", "takes in another file (#include_next)"),
        ('\f#include "/x"', "from outside: /x"),
        ('#\v\0include\f"/x"', "from outside: /x"),
        ('#inc\\ \nlude "/x"', "from outside: /x"),
        ('// \\\\\n\n#include "/x"', "from outside: /x"),
        ('#line 1 "x.h"', "come from another file (#line)"),
        ('# 1 "x.h"', "come from another file (#line)"),
        ("f(u'\"'); cudaMalloc(p); f(u'\"');", "allocates or frees device memory"),
        ("f(0x1'\"'); cudaMalloc(p); f(0x1'\"');", "allocates or frees device memory"),
        ('aR"("; cudaMalloc(p); aR")";', "allocates or frees device memory"),
        ('R"()\\\n")"; cudaMalloc(p); "";', "hides its text from a reader"),
        ('"x"R"("; cudaMalloc(p); "x"R")";', "hides its text from a reader"),
        ('asm(".inc" /* */ "bin \\"x\\"");', "takes in another file (.incbin"),
        ('asm(R"(\n .incbin "x"\n)");', "takes in another file (.incbin"),
        ('asm("syscall");', "assembly for the host"),
        ("#pragma weak cudaGetLastError", "changes what its symbols mean (#pragma weak)"),
        ('_Pragma("redefine_extname a b")', "changes what its symbols mean"),
        ("auto f = &cudaMalloc;", "allocates or frees device memory (cudaMalloc)"),
        ("#define WAIT cudaDeviceSynchronize", "waits for the device"),
        ("f<<<1, 1, 0, cudaStreamPerThread>>>();", "uses another stream"),
        ("std::async(f);", "starts threads (std::async)"),
        ("cub :: DeviceScan :: InclusiveSum(a);", "library's own kernels (cub::DeviceScan)"),
        ("msbench_cpu::last_error = 0;", "cpu executor's own runtime"),
        ("::pthread_create(a, b, c, d);", "starts threads (pthread_create)"),
        (
            "void** __cudaRegisterFatBinary(void*);",
            "reaches into what the compilers add to it (__cudaRegisterFatBinary)",
        ),
        ("namespace std { static char __ioinit; }", "reaches into what the compilers add to it (__ioinit)"),
        ("auto t = __rdtsc();", "looks at the environment or at the clock (__rdtsc)"),
        ("auto t = __builtin_ia32_rdtscp(&a);", "at the clock (__builtin_ia32_rdtscp)"),
        ("abi::__cxa_begin_catch(thrown);", "reaches into the C++ runtime (__cxa_begin_catch)"),
        ("#define CALL(name) __cxa_##name(thrown)", "reaches into the C++ runtime (__cxa_)"),
        ("_Unwind_ForcedUnwind(a, b, c);", "reaches into the C++ runtime (_Unwind_ForcedUnwind)"),
        ("decltype(&__gxx_personality_v0) f;", "reaches into the C++ runtime (__gxx_personality_v0)"),
        ("if (__builtin_setjmp(place)) return;", "jumps out of the launcher (__builtin_setjmp)"),
        ("goto * (where[i]);", "jumps out of the launcher (goto *)"),
    ],
)
def test_what_a_text_shows(text: str, says: str) -> None:
    trick = source.tricks(text, library=False)
    assert trick is not None
    assert says in trick


@pytest.mark.parametrize(
    "text",
    [
        "// cudaMalloc(x)",
        '/* #include "/etc/passwd" */',
        'const char* s = "cudaMalloc(dlopen)";',
        "#include <cuda_bf16.h>\n#include <msbench.cuh>",
        "cudaStream_t s; cudaEvent_t e;",
        "my::cudaMallocLike();",
        "int read = 0, open = 1; kill(read);",
        "plan.cudaMalloc();",
        'asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));',
        "cudaMemcpyAsync(a, b, n, cudaMemcpyDeviceToDevice, stream);",
        "using Encode = decltype(&cuTensorMapEncodeTiled);",
        "x = 1'000'000; // it's fine\ny = 'a';",
        "#pragma unroll 4\n#pragma nv_diag_suppress 177",
        "cub::BlockReduce<float, 32> r;",
        "thrust::complex<float> z;",
        "// what??= is asked 100%: of the time\n/* %: */",
        'auto s = R"(a "text" \\ of "lines")"; auto t = u8"b" "R" "c"; auto u = L\'"\'; x = 0xA\'B + 1e-5 + 1\'000.5f;',
        "#define TWO(a) \\\n    a, a\nint x[] = {TWO(1)};",
        "try { throw 1; } catch (const std::exception&) { throw; } catch (...) { goto end; }",
    ],
)
def test_what_only_looks_like_a_trick(text: str) -> None:
    assert source.tricks(text, library=False) is None


MARKED = '# 1 "prefix.hpp"\nvoid f() { __builtin_ia32_rdtsc(); }\n# 1 "own.cu"\n'


def made_of(text: str, headers: str = "", library: bool = False) -> str | None:
    return source.preprocessed_tricks(MARKED + text, headers, "own.cu", "msbench_cpu_0123", library)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("long t = __builtin_ia32_rdtsc();", "looks at the environment or at the clock"),
        ('void f() { asm volatile("nop"); }', "holds assembly for the host"),
        ('extern long x __asm__("y");', "holds assembly for the host"),
        ("long f() { return ++msbench_cpu::live_bytes; }", "reaches into the cpu executor's own runtime"),
        ("long f() { return ++msbench_cpu_012::live_bytes; }", "reaches into the cpu executor's own runtime"),
        ("\n#pragma redefine_extname calls other\n", "changes what its symbols mean (#pragma redefine_extname)"),
        ('\n#pragma GCC pch_preprocess "x.gch"\n', "takes in another file"),
        ("static long __device_stub_x() { static long __f; return ++__f; }", "reaches into what the compilers add"),
        ("void f(void** p) { cudaMalloc(p, 4); }", "allocates or frees device memory (cudaMalloc)"),
        ('# 1 "/usr/include/assert.h" 1\nlong f() { return __rdtsc(); }', "changes the headers that it includes"),
        ("void f(void* e) { __cxa_begin_catch(e); }", "reaches into the C++ runtime (__cxa_begin_catch)"),
        ('# 1 "/usr/include/x.h" 1\nvoid f(void* e) { _Unwind_Resume(e); }', "changes the headers that it includes"),
        ('# 1 "a.h" 1\nint a;\n# 2 "own.cu" 2\nvoid f() { asm("nop"); }', "holds assembly for the host"),
    ],
)
def test_what_the_preprocessor_makes_of_a_text(text: str, says: str) -> None:
    trick = made_of(text)
    assert trick is not None
    assert says in trick


@pytest.mark.parametrize(
    "text",
    [
        "void f() { msbench_cpu_0123::bind<&k>(); }",
        '\n#pragma GCC unroll 4\nfloat as_m = 1; const char* text = "asm __rdtsc msbench_cpu";',
        '# 1 "/usr/include/x.h" 1\nint a;\n# 2 "own.cu" 2\nint b;',
    ],
)
def test_what_the_preprocessor_may_make_of_a_text(text: str) -> None:
    assert made_of(text) is None


def test_a_header_may_hold_what_it_holds_without_the_file() -> None:
    header = '# 1 "/usr/include/x.h" 1\nlong f() { return __rdtsc(); }\n'
    assert made_of(header, '# 1 "rewritten/headers"\n' + header) is None
    assert made_of(header + "long g() { return __rdtsc(); }", '# 1 "rewritten/headers"\n' + header) is not None


def test_a_library_version_may_allocate_but_start_no_threads() -> None:
    def refused(text: str, **fields: object) -> bool:
        return screen.look_at_source(Candidate("x", Precision.FP32, text, **fields)) is not None  # type: ignore[arg-type]

    allocates, threads = "cudaMalloc(&p, 4); cublasCreate(&h);", "pthread_create(a, b, c, d);"
    assert refused(allocates)
    assert not refused(allocates, origin=Origin.LIBRARY)
    assert not refused("// msbench: link cublas\n" + allocates)
    assert refused(threads, origin=Origin.LIBRARY)
    assert rules.broken("_ZNSt6chrono3_V212steady_clock3nowEv", True) is None  # for how long it looks for an algorithm
    assert rules.broken("_ZNSt6chrono3_V212steady_clock3nowEv") is not None


def test_a_library_version_may_not_make_a_stream_and_a_function_of_another_contract_may() -> None:
    makes, link = "cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);", "// msbench: link cublas\n"
    says = "the file makes another stream than the one that it is given (cudaStreamCreateWithFlags)."
    for library in (
        Candidate("x", Precision.FP32, link + makes),
        Candidate("x", Precision.FP32, makes, Origin.LIBRARY),
    ):
        failure = screen.look_at_source(library)
        assert failure is not None
        assert failure.message.endswith(says)
        assert screen.look_at_source(replace(library, source=link + f"// {makes}\ncudaEventCreate(&turn);")) is None
    foreign = Entry(function="f", prototype="void f()", before="", after="")
    assert screen.look_at_source(Candidate("x", Precision.FP32, makes, entry=foreign)) is None


def test_a_refusal_is_a_failed_build() -> None:
    failure = screen.look_at_source(Candidate("x", Precision.FP32, "cudaMalloc(&p, 4);"))
    assert failure is not None
    assert failure.fault is Fault.FORBIDDEN
    assert failure.message == "Refused before it ran: the file allocates or frees device memory (cudaMalloc)."


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("long _ZZ1__device_stub_xE3__f;", "what the compilers add to it (_ZZ1__device_stub_xE3__f)"),
        ('extern "C" long __dso_handle;', "what the compilers add to it (__dso_handle)"),
        (
            '__attribute__((used, section(".text.t"))) const int x[] = {1};',
            "wants something (section, in an attribute)",
        ),
        ('__attribute((aligned(8), __section__(".x"))) int x;', "(section, in an attribute)"),
        ('[[gnu::section(".x")]] static const int x = 1;', "(section, in an attribute)"),
        ('#define PUT(...) __attribute__((__VA_ARGS__))\nPUT(section(".x")) int x;', "(section, in an attribute)"),
        ("#define PUT __section__", "(section, in an attribute)"),
        ('static int x __attribute__((weakref(".Lkept")));', "(weakref, in an attribute)"),
        ('extern const int y __attribute__((alias("x")));', "(alias, in an attribute)"),
    ],
)
def test_a_text_says_nothing_about_places_in_the_object(text: str, says: str) -> None:
    assert says in (source.tricks(text, library=True) or "")


@pytest.mark.parametrize(
    "text",
    [
        "struct __attribute__((aligned(16))) Packet { float section[4]; };",
        "__attribute__((noinline)) float alias(int section) { return section; }",
        "float section(int n); float x = section(2); using alias = float; x = a[[&] { return 0; }()];",
        "__nv_bfloat16 _Z, Z_1; template <int _Zone> struct MY_INTERNAL_PART;",
    ],
)
def test_ordinary_attributes_and_names_are_let_through(text: str) -> None:
    assert source.tricks(text, library=False) is None
