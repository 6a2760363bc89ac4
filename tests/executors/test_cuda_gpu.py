"""The cuda executor on a real GPU: `pytest -m gpu`. Wrong kernels of every kind, and what a measurement must be able to tell."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest
from rich.console import Console

from msbench import operators
from msbench.errors import DeviceError
from msbench.executors import Options
from msbench.executors.cuda import CudaExecutor, create
from msbench.gpu import runner as gpu_runner
from msbench.gpu.job import Job
from msbench.harness.arena import Layout
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Plan
from msbench.model import Candidate, Evaluation, Fault, Status, Study
from msbench.report import Live
from msbench.spec import Array, Case, Dim, Operator, Precision, Scalar, Split, Task
from msbench.statistics import bootstrap_ratio, median
from msbench.study.record import Settings, record
from msbench.study.subjects import Subject

pytestmark = pytest.mark.gpu

SMALL = Case((("n", 1024),), Split.PAPER)
LARGE = Case((("n", 1 << 26),), Split.LARGE)

OPERATOR = Operator(
    name="scale",
    title="Scale",
    scenario="test",
    definition="y = a x",
    dims=(Dim("n", 1, 1 << 27),),
    arrays=(Array("x", ("n",)), Array("y", ("n",), output=True)),
    cases=(SMALL, LARGE, Case((("n", 1003),), Split.ODD)),
    scalars=(Scalar("a", "float", 3.0),),
    reference=lambda xp, x, a, **_: a * x,
    bound=lambda xp, u, out, **_: 2 * u * abs(out["y"]) + 1e-38,
    nbytes=lambda itemsize, n: 2 * n * itemsize,
    flops=lambda n: n,
)

GOOD = """\
__global__ void scale_kernel(const scalar_t* x, scalar_t* y, float a, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    /* before */
    if (i < n) y[i] = scalar_t(float(x[i]) * a);
    /* after */
}
extern "C" cudaError_t scale(const scalar_t* x, scalar_t* y, float a, int64_t n, void* workspace,
                             size_t workspace_bytes, cudaStream_t stream) {
    /* host */
    scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, a, n);
    return cudaGetLastError();
}
"""

ILLEGAL = GOOD.replace("/* before */", "if (i == 5) *(volatile int*)0x10 = 1;")
HANGS = GOOD.replace("/* before */", "while (*(volatile const scalar_t*)x != scalar_t(12345.0f)) {}")
OUT_OF_BOUNDS = GOOD.replace("/* after */", "if (i == 0) y[n] = scalar_t(1.0f);")
TOO_MANY_THREADS = GOOD.replace("256, 0, stream", "2048, 0, stream")
UNREPORTED = TOO_MANY_THREADS.replace("return cudaGetLastError()", "return cudaSuccess")
WRONG = GOOD.replace("* a)", "* a * 1.01f)")
UNWRITTEN = GOOD.replace("if (i < n)", "if (i < n / 2)")
INPUT = GOOD.replace("/* after */", "if (i == 0) const_cast<scalar_t*>(x)[0] = scalar_t(0.5f);")
READS_ON = GOOD.replace("x[i]) * a", "x[i]) * a + (i == n - 1 && __float_as_int(float(x[i + 1])) == 7 ? 1 : 0)")
TRAPS = GOOD.replace("/* before */", 'if (i == 0) asm volatile("trap;");')
SYNCHRONIZES = GOOD.replace("return cudaGetLastError()", "return cudaStreamSynchronize(stream)")
ESCAPES = GOOD.replace(
    "/* host */", "static cudaStream_t own; if (!own) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);"
).replace("256, 0, stream", "256, 0, own")
SLOWER = GOOD.replace(  # every eighth warp reads twice: 6 % more bytes
    "/* before */", 'if (i < n && i / 32 % 8 == 0) asm volatile("" :: "f"(float(x[(i + n / 2) % n])));'
)
STAYS = GOOD.replace(
    "/* before */", 'unsigned long long last; asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(last));'
).replace(
    "if (i < n) y[i] = scalar_t(float(x[i]) * a);",
    """float value = 0;
    if (i < n) asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(value) : "l"(x + i), "l"(last));
    if (i < n) y[i] = value * a;""",
)
TWICE = GOOD.replace(
    "    return cuda", "    scale_kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, a, n);\n    return cuda"
)


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    with create(Options()) as executor:
        yield executor


def run(executor: CudaExecutor, *sources: str, cases: tuple[Case, ...] = (SMALL,), **options: Any) -> list[Evaluation]:
    candidates = [Candidate("scale", Precision.FP32, f"{s}// {n}\n", label=str(n)) for n, s in enumerate(sources)]
    plan = Plan(**{"cases": cases, "checks": Checks.QUICK, "time_budget_s": 2.0, **options})
    return evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="pytest")


def test_a_right_kernel_passes_every_check_and_is_measured(executor: CudaExecutor) -> None:
    (result,) = run(executor, GOOD, checks=Checks.FULL, cases=(SMALL, LARGE))
    assert result.status is Status.PASSED, result.failure
    small, large = result.measurements
    for one in (small, large):
        assert one.hot_ns is not None, one.hot_note
        assert one.host_ns is not None
        assert one.floor_ns is not None
    bandwidth = OPERATOR.nbytes(4, n=1 << 26) / (median([s for r in large.samples_ns for s in r]) * 1e-9)
    assert 0.5 < bandwidth / executor.ceilings().copy_bytes_per_s < 1.1


@pytest.mark.parametrize(
    ("source", "status", "fault"),
    [
        (ILLEGAL, Status.CHECK_FAILED, Fault.CRASH),
        (TRAPS, Status.CHECK_FAILED, Fault.CRASH),
        (OUT_OF_BOUNDS, Status.CHECK_FAILED, Fault.OUT_OF_BOUNDS),
        (TOO_MANY_THREADS, Status.CHECK_FAILED, Fault.LAUNCH),
        (UNREPORTED, Status.CHECK_FAILED, Fault.LAUNCH),
        (WRONG, Status.CHECK_FAILED, Fault.MISMATCH),
        (UNWRITTEN, Status.CHECK_FAILED, Fault.UNWRITTEN),
        (INPUT, Status.CHECK_FAILED, Fault.INPUT_CHANGED),
        (SYNCHRONIZES, Status.CHECK_FAILED, Fault.FORBIDDEN),
        (ESCAPES, Status.CHECK_FAILED, Fault.FORBIDDEN),
    ],
    ids=[
        "illegal address", "trap", "out of bounds", "launch error", "unreported launch error", "wrong", "unwritten",
        "writes its input", "synchronises", "another stream",
    ],
)  # fmt: skip
def test_a_bad_kernel_is_one_failed_evaluation_and_the_next_one_works(
    executor: CudaExecutor, source: str, status: Status, fault: Fault
) -> None:
    bad, good = run(executor, source, GOOD)
    assert bad.failure is not None
    assert (bad.status, bad.failure.fault) == (status, fault), bad.failure.message
    assert good.status is Status.PASSED, good.failure
    (after,) = run(executor, GOOD)
    assert after.status is Status.PASSED, after.failure


def test_a_hanging_kernel_is_killed_and_the_next_one_works(
    executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_runner, "LAUNCH_LIMIT_S", 5.0)
    (bad,) = run(executor, HANGS)
    assert bad.failure is not None
    assert (bad.status, bad.failure.fault) == (Status.CHECK_FAILED, Fault.TIMEOUT), bad.failure.message
    monkeypatch.undo()
    (after,) = run(executor, GOOD)
    assert after.status is Status.PASSED, after.failure


@pytest.mark.parametrize("case", [SMALL, LARGE], ids=["smallest", "largest"])
def test_a_kernel_is_as_fast_as_itself(executor: CudaExecutor, case: Case) -> None:
    first, second = run(executor, GOOD, GOOD, cases=(case,))
    mine, other = first.measurements[0], second.measurements[0]
    estimate, low, high = bootstrap_ratio(mine.samples_ns, other.samples_ns, sittings=mine.sittings)
    assert abs(estimate - 1) <= 0.01, (low, estimate, high)
    assert low <= 1.01
    assert high >= 0.99


def test_what_ran_before_moves_neither_the_floor_nor_a_call(executor: CudaExecutor) -> None:
    """A launch's cost depends on its number modulo four; a batch has every call at every place equally often."""
    candidate = Candidate("scale", Precision.FP32, GOOD)
    runner = executor.open(OPERATOR, executor.build(OPERATOR, candidate), candidate)
    try:
        layout = Layout.of(Task(OPERATOR, Precision.FP32).at(SMALL))
        with executor.arena(layout) as first, executor.arena(layout) as second:
            runner.prepare(Job.of(OPERATOR, SMALL, [first, second], poison=True), SMALL)
            runner.cold(0, 16, held=False)
            floors: dict[int, list[float]] = {}
            calls: dict[int, list[float]] = {}
            for _ in range(5):
                for before in range(1, 5):
                    runner.floor(1, launches=before)
                    floors.setdefault(before, []).extend(runner.floor(32))
                    runner.floor(1, launches=before)
                    calls.setdefault(before, []).extend(runner.cold(0, 96))
    finally:
        runner.close()
    for samples in (floors, calls):
        centres = [fmean(sorted(one)[len(one) // 20 : -len(one) // 20]) for one in samples.values()]
        assert max(centres) - min(centres) < 0.02 * min(centres), centres


def test_differences_are_seen(executor: CudaExecutor) -> None:
    good, slower, twice = run(executor, GOOD, SLOWER, TWICE, cases=(LARGE,))
    samples = [e.measurements[0].samples_ns for e in (good, slower, twice)]
    assert bootstrap_ratio(samples[1], samples[0])[1] > 1.02
    assert bootstrap_ratio(samples[2], samples[0])[0] == pytest.approx(2.0, rel=0.15)


def test_cold_is_slower_than_hot_where_the_cache_helps(executor: CudaExecutor) -> None:
    case = Case((("n", 1 << 20),), Split.PAPER)
    (result,) = run(executor, GOOD, cases=(case,))
    one = result.measurements[0]
    assert one.hot_ns is not None
    assert one.hot_ns < median([s for r in one.samples_ns for s in r])


def test_what_a_kernel_asks_the_cache_to_keep_is_cold_all_the_same(executor: CudaExecutor) -> None:
    sizes = tuple(Case((("n", 1 << bits),), Split.PAPER) for bits in (18, 19, 22))
    leaves, stays = run(executor, STAYS.replace("evict_last", "evict_unchanged"), STAYS, cases=sizes)
    assert stays.status is Status.PASSED, stays.failure
    for kept, other in zip(stays.measurements, leaves.measurements, strict=True):
        assert bootstrap_ratio(kept.samples_ns, other.samples_ns)[0] > 0.97, kept.case


def test_ceilings_are_plausible(executor: CudaExecutor) -> None:
    found = executor.ceilings()
    assert 1e11 < found.copy_bytes_per_s < found.l2_copy_bytes_per_s * 4
    assert 0.5 < found.read_bytes_per_s / found.copy_bytes_per_s < 2
    assert found.bf16_flops > found.tf32_flops > found.fp32_flops > 1e12
    assert 500 < found.graph_node_ns < 1e4
    assert 500 < found.launch_ns < 2e4


def test_a_profile_says_memory_for_a_copy(executor: CudaExecutor) -> None:
    (result,) = run(executor, GOOD, cases=(LARGE,), profile=True)
    (profile,) = result.profiles
    assert profile.bottleneck == "memory", (profile.tool, profile.metrics)
    if executor.toolchain.ncu:
        assert profile.source == "ncu", profile.tool
        assert profile.metrics["dram__bytes_read.sum"] == pytest.approx(4 * 2**26, rel=0.2)


def test_counters_or_none_a_profile_is_there(executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "toolchain", dataclasses.replace(executor.toolchain, ncu=None))
    (result,) = run(executor, GOOD, cases=(LARGE,), profile=True)
    (profile,) = result.profiles
    assert (profile.source, profile.bottleneck) == ("static", "memory")


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="There are: 0:"):
        create(Options(device="99"))


def test_a_kernel_made_slower_by_a_known_time_is_found_to_be(executor: CudaExecutor) -> None:
    """As ``msbench study`` does it, at 4 µs and at 0.1 ms."""
    for op, case in ((operators.load("relu"), "N=1024"), (operators.load("relu"), "N=67108864")):
        subject = Subject(
            Task(op, Precision.FP32),
            next(one for one in op.cases if one.id == case),
            operators.versions(Task(op, Precision.FP32))[0],
        )
        settings = Settings((Study.SAME, Study.SLOWDOWN), pairs=2, sittings=4, seed=0)
        found = record(
            executor, [subject], settings, command="pytest", created_at="", progress=Live(Console(), quiet=True)
        )
        ((_, trials),) = found
        for trial in trials:
            true = trial.details["factor"]
            assert trial.details["median"] == pytest.approx(true, abs=0.01), trial.outcome
            assert true == pytest.approx(1.03 if trial.study is Study.SLOWDOWN else 1.0, abs=0.003)


def test_under_compute_sanitizer_a_read_past_the_end_is_seen() -> None:
    with create(Options(sanitize=True)) as executor:
        good, bad = run(executor, GOOD, READS_ON, checks=Checks.FULL, measure=False)
    assert good.status is Status.PASSED, good.failure
    assert [check.passed for check in good.checks if check.variant == "sanitized"]
    assert bad.failure is not None and bad.failure.fault is Fault.OUT_OF_BOUNDS
    assert "after the nearest allocation" in bad.failure.message


@pytest.mark.parametrize("module", CudaExecutor.loads)
def test_loading_what_referees_need_leaves_the_device_alone(module: str) -> None:
    """They load it before they know which GPU is theirs, and while its ceilings are measured."""
    code = f"import ctypes, {module}; print(ctypes.CDLL('libcuda.so.1').cuDeviceGetCount(ctypes.byref(ctypes.c_int())))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "3"  # CUDA_ERROR_NOT_INITIALIZED
