"""What is refused before it runs, and what only looks like it. The exploit corpus has a whole kernel for most of these."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from msbench.harness import screen
from msbench.harness.gpu_runner import forbidden_work
from msbench.harness.screen import device, rules, source
from msbench.harness.screen.elf import ElfObject
from msbench.model import Candidate, Fault, Origin
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
    ],
)
def test_what_only_looks_like_a_trick(text: str) -> None:
    assert source.tricks(text, library=False) is None


def test_a_library_version_may_allocate_but_start_no_threads() -> None:
    def refused(text: str, **fields: object) -> bool:
        return screen.look_at_source(Candidate("x", Precision.FP32, text, **fields)) is not None  # type: ignore[arg-type]

    allocates, threads = "cudaMalloc(&p, 4); cublasCreate(&h);", "pthread_create(a, b, c, d);"
    assert refused(allocates)
    assert not refused(allocates, origin=Origin.LIBRARY)
    assert not refused("// msbench: link cublas\n" + allocates)
    assert refused(threads, origin=Origin.LIBRARY)


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


def test_device_variables_are_state_unless_they_are_constant() -> None:
    ptx = """
.global .align 4 .u32 counter;
.const .align 4 .b8 konst[16];
.global .align 4 .b8 table[16] = {0, 0};
.global .align 1 .b8 _ZN34_INTERNAL_e6057c8c_4_a_cu_8ca2a4bf4cuda3std3__45__cpo5beginE[1];
.global .align 4 .b8 __cudart_i2opi_f[24] = {65};
.visible .entry _Z1kPf(
"""
    declared = (
        "static  __device__  __var_used__ int counter;\nstatic  __device__  __var_used__ const float table[4] = {1};\n"
    )
    assert device.tricks(ptx, declared) == "keeps state between calls (the device variable counter)"
    assert device.tricks(ptx.replace(".global .align 4 .u32 counter;", ""), declared) is None
    written = device.tricks(ptx.replace(".global .align 4 .u32 counter;", ""), declared.replace("const ", ""))
    assert written == "keeps state between calls (the device variable table)"


def test_host_assembly_is_told_from_the_devices() -> None:
    code = '# 1 "/usr/include/x.h"\n__asm__("pause");\n# 3 "k.cu"\n#if 0\n__asm__ volatile("bar.sync 0;");\n#endif\nint x;\n'
    assert not device.host_assembly(code, "k.cu")
    assert device.host_assembly(code + '# 9\nasm("nop");\n', "k.cu")


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
