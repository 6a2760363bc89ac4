"""In which processes versions are measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from msbench.harness import measuring
from msbench.harness.arena import Arena
from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.model import BuildResult, Candidate, Measurement, Origin
from msbench.spec import Case, Operator, Precision, Problem, Task
from tests.harness.fakes import OPERATOR, FakeExecutor, FakeRunner, candidate, case, right


def also_right(arena: Arena, case: Case) -> None:
    right(arena, case)


class Prepared(FakeExecutor):
    """Whose libraries prepare for a case, the longer the more of them there were."""

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> FakeRunner:
        runner = super().open(op, build, candidate)
        took = iter((2500.0, 130_000.0))
        runner.untimed_ns = lambda: next(took)  # type: ignore[attr-defined]
        return runner


def test_what_a_library_prepares_is_said_with_how_long_it_takes() -> None:
    group = [candidate(right), candidate(also_right, origin=Origin.LIBRARY)]
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK, sittings=1)
    ours, library = evaluate(Prepared(), Task(OPERATOR, Precision.FP32), group, plan, command="test")
    assert ours.note == ""
    assert library.note == (
        f"Not timed: preparing for the arrays of a case, which took 2.5 µs ({case(64).id}) to 130 µs ({case(2048).id})."
    )


def opened(sittings: int) -> list[str]:
    executor = FakeExecutor()
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK, sittings=sittings)
    group = [candidate(right), candidate(also_right)]
    results = evaluate(executor, Task(OPERATOR, Precision.FP32), group, plan, command="test")
    assert all(len(result.measurements) == 2 for result in results)
    assert all(runner.closed for runner in executor.runners)
    return [runner.candidate.label for runner in executor.runners]


def test_the_first_sitting_is_in_the_processes_of_the_check_and_each_other_one_in_new_ones() -> None:
    assert sorted(opened(1)) == ["also_right", "right"]
    assert sorted(opened(3)) == ["also_right"] * 3 + ["right"] * 3


class Shared(FakeExecutor):
    """Whose device others use, who are waited for: by its clock for a thousand seconds a case."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0
        self.turn = self

    def take(self, *, alone: bool) -> None:
        self.waited_s += 1000

    def leave(self) -> None:
        pass

    def perf_counter(self) -> float:
        return self.waited_s

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        self.take(alone=True)
        return super().measure(problem, runners, plan)


def test_what_others_are_waited_for_is_not_time_that_a_task_took(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Shared()
    monkeypatch.setattr(measuring, "time", executor)
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK, sittings=3, settle_s=60)
    (result,) = evaluate(executor, Task(OPERATOR, Precision.FP32), [candidate(right)], plan, command="test")
    assert result.seconds < 1000
    assert [measurement.sittings for measurement in result.measurements] == [3, 3]
