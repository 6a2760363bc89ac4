"""What the host object of a version shows: what it calls, keeps and defines, and how it is laid out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from msbench.harness import screen
from msbench.harness.screen import objects, rules
from msbench.harness.screen.elf import ElfObject
from msbench.model import Candidate, Entry, Origin
from msbench.spec import Precision
from tests.harness.objects import compiled


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
        "__cudaRegisterManagedVar", "stdout", "stderr", "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    ],
)  # fmt: skip
def test_named_symbols_are_refused_in_words(name: str) -> None:
    assert not rules.allowed(name)
    assert rules.broken(name) is not None


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


def of_the_object(folder: Path, text: str, constants: dict[str, int | None] | None = None) -> str | None:
    return objects.tricks(compiled(folder, text), (), constants or {}, library=False)


def test_a_stream_that_a_macro_makes_shows_in_the_object(tmp_path: Path) -> None:
    text = """
        #define CALL(name) cuda##Stream##name
        extern "C" int CALL(CreateWithPriority)(void**, unsigned, int); extern "C" int cublasCreate_v2(void**);
        int f(void** p) { return cublasCreate_v2(p) + CALL(CreateWithPriority)(p, 1, 0); }
    """
    compiled(tmp_path, text)
    failure = screen.look_at_object(Candidate("x", Precision.FP32, "// msbench: link cublas"), tmp_path / "x.o")
    assert failure is not None
    assert "makes another stream than the one that it is given (cudaStreamCreateWithPriority)" in failure.message


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


def test_a_static_variable_that_is_set_in_the_first_call_is_named(tmp_path: Path) -> None:
    text = '#include <cstdlib>\nextern "C" int launcher(void* p) {{ {} return n; }}'.format
    named = (
        "keeps state between calls (launcher::n, a static variable that is set in the first call: find it out in each)"
    )
    for variable in (
        "static const int n = [] { return std::malloc(1) != 0; }();",
        "static bool n = (std::free(p), true);",
    ):
        assert of_the_object(tmp_path, text(variable)) == named
    assert of_the_object(tmp_path, text("static int n; ++n;")) == "keeps state between calls (the variable launcher::n)"


def test_exceptions_are_for_compilers_to_handle(tmp_path: Path) -> None:
    ordinary = """
        #include <stdexcept>
        int f(int n) { try { if (n) throw std::runtime_error("n"); } catch (const std::exception& e) { return e.what()[0]; } return 0; }
        int g(int n) { try { return f(n); } catch (...) { throw; } }
    """
    assert of_the_object(tmp_path, ordinary) is None
    kept = "#include <exception>\nvoid f() { new std::exception_ptr(std::current_exception()); }"
    assert "reaches into the C++ runtime (std::current_exception())" in (of_the_object(tmp_path, kept) or "")
    own = 'extern "C" void* __cxa_get_globals(); void* f() { return __cxa_get_globals(); }'
    assert of_the_object(tmp_path, own) == "reaches into the C++ runtime (__cxa_get_globals)"


def test_what_writes_to_the_terminal_prints(tmp_path: Path) -> None:
    for stream in ("stderr", "stdout"):
        trick = of_the_object(tmp_path, f'#include <cstdio>\nvoid f(int n) {{ std::fprintf({stream}, "%d", n); }}')
        assert (trick or "").startswith("prints (")


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
