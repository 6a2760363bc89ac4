"""In which processes versions are measured."""

from __future__ import annotations

from dataclasses import replace

from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.model import Candidate, Origin
from msbench.spec import Case, Precision
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right

SKEWED = case(64, distribution="constant")  # the same shape as another case's, and other data


def library(label: str, name: str) -> Candidate:
    """A right one that is linked with a vendor library."""
    source = f"// msbench: link {name}\n{label}\n"
    FakeExecutor.kernels[source] = right
    return Candidate(OPERATOR.name, Precision.FP32, source, Origin.LIBRARY, label=label)


def opened(*cases: Case, sittings: int = 1) -> list[str]:
    executor = FakeExecutor()
    plan = Plan(cases=cases, checks=Checks.QUICK, sittings=sittings)
    group = [candidate(right), library("sparse", "cusparse"), library("deep", "cudnn")]
    results = evaluate(executor, OPERATOR, Precision.FP32, group, plan, command="test")
    assert all(len(result.measurements) == len(cases) for result in results)
    assert all(runner.closed for runner in executor.runners)
    return [runner.candidate.label for runner in executor.runners]


def test_a_library_that_chooses_quickly_chooses_once_more_before_it_is_measured() -> None:
    assert sorted(opened(case(64))) == ["deep", "right", "sparse", "sparse"]


def test_and_again_where_a_case_has_the_shape_of_another() -> None:
    assert opened(case(64), SKEWED).count("sparse") == 3
    assert opened(case(64), SKEWED, case(2048)).count("sparse") == 3
    assert opened(case(64), SKEWED, replace(SKEWED, distribution="zeros")).count("sparse") == 4
    assert opened(case(64), SKEWED, sittings=2).count("sparse") == 5
    assert opened(case(64), SKEWED, sittings=2).count("deep") == 2
