"""Compiling candidates with the real nvcc: what comes out, what fails and how it is said, and the cache."""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msbench.errors import ToolchainError
from msbench.gpu.runner import NATIVE
from msbench.harness.build import compile as build
from msbench.model import BuildResult, Candidate, Fault
from msbench.spec import Precision
from tests.gpu.fake_gpu import OPERATOR, tools

GOOD = """\
__global__ void scale_kernel(const scalar_t* x, scalar_t* y, float a, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = scalar_t(float(x[i]) * a);
}
extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, float a, float mode, float spin_us, int64_t n,
                             void* workspace, size_t workspace_bytes, cudaStream_t stream) {
    scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, a, n);
    return cudaGetLastError();
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compile_(source: str, precision: Precision = Precision.FP32, **options: float) -> BuildResult:
    return build.build(OPERATOR, Candidate("scale", precision, source), tools(), "sm_90a", **options)


@pytest.mark.parametrize("precision", list(Precision))
def test_a_kernel_becomes_a_library_with_the_adapter(precision: Precision) -> None:
    built = compile_(GOOD, precision)
    assert built.failure is None, built.failure
    assert built.binary is not None
    library = ctypes.CDLL(built.binary)
    assert library.msbench_launch
    assert library.msbench_workspace
    assert [k["name"].partition("(")[0] for k in built.kernels] == ["scale_kernel"]
    assert built.kernels[0]["registers"] > 0
    assert built.kernels[0]["spill_store_bytes"] == 0
    assert "arch=compute_90a,code=sm_90a" in built.flags


def test_no_version_knows_when_it_was_built() -> None:
    same = "constexpr char at[] = __TIME__; static_assert(at[0] == 48 && at[1] == 48 && at[3] == 48 && at[4] == 48 && at[6] == 48);"
    assert compile_(f"{same}\n{GOOD}").failure is None


def test_the_second_time_it_comes_from_the_cache() -> None:
    first, second = compile_(GOOD), compile_(GOOD)
    assert not first.cached
    assert second == dataclasses.replace(first, cached=True)
    assert compile_(GOOD + "// another source\n").id != first.id
    assert compile_(GOOD, Precision.BF16).id != first.id


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("", ""),
        ('#include "a.cuh"', "ab"),
        ("#include <b.cuh>", "b"),
        ('#/* so */ include "c.cuh"', "c"),
        ('#include "c.\\\n  cuh"', ""),
        ('#include "c.c\\\nuh"', "c"),
        ("#define FILE <c.cuh>\n#include FILE", "abc"),
        ("#define NAME(x) <x.cuh>\n# include NAME(c)", "abc"),
        ("%:include_next NAME", "abc"),
    ],
)
def test_a_build_is_another_one_when_what_it_may_include_changes(
    source: str, uses: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"a.cuh": '#pragma once\n#include "b.cuh"', "b.cuh": "int b;", "c.cuh": "int c;"}

    def included() -> str:
        return build._included(source)

    monkeypatch.setattr(build, "_headers", lambda: headers)
    before = included()
    changed = ""
    for name, text in headers.items():
        monkeypatch.setattr(build, "_headers", lambda name=name, text=text: {**headers, name: f"{text} // new"})
        changed += name[0] * (included() != before)
    assert changed == uses


def test_a_damaged_cache_is_built_again(cache: Path) -> None:
    (cache / "builds" / compile_(GOOD).id / "facts.json").write_text("{")
    again = compile_(GOOD)
    assert again.failure is None
    assert again.binary is not None
    assert Path(again.binary).is_file()


def test_builds_run_side_by_side(cache: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(compile_, [GOOD] * 3))
    assert len({b.binary for b in built}) == 1
    assert all(b.failure is None for b in built)
    assert not list((cache / "tmp").iterdir())
    assert len(list((cache / "builds").iterdir())) == 1


@pytest.mark.parametrize(
    ("source", "fault", "says"),
    [
        ("", Fault.EMPTY, "holds no code. The launcher must be: extern"),
        ("// nothing\n/* at\nall */\n", Fault.EMPTY, "holds no code"),
        (GOOD.replace("* a)", "* b)"), Fault.COMPILE, 'scale.cu line 3: identifier "b" is undefined.'),
        (GOOD.rpartition("}")[0], Fault.COMPILE, "At the end of the file"),
        ('#include "nothere.h"\n' + GOOD, Fault.COMPILE, "scale.cu line 1: nothere.h: No such file"),
        (GOOD.replace("cudaError_t scale", "int scale"), Fault.SIGNATURE, "The launcher must be: extern"),
        (GOOD.replace("scale(const scalar_t* x", "scale(const double* x"), Fault.SIGNATURE, "The launcher must be"),
        (GOOD.replace("cudaError_t scale", "cudaError_t scales"), Fault.SIGNATURE, "There is no launcher scale"),
        (GOOD.replace('extern "C" ', "").replace("int64_t n,\n", "int n,\n"), Fault.SIGNATURE, "There is no launcher"),
        ("void other();\n" + GOOD.replace("scale_kernel<<<", "other(); scale_kernel<<<"), Fault.LINK, "other()"),
        ("// msbench: link foo\n" + GOOD, Fault.LINK, "'foo' is none of these"),
    ],
)
def test_what_is_wrong_is_said_in_the_kernels_own_lines(source: str, fault: Fault, says: str) -> None:
    failure = compile_(source).failure
    assert failure is not None
    assert failure.fault is fault, failure
    assert says in failure.message


def test_a_compilation_without_end_is_stopped() -> None:
    bomb = """
    template <int N> struct Fork { static constexpr int value = Fork<N - 1>::value + Fork<N - 1>::value + sizeof(Fork<N>*); };
    template <> struct Fork<0> { static constexpr int value = 1; };
    template <unsigned long long N> constexpr unsigned long long spin() { unsigned long long s = 0; for (unsigned long long i = 0; i < N; ++i) s += i; return s; }
    """ + "".join(f"__device__ constexpr auto x{i} = spin<{1000000 + i}>();\n" for i in range(400))  # fmt: skip
    start = time.monotonic()
    failure = compile_(bomb + GOOD, time_limit_s=1.0).failure
    assert failure is not None
    assert failure.fault is Fault.TIMEOUT
    assert time.monotonic() - start < 20


def test_a_library_that_is_not_installed_is_no_verdict_on_the_kernel() -> None:
    without = dataclasses.replace(tools(), library_dirs=())
    candidate = Candidate("scale", Precision.FP32, "// msbench: link cublas\n" + GOOD)
    failure = build.build(OPERATOR, candidate, without, "sm_90a").failure
    assert failure is not None
    assert failure.fault is Fault.UNSUPPORTED
    assert "libcublas.so is not installed" in failure.message


def test_a_cache_that_cannot_be_written_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolchainError, match="Set MSBENCH_CACHE"):
        compile_(GOOD)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_the_runner_compiles(arch: str) -> None:
    assert build.native(NATIVE, tools(), arch) == build.native(NATIVE, tools(), arch)


def test_a_changed_header_of_the_runner_is_another_build(tmp_path: Path) -> None:
    before = build.native(NATIVE, tools(), "sm_90a")
    native = shutil.copytree(NATIVE.parent, tmp_path / "native")
    assert build.native(native / NATIVE.name, tools(), "sm_90a") == before
    with (native / "runner" / "call.cuh").open("a") as header:
        header.write("// changed\n")
    assert build.native(native / NATIVE.name, tools(), "sm_90a") != before


@pytest.mark.parametrize(
    ("before", "inside", "says"),
    [
        ('#include "/etc/hostname"\n', "", "includes a file from outside: /etc/hostname"),
        ("", 'asm(".inc" "bin \\"/etc/hostname\\"");', "takes in another file (.incbin in an asm statement)"),
        ("__device__ void* kept(int bytes) { return malloc(bytes); }\n", "", "allocates memory from the device"),
    ],
)
def test_what_a_file_may_not_do_fails_its_build(cache: Path, before: str, inside: str, says: str) -> None:
    source = GOOD.replace("    scale_kernel<<<", f"    {inside}\n    scale_kernel<<<")
    if "kept" in before:
        source = source.replace(
            "    if (i < n)", "    if (n == 1 << 30) y[i] = *static_cast<float*>(kept(4));\n    if (i < n)"
        )
    built = compile_(before + source)
    assert built.failure is not None
    assert built.failure.fault is Fault.FORBIDDEN
    assert says in built.failure.message
    assert not (cache / "builds" / built.id).exists()


def test_a_build_that_has_gone_from_the_cache_is_said(tmp_path: Path) -> None:
    for content in (None, "{", '{"sass": null}'):
        if content is not None:
            (tmp_path / "facts.json").write_text(content, encoding="utf-8")
        with pytest.raises(ToolchainError, match=r"The build in .+ can't be read: .+ start again"):
            build.variables(tmp_path / "kernel.so")
