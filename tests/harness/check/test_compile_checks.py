"""What is compiled ahead of checks is what checks use: they are run, and pass."""

from __future__ import annotations

import numpy as np
import pytest

from msbench import operators
from msbench.harness.arena import Arena
from msbench.harness.check import compile_checks
from msbench.harness.check.case import CaseCheck
from msbench.harness.check.cost import work
from msbench.harness.check.schedule import schedule
from msbench.harness.protocols import Plan
from msbench.model import Candidate
from msbench.spec import Case, Precision, Task
from tests.harness.fakes import OPERATOR


def test_the_cheapest_case_of_each_distribution_is_checked_in_both_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = compile_checks.compile_checks(OPERATOR, np)
    assert passed >= 2 * len(set(OPERATOR.distributions))
    assert sum(compile_checks.compile_checks(OPERATOR, np, part, 3) for part in range(3)) == passed
    monkeypatch.setattr(compile_checks, "_ELEMENTS", 1)
    assert compile_checks.compile_checks(OPERATOR, np) == 0


def test_beside_others_only_what_is_computed_on_the_device_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    every = compile_checks.compile_checks(OPERATOR, np)

    def compiled(limit: float) -> int:
        monkeypatch.setattr(compile_checks, "SHARED_HOST_WORK", limit)
        return compile_checks.compile_checks(OPERATOR, np, seed=3)

    largest = max(work(OPERATOR, item.case) for item in schedule(OPERATOR, Plan(cases=OPERATOR.cases, seed=3), None))
    assert compiled(largest) == 0
    assert 0 < compiled(largest - 1) < compiled(0) <= every


@pytest.mark.parametrize("name", ["softmax", "top_k", "spmv_csr"])
@pytest.mark.parametrize("precision", list(Precision))
def test_rounded_expected_values_pass_every_variant_but_aba(name: str, precision: Precision) -> None:
    op = operators.load(name)
    smallest = min(op.cases, key=lambda one: operators.elements(op, dict(one.dims)))
    with CaseCheck(compile_checks.Memory(np), Task(op, precision).at(smallest), seed=1) as check:
        right = compile_checks.Right(check, Candidate(name, precision, ""))
        results = check.run(right, ("aligned", "misaligned", "repeat"))
    assert [result.failure for result in results] == [None] * 3


def test_a_wrong_kernel_would_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_checks.Right, "launch", lambda self, arena, case, fresh=True: None)
    assert compile_checks.compile_checks(OPERATOR, np) == 0


def test_one_case_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = compile_checks.Right.launch

    def fails(self: compile_checks.Right, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        if case.distribution == "sorted":
            raise MemoryError
        launch(self, arena, case, fresh=fresh)

    every = compile_checks.compile_checks(OPERATOR, np)
    monkeypatch.setattr(compile_checks.Right, "launch", fails)
    assert 0 < compile_checks.compile_checks(OPERATOR, np) < every
