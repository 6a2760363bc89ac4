"""Builds: cached, timed, with the kernel's own lines in what the compiler says, and clean under AddressSanitizer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from msbench import emulator
from msbench.emulator import host_compiler
from msbench.emulator.unsupported import unsupported_construct
from msbench.errors import BuildError, ToolchainError, UnsupportedError
from tests import turns
from tests.emulator.test_kernels import HERE, KERNELS, functions_in

HELLO = 'extern "C" __attribute__((visibility("default"))) int hello() { return 1; }\n'


def test_same_input_is_built_once() -> None:
    first, again = emulator.build(HELLO, "hello.cu"), emulator.build(HELLO, "hello.cu")
    assert again.cached
    assert again.library == first.library
    assert again.seconds == first.seconds
    assert emulator.build(HELLO, "other.cu").id != first.id
    assert emulator.build(HELLO, "hello.cu", preinclude="#define X 1\n").id != first.id
    assert emulator.build(HELLO, "hello.cu", sanitize=True).id != first.id


def test_a_changed_header_is_another_build(tmp_path: Path) -> None:
    source = '#include "h.cuh"\n' + HELLO
    ids = []
    for value in ("1", "2"):
        (tmp_path / "h.cuh").write_text(f"constexpr int x = {value};\n")
        ids.append(emulator.build(source, "hello.cu", include_dirs=(tmp_path,)).id)
    assert ids[0] != ids[1]


@turns.costly
def test_a_fresh_cache_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path / "new" / "cache"))
    built = emulator.build(HELLO, "hello.cu")
    assert not built.cached
    assert (tmp_path / "new" / "cache") in built.library.parents


def test_a_cache_that_cant_be_made_is_said_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_CACHE", "/proc/nowhere")
    with pytest.raises(ToolchainError, match="MSBENCH_CACHE"):
        emulator.build(HELLO, "hello.cu")


def test_errors_have_the_files_own_lines(tmp_path: Path) -> None:
    (tmp_path / "h.cuh").write_text("\n\nint broken = missing;\n")
    with pytest.raises(BuildError) as caught:
        emulator.build('#include "h.cuh"\n', "kernel.cu", include_dirs=(tmp_path,))
    assert str(caught.value).startswith("h.cuh:3:")
    source = "__global__ void k(int* p) { p[0] = 1; }\n\nvoid f(int* p) {\n  k<<<1, 1>>>(p, 2);\n}\n"
    with pytest.raises(BuildError) as caught:
        emulator.build(source, "kernel.cu")
    assert str(caught.value).startswith("kernel.cu:4:")
    assert "k<<<1, 1>>>(p, 2);" in caught.value.log  # the line as its author wrote it


def test_a_compilation_that_takes_too_long_is_stopped() -> None:
    slow = "template <int n> struct A { static constexpr long v = A<n - 1>::v + A<n - 2>::v + n; };\n"
    endless = 'constexpr long f(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i % 7; return s; }\nstatic_assert(f(1l << 40) == 0, "");\n'
    with pytest.raises(BuildError, match="did not finish within"):
        emulator.build(f'#pragma GCC optimize("O2")\n{slow}{endless}', "slow.cu", time_limit_s=0.05)


@pytest.mark.parametrize(
    ("log", "construct"),
    [
        ("k.cu:3:10: fatal error: cublas_v2.h: No such file or directory", "cuBLAS (k.cu:3)"),
        ("k.cu:3:10: fatal error: mine.h: No such file or directory", None),
        ("k.cu:9:3: error: 'thrust' has not been declared", "Thrust (k.cu:9)"),
        (
            "k.cu:9:3: error: 'foo' was not declared in this scope\nk.cu:10:3: error: 'thrust' has not been declared",
            None,
        ),
        ("k.cu:7:3: error: 'DeviceScan' is not a member of 'cub'", "device-level CUB (cub::DeviceScan) (k.cu:7)"),
        ("undefined reference to `x'", None),
        (
            "k.cu:4:2: error: '__isShared' was not declared in this scope",
            "an intrinsic that it lacks (__isShared) (k.cu:4)",
        ),
        (
            "k.cu:4:2: error: 'cudaDevAttrIntegrated' was not declared in this scope",
            "a part of the runtime API that it lacks (cudaDevAttrIntegrated) (k.cu:4)",
        ),
        ("k.cu:4:2: error: 'cudaGetLastErorr' was not declared in this scope", None),
        (
            "k.cu:4:2: error: 'struct cudaDeviceProp' has no member named 'textureAlignment'",
            "cudaDeviceProp::textureAlignment (k.cu:4)",
        ),
    ],
)
def test_the_first_error_decides_whether_a_kernel_is_unsupported(log: str, construct: str | None) -> None:
    assert unsupported_construct(log) == construct


def test_an_unsupported_construct_names_its_line() -> None:
    with pytest.raises(UnsupportedError, match=r"TMA \(CUtensorMap\) \(kernel\.cu:2\)"):
        emulator.build("\n__global__ void k(const CUtensorMap map) {}\n", "kernel.cu")


def test_compilers_that_will_not_do_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="apt install g"):
        emulator.find(str(tmp_path / "none"))
    old = tmp_path / "g++"
    old.write_text("#!/bin/sh\ncase \"$1\" in -dumpfullversion) echo 9.4.0;; *) echo '#define __GNUC__ 9';; esac\n")
    old.chmod(0o755)
    with pytest.raises(ToolchainError, match=r"version 9\.4\.0; the cpu executor needs g\+\+ 11"):
        emulator.find(str(old))
    old.write_text("#!/bin/sh\nexit 1\n")
    host_compiler._examine.cache_clear()
    with pytest.raises(ToolchainError, match="does not work"):
        emulator.find(str(old))


def test_every_header_file_stands_alone(tmp_path: Path) -> None:
    shims = [p.relative_to(host_compiler.INCLUDE_DIR) for p in host_compiler.INCLUDE_DIR.rglob("*") if p.is_file()]
    assert len(shims) > 40
    source = "".join(f"#include <{p}>\n" for p in sorted(shims, key=str, reverse=True)) + HELLO
    emulator.build(source, "everything.cu")


@turns.costly
@pytest.mark.parametrize("file", ["warps", "progress"])
def test_known_answers_with_the_portable_switch(file: str) -> None:
    compiler = replace(emulator.find(), extra=("-DMSBENCH_CPU_UCONTEXT",))
    source = (KERNELS / f"{file}.cu").read_text()
    library = emulator.build(source, f"{file}.cu", include_dirs=(KERNELS,), compiler=compiler).library
    names = functions_in(file)
    argv = [sys.executable, str(HERE / "child.py"), str(library), "1", "3", "2", "60", *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {n: answer["message"] for n, answer in json.loads(done.stdout.splitlines()[-1]).items()} == dict.fromkeys(
        names, ""
    )


@pytest.mark.parametrize("file", ["threads", "warps", "cub"])
def test_known_answers_under_address_sanitizer(file: str) -> None:
    source = (KERNELS / f"{file}.cu").read_text()
    library = emulator.build(source, f"{file}.cu", include_dirs=(KERNELS,), sanitize=True).library
    preload = emulator.find().sanitizer_library()
    environment = os.environ | {
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:use_sigaltstack=0:alloc_dealloc_mismatch=0",
    }
    names = [n for n in functions_in(file) if n != "refused_launches"]
    argv = [sys.executable, str(HERE / "child.py"), str(library), "2", "3", "2", "60", *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert {
        name: answer["message"] for name, answer in json.loads(done.stdout.splitlines()[-1]).items()
    } == dict.fromkeys(names, "")
