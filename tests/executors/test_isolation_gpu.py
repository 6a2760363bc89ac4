"""Confinement beside CUDA's driver, on a real GPU: what is forbidden is stopped, and nothing that a version needs is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from msbench import operators
from msbench.executors import Options
from msbench.executors.cuda import CudaExecutor, create
from msbench.gpu import runner as gpu_runner
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Plan
from msbench.model import Candidate, Evaluation, Fault, Origin, Status
from msbench.spec import Precision, Task
from tests.executors.test_cuda_gpu import GOOD, HANGS, ILLEGAL, OPERATOR, SMALL

pytestmark = pytest.mark.gpu

# System calls without libc (x86-64: numbers and registers).
RAW = """
static long raw(long number, long a, long b, long c) {
    long result;
    asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
"""
MISDEEDS = {
    "a child": ("if (raw(57, 0, 0, 0) == 0) raw(60, 0, 0, 0);", "start another process"),
    "a program": ('raw(59, (long)"/bin/true", 0, 0);', "run another program"),
    "a network": ("raw(41, 2, 1, 0);", "open a network connection"),
    "a file": ('raw(2, (long)"/tmp/msbench-made-by-a-kernel", 0101, 0600);', "write files (open /tmp/msbench-made"),
    "a signal": ("raw(62, raw(110, 0, 0, 0), 19, 0);", "send a signal"),
}
FILLS = GOOD.replace(
    "/* host */",
    "size_t left, all; cudaMemGetInfo(&left, &all); void* p; "
    "while (left > (all >> 7)) { if (cudaMalloc(&p, left - (all >> 8))) left /= 2; else cudaMemGetInfo(&left, &all); } "
    "for (volatile long i = 0; i < 20000000000; ++i) {}",
)


@pytest.fixture(scope="module")
def executor() -> Iterator[CudaExecutor]:
    with create(Options()) as executor:
        yield executor


def run(executor: CudaExecutor, *sources: str, origin: Origin = Origin.AGENT) -> list[Evaluation]:
    candidates = [
        Candidate("scale", Precision.FP32, f"{source}// {n}\n", origin, label=str(n))
        for n, source in enumerate(sources)
    ]
    plan = Plan(cases=(SMALL,), checks=Checks.QUICK, time_budget_s=1.0, sittings=1)
    return evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="pytest")


@pytest.mark.parametrize("name", MISDEEDS)
def test_a_misdeed_is_named_and_its_neighbour_passes(executor: CudaExecutor, name: str) -> None:
    code, says = MISDEEDS[name]
    bad, good = run(executor, RAW + GOOD.replace("/* host */", code), GOOD)
    assert bad.failure is not None
    assert bad.failure.fault is Fault.FORBIDDEN, bad.failure
    assert says in bad.failure.message
    assert good.status is Status.PASSED, good.failure


def test_a_version_that_fills_the_device_is_ended_and_its_neighbour_passes(
    executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_runner, "LAUNCH_LIMIT_S", 10.0)
    (bad,) = run(executor, FILLS, origin=Origin.LIBRARY)
    assert bad.failure is not None
    assert bad.failure.fault is Fault.OUT_OF_MEMORY, bad.failure
    assert "GiB of the GPU's memory" in bad.failure.message
    (good,) = run(executor, GOOD)
    assert good.status is Status.PASSED, good.failure


def test_crashes_and_hangs_in_one_group_touch_nobody(executor: CudaExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_runner, "LAUNCH_LIMIT_S", 5.0)
    statuses = [e.status for e in run(executor, ILLEGAL, GOOD, HANGS, GOOD + "\n", ILLEGAL + "\n")]
    failed, passed = Status.CHECK_FAILED, Status.PASSED
    assert statuses == [failed, passed, failed, passed, failed]


LIBRARIES = (
    ("matrix_mul", "cublaslt"), ("softmax", "cudnn"), ("conv_2d", "cudnn"), ("softmax_attention", "cudnn"),
    ("fft", "cufft"), ("spmv_csr", "cusparse"), ("sorting", "cub"), ("dot_product", "cublas"), ("reverse_array", "thrust"),
)  # fmt: skip


@pytest.mark.parametrize(("operator", "label"), LIBRARIES)
def test_libraries_find_what_they_need(executor: CudaExecutor, operator: str, label: str) -> None:
    """They load engines, make threads and read files late, when they are confined already."""
    op = operators.load(operator)
    for precision in op.precisions:
        found = [v for v in operators.versions(Task(op, precision)) if v.label == label]
        if not found:
            continue
        cases = operators.select_cases(op, "smallest")
        plan = Plan(cases=cases, checks=Checks.QUICK, time_budget_s=1.0, sittings=1, profile=True)
        (result,) = evaluate(executor, Task(op, precision), found[:1], plan, command="pytest")
        if result.build is not None and result.build.failure and result.build.failure.fault is Fault.UNSUPPORTED:
            pytest.skip(result.build.failure.message)
        assert result.status is Status.PASSED, result.failure
        assert result.note.count("ran without") == 0
