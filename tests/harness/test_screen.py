"""What is refused before it runs, and what only looks like it. The exploit corpus has a whole kernel for most of these."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from msbench.harness import screen
from msbench.harness.gpu_runner import forbidden_work
from msbench.harness.screen import device, objects, rules, source
from msbench.harness.screen.elf import ElfObject
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


@pytest.mark.parametrize(
    "name", ["expf", "fmaxf", "sincosf", "memset", "_Znwm", "cudaMemsetAsync", "cudaLaunchKernelExC"]
)
def test_ordinary_symbols_are_allowed(name: str) -> None:
    assert rules.allowed(name)
    assert rules.broken(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "dlsym", "dlopen", "pthread_create", "fork", "system", "open64", "fopen", "read", "mmap", "socket", "getenv", "kill",
        "ptrace", "prctl", "syscall", "setrlimit", "atexit", "cudaMalloc", "cudaMallocAsync", "cudaFree", "cudaStreamCreate",
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaMemcpy", "cudaGraphLaunch", "cudaDeviceSetLimit",
        "cudaCtxResetPersistingL2Cache", "cudaStreamSetAttribute", "cuGetProcAddress_v2", "cublasSgemm_v2", "cudnnCreate",
        "cusparseCreate", "cufftExecC2C", "cudaLibraryLoadData", "cudaLaunchHostFunc", "cudaGetSymbolAddress", "cuMemAlloc_v2",
        "__cudaRegisterManagedVar", "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    ],
)  # fmt: skip
def test_named_symbols_are_refused_in_words(name: str) -> None:
    assert not rules.allowed(name)
    assert rules.broken(name) is not None


def compiled(folder: Path, text: str) -> ElfObject:
    (folder / "x.cpp").write_text(text, encoding="utf-8")
    subprocess.run(["g++", "-O1", "-fPIC", "-c", "x.cpp", "-o", "x.o"], cwd=folder, check=True)
    return ElfObject(folder / "x.o")


def test_an_object_tells_symbols_sections_and_references(tmp_path: Path) -> None:
    text = """
        extern "C" int puts(const char*); extern "C" void f(); int zero; int one = 1; const int two = 2; thread_local int own;
        __attribute__((constructor)) void early() {} void g() { puts("a"); puts("b"); f(); own = two; }
        const int* p() { return &two; }
    """
    found = compiled(tmp_path, text)
    assert {"puts", "f"} <= {s.name for s in found.symbols if s.undefined}
    assert {"zero", "one", "own"} == {s.name for s in found.symbols if s.mutable}
    assert [s.size for s in found.sections if s.runs_code] == [8]
    assert (found.references("puts"), found.references("nobody")) == (2, 0)


def test_what_is_no_object_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.o").write_text("text")
    with pytest.raises(ValueError, match="no 64-bit little-endian ELF object"):
        ElfObject(tmp_path / "x.o")


PTX = """
.extern .func __assertfail
(
	.param .b64 __assertfail_param_0
)
;
.global .align 4 .u32 counter;
.const .align 4 .b8 konst[16];
.const .align 8 .f64 _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own4halfE = 0d3FE0000000000000;
.global .align 8 .u64 texts[2] = {generic($str), generic($str$1)};
.global .align 4 .b8 _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE[16] = {0, 0};
.global .align 1 .b8 $str$1[2] = {97};
.global .align 1 .b8 __unnamed_1[2] = {97};
.global .align 4 .b8 __cudart_i2opi_f[24] = {65};
.visible .entry _Z1kPf(
	.param .u64 .ptr .global .align 1 _Z1kPf_param_0
)
{
	// .global .u32 not_declared;
	ld.global.u32 %r1, [%rd1];
}
"""
DECLARED = """
# 3 "a.cu"
static  __device__  __var_used__ const int counter;
static  __device__  __var_used__ const char *const texts[2];
static  __device__  __var_used__ const float _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE[4] = {(1.0F)};
# 9
__global__ __var_used__ extern void _Z1kPf(float *);
"""


def of_the_device(ptx: str, declared: str) -> str | None:
    assert ptx != PTX or declared != DECLARED
    return device.tricks(ptx, declared, "a.cu")


def test_device_variables_are_state_unless_they_are_constant() -> None:
    assert device.tricks(PTX, DECLARED, "a.cu") is None
    state = "keeps state between calls (the device variable {})".format
    assert of_the_device(PTX, DECLARED.replace("const int counter", "int counter")) == state("counter")
    assert of_the_device(PTX, DECLARED.replace("*const texts", "*texts")) == state("texts")
    assert of_the_device(PTX, DECLARED.replace("const float", "float")) == state(
        "_ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own5tableE"
    )
    assert of_the_device(PTX.replace("__unnamed_1", "__unnamed"), DECLARED) == state("__unnamed")
    declared = "static  __device__  __var_used__ int __unnamed_1;\n"
    assert of_the_device(PTX, DECLARED + declared) == state("__unnamed_1")
    assert of_the_device(PTX.replace("counter", "counter, other"), DECLARED) == state("other")


@pytest.mark.parametrize(
    "text",
    [
        "{ .global .u32 $str; }",
        "/* */ .global .u32 $str;",
        "mov.u32 a, b; .global .b8 $str[9];",
        '.pragma "/*"; .global .u32 $str; .pragma "*/";',
        '{ .pragma "a\n"; /* " */ .global .u32 $str; /* " */ }',
        '/* " */ .global .u32 $str; // "',
        "/* /* */ .global .u32 $str; // */",
        "// /*\n.global .u32 $str; // */",
        "// a \\\n.global .u32 $str;",
        "// a\r\n.global .u32 $str;",
        ".align 4 .global .u32 $str;",
        ".align 0x4.global .u32 $str;",
        ".visible.align 4.global.align 4 .u32 $str;",
        '.pragma "nounroll"; .align 4 .global .v2 .u32 $str[2];',
        ".loc 1 1 1 .global .u32 $str;",
        "L1:.global .u32 $str;",
        "ld:.global .u32 $str;",
        ".attribute(.unified(1, 2)) .global .u32 $str;",
        ".pragma\t.global/**/.u32/**/$str;",
        "} .weak\n.global .u32 $str = 7; .func f() {",
        "} .common .global .attribute(.managed) .u32 $str; .func f() {",
    ],
)
def test_device_variables_of_inline_assembly_are_state_under_any_name(text: str) -> None:
    ptx = PTX.replace("ld.global", f"{text}\n\tld.global")
    assert of_the_device(ptx, DECLARED) == "keeps state between calls (the device variable $str)"


@pytest.mark.parametrize(
    "text",
    [
        "// a \r /* \n .global .u32 $str; // */",
        '.pragma "a\\";',
        '# 1 "a"',
        "@@DWARF .u32 x",
        "'",
        "/* open",
        '.pragma "open',
        "mov.u32\x0ca, b;",
        "// \0",
    ],
)
def test_ptx_that_may_be_read_in_two_ways_is_refused(text: str) -> None:
    found = of_the_device(PTX.replace("ld.global", f"{text}\n\tld.global"), DECLARED)
    assert (found or "").startswith("writes PTX that can't be read with certainty (")


def test_a_body_begins_at_its_brace_whatever_stands_before_it() -> None:
    ptx = PTX.replace(")\n{", ')\n.pragma "a";\n{').replace("ld.global", ".global .u32 $str;\n\tld.global")
    assert of_the_device(ptx, DECLARED) == "keeps state between calls (the device variable $str)"


@pytest.mark.parametrize(
    "code",
    [
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b, {c, d}], [e];",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], 16, [c];",
        "@!p1 red.relaxed.gpu.global.add.f32 [a], b; @p1 bra $L__BB0_1;",
        "{cvta.to.global.u64 a, b; atom.add.release.sys.global.u32 c, [a], 1;}",
        "tensormap.replace.tile.global_address.global.b1024.b64 [a], b;",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a, b}, [c];",
        "prefetch.global.L2::evict_last [a]; fence.proxy.async.global; isspacep.global p, a;",
        '// it\'s # not "code" \\\n/* nor @@ this " \'#\\ */ .pragma "nounroll";',
    ],
)
def test_instructions_on_global_memory_declare_nothing(code: str) -> None:
    assert of_the_device(PTX.replace("ld.global", f"{code}\n\tld.global"), DECLARED) is None


@pytest.mark.parametrize(
    ("types", "constant"),
    [
        ("typedef const int T;", True),
        ("typedef const int R;\ntypedef R T[2];", True),
        ("typedef int *const T;", True),
        ("typedef int (*const T)(int);", True),
        ("typedef int T;", False),
        ("typedef const int *T;", False),
        ("typedef const int *R;\ntypedef R T[2];", False),
        ("typedef int (*T)(const int);", False),
        ("typedef const int T;\ntypedef int T;", False),
        ("typedef T T;", False),
        ("typedef const int OtherT;", False),
        ("", False),
    ],
)
def test_a_types_name_may_say_that_it_is_constant(types: str, constant: bool) -> None:
    declared = f"{types}\n{DECLARED}".replace("const int counter", "T counter")
    assert (of_the_device(PTX, declared) is None) == constant
    assert of_the_device(PTX, declared.replace("T counter", "T *counter")) is not None


CUBIN = """
#define IN(name) __attribute__((section(name), used))
__attribute__((used)) static const int code = 1;
IN(".nv.global") int counter;
IN(".nv.global.init") static char text[2] __asm__("$str$1") = {97, 0};
IN(".nv.shared.reserved.0") int reserved;
"""


@pytest.mark.parametrize(
    ("added", "trick"),
    [
        ("", None),
        ('IN(".nv.global") int kept;', "keeps state between calls (the device variable kept)"),
        ('IN(".nv.global") static int kept __asm__("$str");', "keeps state between calls (the device variable $str)"),
        ('IN(".nv.other") int kept = 1;', "keeps state between calls (the device variable kept)"),
        ("int kept __attribute__((common));", "keeps state between calls (the device variable kept)"),
        (
            'asm(".pushsection .nv.other,\\"aw\\"; .zero 8; .popsection");',
            "keeps state between calls (the device variable without a name in .nv.other)",
        ),
        ('extern "C" int vprintf(int); int f() { return vprintf(1); }', "prints from the device (vprintf)"),
        # PTX needs no ".extern" before a function that it only declares
        ('extern "C" void* malloc(); void* f() { return malloc(); }', "allocates memory from the device (malloc)"),
    ],
)
def test_machine_code_holds_no_variable_that_its_ptx_does_not_declare(
    tmp_path: Path, added: str, trick: str | None
) -> None:
    cubin = compiled(tmp_path, CUBIN + added)
    assert device.tricks_of_machine_code(cubin, PTX) == trick
    of_another_size = PTX.replace(".u32 counter", ".u64 counter")
    state = "keeps state between calls (the device variable counter)"
    assert device.tricks_of_machine_code(compiled(tmp_path, CUBIN), of_another_size) == state


def test_a_version_whose_machine_code_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.ptx").write_text(PTX, encoding="utf-8")
    (tmp_path / "x.cudafe1.gpu").write_text(DECLARED.replace("a.cu", "x.cu"), encoding="utf-8")
    candidate = Candidate("x", Precision.FP32, "int f();")
    failure = screen.look_at_device_code(candidate, tmp_path, "x")
    assert failure is not None
    assert "leaves no machine code" in failure.message
    compiled(tmp_path, CUBIN)
    (tmp_path / "x.o").rename(tmp_path / "x.cubin")
    assert screen.look_at_device_code(candidate, tmp_path, "x") is None


def test_a_librarys_kernel_is_one_that_another_file_defines() -> None:
    headers = '# 9 "/usr/local/cuda/include/cccl/{}" 3'.format
    for path in ("cub/device/dispatch/kernels/reduce.cuh", "cub/util_device.cuh"):
        trick = of_the_device(PTX, DECLARED.replace("# 9", headers(path)))
        assert (trick is None) == path.endswith("util_device.cuh")
        assert trick is None or "calls a library's own kernels (_Z1kPf)" in trick
    assert "library's own kernels" in (of_the_device(PTX, DECLARED.replace("_Z1kPf(", "_Z1jPf(")) or "")
    text = '# 2 "a.cu"\nconst char *text = "__global__ __var_used__ void _Z1kPf(";\n'
    hidden = DECLARED.replace("# 9", headers("cub/device/dispatch/kernels/reduce.cuh")) + text
    assert "library's own kernels" in (of_the_device(PTX, hidden) or "")


def test_constants_have_names_and_sizes() -> None:
    assert device.constants(PTX) == {"konst": 16, "_ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf3own4halfE": 8}


def test_the_host_code_of_the_file_itself_is_told_from_the_rest() -> None:
    code = '# 1 "/usr/include/x.h"\n__asm__("pause");\n# 3 "k.cu"\n#if 0\n__asm__ volatile("bar.sync 0;");\n#endif\nint x;\n'
    assert device.host_trick(code, "k.cu") is None
    assert device.host_trick(code + "# 9\n(__cudaPushCallConfiguration(1, 2)) ? (void)0 : k(x);\n", "k.cu") is None
    assert device.host_trick(code + '# 9\nasm("nop");\n', "k.cu") == "holds assembly for the host"
    registers = device.host_trick(code + "# 9\n__cudaRegisterFatBinary(&x);\n", "k.cu")
    assert registers == "reaches into what the compilers add to it (__cudaRegisterFatBinary)"


@pytest.mark.parametrize(
    ("marker", "outside"),
    [
        ('"k.h" 1', False),
        ('"/own/include/msbench.cuh" 1', False),
        ('"/cuda/bin/../include/vector_types.h" 1', False),
        ('"/usr/include/stdio.h" 1 3 4', False),
        ('"/usr/include/stdio.h" 2 3 4', False),
        ('"/etc/passwd" 1', True),
        ('"../k.cu" 1', True),
        ('"/etc/passwd" 1 3 4', True),
        ('"/cuda/include/cooperative_groups/details/../../cooperative_groups.h" 1 3', False),
        ('"/usr/include/../../etc/passwd" 1 3 4', True),
        ('"/usr/include/../../tmp/include/best.cu" 1 3 4', True),
        ('"/usr/include/../include2/best.cu" 1 3 4', True),
        ('"/own/include/../secret/best.cu" 1', True),
    ],
)
def test_included_files_are_those_that_the_compiler_names(marker: str, outside: bool) -> None:
    text = f'# 1 "k.cu"\n# 1 "<command-line>" 1\n# 1 "/cuda/bin/../include/cuda_runtime.h" 1\n# 1 {marker}\nint x;\n# 2 "k.cu" 2\n'
    assert (device.includes(text, "/own/include") is not None) == outside


def of_the_object(folder: Path, text: str, constants: dict[str, int | None] | None = None) -> str | None:
    return objects.tricks(compiled(folder, text), (), constants or {}, library=False)


@pytest.mark.parametrize(
    "text",
    [
        "static int __nv_calls; int f() { return ++__nv_calls; }",
        'extern "C" { int _ZTVcalls[4]; }',
        "namespace cuda { static unsigned char calls; int f() { return ++calls; } }",
        "namespace std { inline int __nv_z; int* f() { return &__nv_z; } }",
        'asm(".data\\nkept: .quad 0\\n.text");',
        "static const struct { const void* p; mutable int n; } kept = {&kept, 0}; int f() { return ++kept.n; }",
    ],
)
def test_a_name_excuses_no_variable(tmp_path: Path, text: str) -> None:
    assert "keeps state between calls" in (of_the_object(tmp_path, text) or "")


def test_constant_tables_of_addresses_are_no_state(tmp_path: Path) -> None:
    assert (
        of_the_object(tmp_path, 'const char* const names[] = {"a", "b"}; const char* f(int i) { return names[i]; }')
        is None
    )


def test_a_constants_shadow_is_for_its_registration_alone(tmp_path: Path) -> None:
    text = """
        extern "C" void** __cudaRegisterFatBinary(void*);
        static int calls[4];
        __attribute__((constructor)) static void __sti____cudaRegisterAll() { __cudaRegisterFatBinary(calls); }
    """
    assert of_the_object(tmp_path, text, {"calls": 16}) is None
    state = "keeps state between calls (the variable calls)"
    assert of_the_object(tmp_path, text, {"calls": 8}) == state
    assert of_the_object(tmp_path, text, {"other": 16}) == state
    assert of_the_object(tmp_path, text + "int f(int i) { return ++calls[i]; }", {"calls": 16}) == state
    assert of_the_object(tmp_path, text + "int f() { calls[3] = 7; return 0; }", {"calls": 16}) == state
    assert (
        of_the_object(tmp_path, text + "int* const held = &calls[1]; int* f() { return held; }", {"calls": 16}) == state
    )


def test_what_is_linked_has_to_be_called(tmp_path: Path) -> None:
    obj = compiled(tmp_path, 'extern "C" int cublasLtMatmul(); int f() { return cublasLtMatmul(); }')
    assert objects.uncalled(obj, ("cublasLt",)) is None
    assert objects.uncalled(obj, ("cublas",)) == "says that it links cublas, and calls nothing of it"


def test_device_code_is_registered_once(tmp_path: Path) -> None:
    text = 'extern "C" void** __cudaRegisterFatBinary(void*); void f(void* p) { __cudaRegisterFatBinary(p); }'
    assert of_the_object(tmp_path, text) is None
    twice = of_the_object(tmp_path, text + " void g(void* p) { __cudaRegisterFatBinary(p); }")
    assert "loads device code at run time" in (twice or "")


def test_streams_excuse_no_other_constructor(tmp_path: Path) -> None:
    assert of_the_object(tmp_path, "#include <iostream>") is None
    early = '__attribute__((constructor)) void early() { asm(""); }'
    for streams in ("#include <iostream>\n", "#include <ios>\nvoid f() { std::ios_base::Init streams; }\n"):
        assert "runs code when it is loaded" in (of_the_object(tmp_path, streams + early) or "")


def test_what_a_recorded_call_may_hold(tmp_path: Path) -> None:
    binary = tmp_path / "kernel.so"
    binary.write_bytes(b"\0_Z3addPf\0")
    assert forbidden_work(["memset", "kernel _Z3addPf", "copy"], binary) is None
    assert "put nothing into its stream" in (forbidden_work([], binary) or "")
    assert "does not hold: sgemm" in (forbidden_work(["kernel _Z3addPf", "kernel sgemm"], binary) or "")
    assert "copies through the host" in (forbidden_work(["host copy"], binary) or "")
    for node in ("host function", "allocation", "node of type 4"):
        assert node in (forbidden_work([node], binary) or "")


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


PLACED = '__attribute__((section("{}"), used)) {} = {{1}};'.format


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PLACED(".text.table", "static const int kCode[]"), "keeps data among its code (_ZL5kCode)"),
        (PLACED(".gnu.linkonce.d.kept", "static const long kept"), "puts data into section .gnu.linkonce.d.kept"),
        (PLACED(".tm_clone_table", "static const long kept"), "puts data into section .tm_clone_table"),
        (PLACED('.rodata.kept,\\"aw\\"#', "static const long kept"), "puts data into section .rodata.kept"),
        (PLACED(".init", "static const char code[]"), "puts code into section .init"),
        ('asm(".section .note.GNU-stack,\\"x\\"");', "puts code into section .note.GNU-stack"),
        ('asm(".data\\n.type kept,@function\\nkept: .quad 0\\n.text");', "says that data is a function (kept)"),
        ('asm(".globl page\\npage = 0x510000000");', "holds assembly for the host (page)"),
        ('asm("ticks: rdtsc\\nret");', "keeps data among its code (ticks)"),
        ('asm(".type ticks,@function\\nticks: rdtsc\\nret");', "what lies between the functions of .text"),
        ('extern "C" int msbench_prepare() { return 0; }', "defines msbench_prepare, a name that is msbench's own"),
    ],
)  # fmt: skip
def test_every_object_is_laid_out_as_compilers_do(tmp_path: Path, text: str, says: str) -> None:
    assert says in (objects.tricks(compiled(tmp_path, text), (), {}, library=True) or "")


def test_an_object_has_no_more_sections_than_its_symbols_can_number(tmp_path: Path) -> None:
    many = "\n".join(f'.section .rodata.z{n},"a"' for n in range(0xFF00))
    (tmp_path / "x.s").write_text(f'{many}\n.section .data.kept,"aw"\nkept: .quad 1\n', encoding="utf-8")
    subprocess.run(["g++", "-c", "x.s", "-o", "x.o"], cwd=tmp_path, check=True)
    assert "section .symtab_shndx" in (objects.tricks(ElfObject(tmp_path / "x.o"), (), {}, library=False) or "")


@pytest.mark.parametrize(
    "text",
    [
        "long {}; int f() {{ return ++{}; }}",
        'extern "C" {{ long {}; }} int f() {{ return ++{}; }}',
        "inline long {}; int f() {{ return ++{}; }}",
        "__attribute__((weak)) long {}; int f() {{ return ++{}; }}",
    ],
)
@pytest.mark.parametrize("name", ["_ZZ1__device_stub_xE3__f", "_ZL20__cudaFatCubinHandle", "_ZStL8__ioinit"])
def test_a_compilers_own_variable_is_bound_as_it_does(tmp_path: Path, text: str, name: str) -> None:
    assert "keeps state between calls" in (of_the_object(tmp_path, text.format(name, name)) or "")


def test_what_the_linker_adds_is_no_place_for_state(tmp_path: Path) -> None:
    handle = 'extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;'
    assert "keeps state" in (of_the_object(tmp_path, f"{handle} void f(void* p) {{ __dso_handle = p; }}") or "")
    streams = f"#include <iostream>\n{handle} void f(void* p) {{ __dso_handle = p; }}"
    assert "in what the linker adds" in (of_the_object(tmp_path, streams) or "")


@pytest.mark.parametrize("place", ["&calls[4]", "&calls[-1]", "&calls[40]"])
def test_a_constants_shadow_is_not_reached_from_beside_it(tmp_path: Path, place: str) -> None:
    text = f"""
        extern "C" void** __cudaRegisterFatBinary(void*);
        static int calls[4];
        __attribute__((constructor)) static void __sti____cudaRegisterAll() {{ __cudaRegisterFatBinary(calls); }}
        int* f() {{ return {place}; }}
    """
    assert "keeps state between calls (" in (of_the_object(tmp_path, text, {"calls": 16}) or "")


def test_only_what_msbench_adds_defines_what_a_worker_looks_for(tmp_path: Path) -> None:
    compiled(tmp_path, 'extern "C" int msbench_call() { return 0; } extern "C" void msbench_choose_anew() {}')

    def refused(**fields: object) -> str:
        candidate = Candidate("x", Precision.FP32, "", **fields)  # type: ignore[arg-type]
        failure = screen.look_at_object(candidate, tmp_path / "x.o")
        return failure.message if failure else ""

    assert "defines msbench_call" in refused()
    assert "defines msbench_call" in refused(origin=Origin.LIBRARY)
    assert "defines msbench_choose_anew" in refused(entry=Entry("", "", "x", ""))
