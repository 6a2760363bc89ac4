"""Mutants of several tasks, checked at once by processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing import active_children
from typing import ClassVar, cast

import pytest

from msbench import executors, operators
from msbench.errors import WorkerCrashed
from msbench.executors.cpu import CpuExecutor
from msbench.harness.arena import Arena, Layout
from msbench.harness.protocols import Executor, Runner
from msbench.model import BuildResult, Candidate, Fault
from msbench.spec import Operator, Task
from msbench.study.mutation import Survey, Verdict
from msbench.study.surveys import surveys
from tests.factories import BF16, FP32
from tests.harness.fakes import compiled


class _Shared(CpuExecutor):
    """A processor that says, as a GPU does, that others can use it beside this process."""

    compiled: list[str]
    loads: ClassVar[tuple[str, ...]] = ()

    def beside(self, operators: Sequence[Operator] = ()) -> Callable[[], CpuExecutor]:
        return partial(CpuExecutor, self._compiler)

    def compile_checks(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        self.compiled.append(op.name)
        return compiled()

    def checks_compiled(self) -> None: ...


def _plain(verdict: Verdict) -> tuple[object, ...]:
    ids = sorted(case.id for case in verdict.rejected), [case.id for case in verdict.survived]
    return verdict.mutant, verdict.precision, *ids, sorted(verdict.failures), verdict.good


def test_side_by_side_gives_the_verdicts_of_one_by_one() -> None:
    every = []
    for name, precision in (("relu", FP32), ("mse_loss", BF16), ("relu", BF16)):
        op = operators.load(name)
        cases = [min(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))]
        every.append(
            Survey(Task(op, precision), {mutant: mutant.wrong_on(cases) for mutant in operators.mutants(op)[:3]})
        )
    with executors.pick("cpu") as alone:
        expected = dict(surveys(alone, every, seed=1))
        assert isinstance(alone, CpuExecutor)
        shared = _Shared(alone._compiler)
    shared.compiled = []
    with shared:
        found = dict(surveys(cast("Executor", shared), every, seed=1))
    assert {number: [*map(_plain, some)] for number, some in found.items()} == {
        number: [*map(_plain, some)] for number, some in expected.items()
    }
    assert all(any(one.rejected for one in some) for some in found.values())
    assert sorted(shared.compiled) == ["mse_loss", "relu"]


class _Full(CpuExecutor):
    """Has no room in a process beside others."""

    def arena(self, layout: Layout) -> Arena:
        raise MemoryError


class _Crowded(_Shared):
    def beside(self, operators: Sequence[Operator] = ()) -> Callable[[], CpuExecutor]:
        return partial(_Full, self._compiler)


def test_what_has_no_room_beside_others_is_checked_by_itself() -> None:
    op = operators.load("relu")
    cases = sorted(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))[:1]
    mutants = operators.mutants(op)[:2]
    every = [Survey(Task(op, precision), {one: one.wrong_on(cases) for one in mutants}) for precision in (FP32, BF16)]
    with executors.pick("cpu") as alone:
        assert isinstance(alone, CpuExecutor)
        crowded = _Crowded(alone._compiler)
    crowded.compiled = []
    with crowded:
        found = dict(surveys(cast("Executor", crowded), every, seed=1))
    assert sorted(found) == [0, 1]
    assert all(verdict.rejected for some in found.values() for verdict in some)


class _Crashing(CpuExecutor):
    """Its first processes crash, as many as ``left``."""

    left = 1

    def open(self, op: Operator, built: BuildResult, candidate: Candidate) -> Runner:
        if self.left:
            self.left -= 1
            raise WorkerCrashed("the kernel ended with cudaErrorLaunchFailure")
        return super().open(op, built, candidate)


@pytest.mark.parametrize(("crashes", "rejected"), [(0, 1), (1, 1), (2, 0)])
def test_a_case_on_which_a_process_crashed_is_tried_once_more(crashes: int, rejected: int) -> None:
    op = operators.load("relu")
    case = min(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))
    with executors.pick("cpu") as alone:
        assert isinstance(alone, CpuExecutor)
        crashing = _Crashing(alone._compiler)
    crashing.left = crashes
    with crashing:
        ((_, (verdict,)),) = surveys(crashing, [Survey(Task(op, FP32), {operators.mutants(op)[0]: [case]})], seed=1)
    assert len(verdict.rejected) == rejected and verdict.good == bool(rejected)
    assert verdict.crashes == min(crashes, 1)
    assert [failure.fault for failure in verdict.failures.values()] == [Fault.CRASH] * (1 - rejected)


def test_leaving_early_waits_for_no_process() -> None:
    op = operators.load("relu")
    cases = sorted(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))[:1]
    every = [Survey(Task(op, FP32), {mutant: mutant.wrong_on(cases) for mutant in operators.mutants(op)[:2]})] * 12
    with executors.pick("cpu") as alone:
        assert isinstance(alone, CpuExecutor)
        shared = _Shared(alone._compiler)
    shared.compiled = []
    with shared:
        going = cast("Generator[object, None, None]", surveys(cast("Executor", shared), every, seed=1))
        next(going)
        going.close()
    assert active_children() == []
