"""Times that were recorded earlier, beside today's check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from msbench.harness.evaluate import Checks, Plan, Remembers, evaluate
from msbench.model import (
    BuildResult,
    Candidate,
    CheckResult,
    Device,
    Evaluation,
    Measurement,
    Profile,
    Status,
)
from msbench.spec import Operator, Precision, Task
from tests.harness.check.test_case import zeros
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right

QUICK = Plan(cases=(case(2048), case(64)), checks=Checks.QUICK, sittings=1)


class Memory(FakeExecutor):
    stored: Mapping[str, Evaluation]

    def recall(
        self, op: Operator, candidates: Sequence[Candidate], recorded_with: str | None
    ) -> Mapping[str, Evaluation]:
        return {c.id: self.stored[c.id] for c in candidates if c.id in self.stored}

    def checked_on(self) -> Device:
        return Device("cpu", "Fake CPU", "cpu-0")


def recorded(wanted: Candidate) -> Evaluation:
    measurements = [Measurement(case(n), f"g{n}", 0, ((10.0,),), None, None, None, False) for n in (64, 999)]
    check = CheckResult(case(64), "aligned", 0, True, 0.5)
    profile = Profile(case(64), "ncu", {}, "memory", ())
    build = BuildResult("b", wanted.id, "nvcc 13.0", ("-arch",), 1.0, False)
    return Evaluation(
        wanted, Device("cuda", "NVIDIA H200", "GPU-9"), "cuda", Status.PASSED, "2026-01-01T00:00:00+00:00", 9.0, "", 0,
        build, (check,), tuple(measurements), (profile,), recorded_from="e1",
    )  # fmt: skip


def remember(
    *candidates: Candidate, known: Sequence[Candidate], unsupported: set[str] | None = None
) -> list[Evaluation]:
    executor = Memory(measures=False, unsupported=unsupported or set())
    executor.stored = {c.id: recorded(c) for c in known}
    assert isinstance(executor, Remembers)
    plan = replace(QUICK, profile=True)
    return evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="msbench eval x.cu")


def test_recorded_times_come_with_todays_check() -> None:
    wanted = candidate(right)
    (result,) = remember(wanted, known=[wanted])
    assert (result.status, result.executor, result.recorded_from) == (Status.PASSED, "fake", "e1")
    assert result.device.name == "NVIDIA H200"
    assert [m.case.id for m in result.measurements] == ["N=64"]  # the plan's cases alone
    assert [c.case.id for c in result.checks] == ["N=64", "N=2048"]
    assert result.started_at > "2026-01-01T00:00:00+00:00"
    assert result.build is not None
    assert result.build.toolchain == "nvcc 13.0"
    assert len(result.profiles) == 1
    assert result.note == "The times are those of 2026-01-01T00:00:00+00:00 on NVIDIA H200."


def test_what_was_never_recorded_has_no_times_and_says_so() -> None:
    (result,) = remember(candidate(right), known=[])
    assert (result.status, result.measurements, result.recorded_from) == (Status.PASSED, (), None)
    assert result.device.name == "Fake CPU"
    assert result.note == "Nothing is recorded for this version, so it has no times."


def test_a_kernel_that_fails_now_has_no_recorded_times() -> None:
    wanted = candidate(zeros)
    (result,) = remember(wanted, known=[wanted])
    assert (result.status, result.measurements, result.recorded_from) == (Status.CHECK_FAILED, (), None)


def test_where_it_cannot_be_checked_the_recorded_check_counts() -> None:
    wanted = candidate(right, label="needs_ptx")
    (result,) = remember(wanted, known=[wanted], unsupported={"needs_ptx"})
    assert (result.status, result.failure, result.recorded_from) == (Status.PASSED, None, "e1")
    assert len(result.checks) == 1
    assert "So is the check: This kernel uses inline PTX" in result.note
    (result,) = remember(wanted, known=[], unsupported={"needs_ptx"})
    assert (result.status, result.recorded_from) == (Status.UNSUPPORTED, None)
