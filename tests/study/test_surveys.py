"""Mutants of several tasks, checked at once by processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from multiprocessing import active_children
from typing import cast

from msbench import executors, operators
from msbench.executors.cpu import CpuExecutor
from msbench.harness.protocols import Executor
from msbench.spec import Operator
from msbench.study.mutation import Survey, Verdict
from msbench.study.surveys import surveys
from tests.factories import BF16, FP32


class _Shared(CpuExecutor):
    """A processor that says, as a GPU does, that others can use it beside this process."""

    compiled: list[str]

    def beside(self) -> Callable[[], CpuExecutor]:
        return partial(CpuExecutor, self._compiler)

    def compile_checks(self, op: Operator, processes: int = 1) -> None:
        self.compiled.append(op.name)

    def checks_compiled(self) -> None: ...


def _plain(verdict: Verdict) -> tuple[object, ...]:
    ids = sorted(case.id for case in verdict.rejected), [case.id for case in verdict.survived]
    return verdict.mutant, verdict.precision, *ids, sorted(verdict.failures), verdict.good


def test_side_by_side_gives_the_verdicts_of_one_by_one() -> None:
    every = []
    for name, precision in (("relu", FP32), ("mse_loss", BF16), ("relu", BF16)):
        op = operators.load(name)
        cases = [min(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))]
        every.append(Survey(op, precision, {mutant: mutant.wrong_on(cases) for mutant in operators.mutants(op)[:3]}))
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


def test_leaving_early_waits_for_no_process() -> None:
    op = operators.load("relu")
    cases = sorted(op.cases, key=lambda case: operators.elements(op, dict(case.dims)))[:1]
    every = [Survey(op, FP32, {mutant: mutant.wrong_on(cases) for mutant in operators.mutants(op)[:2]})] * 12
    with executors.pick("cpu") as alone:
        assert isinstance(alone, CpuExecutor)
        shared = _Shared(alone._compiler)
    shared.compiled = []
    with shared:
        going = cast("Generator[object, None, None]", surveys(cast("Executor", shared), every, seed=1))
        next(going)
        going.close()
    assert active_children() == []
