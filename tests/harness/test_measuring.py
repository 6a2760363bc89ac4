"""In which processes versions are measured."""

from __future__ import annotations

from msbench.harness.arena import Arena
from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.spec import Case, Precision
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right


def also_right(arena: Arena, case: Case) -> None:
    right(arena, case)


def opened(sittings: int) -> list[str]:
    executor = FakeExecutor()
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK, sittings=sittings)
    group = [candidate(right), candidate(also_right)]
    results = evaluate(executor, OPERATOR, Precision.FP32, group, plan, command="test")
    assert all(len(result.measurements) == 2 for result in results)
    assert all(runner.closed for runner in executor.runners)
    return [runner.candidate.label for runner in executor.runners]


def test_the_first_sitting_is_in_the_processes_of_the_check_and_each_other_one_in_new_ones() -> None:
    assert sorted(opened(1)) == ["also_right", "right"]
    assert sorted(opened(3)) == ["also_right"] * 3 + ["right"] * 3
