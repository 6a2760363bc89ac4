"""Sources that would take a machine apart while they compile: each ends soon, in one sentence that names the limit."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from msbench import emulator, limits
from msbench.executors.cpu import CpuExecutor
from msbench.harness.build import compile as build
from msbench.model import BuildResult, Candidate, Fault
from msbench.spec import Precision
from tests.gpu.fake_gpu import OPERATOR, tools

GOOD = """
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
MACROS = "#define A0 1,\n" + "".join(f"#define A{n + 1} {f'A{n} ' * 10}\n" for n in range(9)) + "int y[] = { A9 };\n"
ENDLESS = (
    "template <int n, long m> struct F { static constexpr long v = F<n - 1, 2 * m>::v + F<n - 1, 2 * m + 1>::v; };\n"
    "template <long m> struct F<0, m> { static constexpr long v = 1; };\nstatic long v = F<40, 1>::v;\n"
)
MEMORY, FILE, TIME = "needed more than 1 GiB of memory", "wrote a file of more than 16 MiB", "did not finish within 2 s"

BOMBS = {
    "an endless file": ('#include "/dev/zero"\n', "includes a file from outside"),
    "a huge array": ("char huge[6ull << 30] = {1};\n", FILE),
    "a huge section": ('asm(".data\\n.fill 100000000\\n.text\\n");\n', FILE),
    "instances without end": (ENDLESS, f"{MEMORY}|{TIME}"),
    "macros": (MACROS, f"{MEMORY}|{FILE}|{TIME}"),
    "recursion": ("template <int n> struct F { static constexpr int v = F<n + 1>::v; };\nint v = F<0>::v;\n", "recursion|depth"),
    "a constant without end": (
        "constexpr long f() { long s = 0; for (long i = 0;; ++i) s += i; return s; }\nstatic_assert(f());\n",
        "constant",
    ),
    "itself": ("#include __FILE__\n", "includes a file whose name a macro makes"),
}  # fmt: skip


Compiler = Callable[[str], BuildResult]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    emulator.find().prepared(sanitize=False)  # which is no bomb, and larger than they may get
    monkeypatch.setattr(limits, "COMPILE_BYTES", 2**30)
    monkeypatch.setattr(limits, "FILE_BYTES", 2**24)


def nvcc(source: str) -> BuildResult:
    return build.build(OPERATOR, Candidate("scale", Precision.FP32, source), tools(), "sm_90a")


def host(source: str) -> BuildResult:
    with CpuExecutor(emulator.find()) as executor:
        return executor.build(OPERATOR, Candidate("scale", Precision.FP32, source))


@pytest.mark.parametrize("compiler", [nvcc, host])
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_in_one_sentence(name: str, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb, says = BOMBS[name]
    if TIME in says:
        monkeypatch.setattr(limits, "COMPILE_S", 2.0)
    failure = compiler(bomb + GOOD).failure
    assert failure is not None
    assert any(part in failure.message for part in says.split("|")), failure
    assert ". " not in failure.message
    if MEMORY in failure.message:
        assert failure.fault is Fault.OUT_OF_MEMORY


@pytest.mark.parametrize("compiler", [nvcc, host])
def test_a_kernels_own_words_are_no_limit(compiler: Compiler) -> None:
    failure = compiler("#error Killed: out of memory, File too large\n" + GOOD).failure
    assert failure is not None
    assert failure.fault is Fault.COMPILE
    assert "#error" in failure.message


def test_all_that_a_compiler_started_is_killed(tmp_path: Path) -> None:
    script = "sleep 301 & echo $! > child; sleep 301"
    start = time.monotonic()
    ended = limits.compile_within(["/bin/sh", "-c", script], tmp_path, dict(os.environ), 0.5)
    assert time.monotonic() - start < 10
    assert (ended.code, ended.kind) == (None, "timeout")
    child = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    deadline = time.monotonic() + 5
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"


def test_what_a_compiler_says_is_kept_within_bounds(tmp_path: Path) -> None:
    ended = limits.compile_within(["/bin/sh", "-c", "yes"], tmp_path, dict(os.environ), 20.0)
    assert ended.kind == "compile"
    assert FILE in ended.limit
    assert len(ended.said) <= 2**22


def test_half_of_the_memory() -> None:
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**28 < limits.memory() <= there // 2
