"""Short cases are measured several times in new processes; what comes of that is one measurement."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from msbench.errors import WorkerCrashed
from msbench.harness.arena import Arena
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Plan
from msbench.harness.sessions import join, number_for, number_needed
from msbench.model import Candidate, Failure, Fault, Measurement, Status
from msbench.spec import Case, Operator, Precision, Problem, Task
from msbench.statistics import bootstrap_ratio, estimate, log_ratios
from tests.harness.fakes import OPERATOR, FakeExecutor, FakeRunner, candidate, right

CASE = min(OPERATOR.cases, key=lambda case: case.dim("N"))


def a() -> Candidate:
    return candidate(right, label="a")


def b() -> Candidate:
    return candidate(also_right, label="b")


def also_right(arena: Arena, case: Case) -> None:
    right(arena, case)


def measurement(*times_ns: float, failure: Failure | None = None) -> Measurement:
    return Measurement(
        CASE, "g", 0, tuple((time,) for time in times_ns), times_ns[0] / 2, 1e3, 2e3, False, failure=failure
    )


def test_rounds_of_different_numbers_still_pair() -> None:
    sittings = [
        [measurement(4e3, 4e3, 4e3, 4e3, 4e3), measurement(8e3, 8e3, 8e3)],
        [measurement(5e3, 5e3, 5e3, 5e3), measurement(10.1e3, 10.1e3, 10.1e3, 10.1e3)],
    ]
    fast, slow = join(sittings, 0.01)
    assert fast.sittings == slow.sittings == 2
    assert len(fast.samples_ns) == len(slow.samples_ns) == 10
    assert slow.samples_ns[3:5] == ((), ())
    logs = log_ratios(slow.samples_ns, fast.samples_ns, 2)
    assert [math.exp(one[0]) for one in logs] == pytest.approx([2.0, 2.02])
    assert math.exp(estimate(logs)) == pytest.approx(2.01, rel=1e-3)
    assert fast.hot_ns == pytest.approx(2250)
    assert fast.noisy  # two sittings that differ by a hundredth don't fix a ratio to a hundredth
    assert slow.noisy


def test_one_sitting_is_left_as_it_is() -> None:
    group = [measurement(1e5, 1e5), measurement(2e5)]
    assert join([group], 0.01) == group


def test_how_often_a_case_is_measured() -> None:
    assert number_for([measurement(1.9e5), measurement(2.1e7)], 7) == 7  # short ones need it most, whatever it takes
    assert number_for([measurement(2.1e5), measurement(1.9e7)], 7) == 4
    assert number_for([measurement(2.1e5), measurement(1.9e7)], 3) == 3
    assert number_for([measurement(2.1e5), measurement(2.1e7)], 7) == 1  # would take long
    assert number_for([], 7) == 1


def sat(rng: random.Random, luck: float, count: int, times: tuple[float, ...] = (4e3, 4e3)) -> list[list[Measurement]]:
    """So many sittings, in which each version is off by its process's luck."""
    return [[measurement(*[time * rng.gauss(1, luck)] * 5) for time in times] for _ in range(count)]


def test_ratios_that_a_few_sittings_settle_need_no_more() -> None:
    assert number_needed(sat(random.Random(1), 0.001, 7)) == 7
    assert number_needed(sat(random.Random(1), 0.05, 7)) == 28
    assert number_needed(sat(random.Random(1), 0.01, 7, (4e3, 2e4))) == 7  # who is five times as fast, is
    assert number_needed([one[:1] for one in sat(random.Random(1), 0.05, 7)]) == 7  # one alone has no ratio


@pytest.mark.parametrize(
    ("versions", "luck", "fewest", "most"),
    [(2, 0.002, 7, 7), (2, 0.005, 7, 10), (2, 0.01, 19, 24), (2, 0.015, 25, 28), (6, 0.01, 20, 25)],
)
def test_settled_ratios_contain_the_truth(versions: int, luck: float, fewest: int, most: int) -> None:
    """Identical versions with the luck of short calls, compared in pairs, in as many sittings as the first seven ask for."""
    rng = random.Random(2)
    covered, off, numbers, pairs = 0, 0, [], 0
    for trial in range(600 // versions):
        sittings = sat(rng, luck, 7, (4e3,) * versions)
        numbers.append(number_needed(sittings))
        sittings += sat(rng, luck, numbers[-1] - 7, (4e3,) * versions)
        times = [[sitting[number].samples_ns[0] for sitting in sittings] for number in range(versions)]
        for a, b in zip(times[::2], times[1::2], strict=True):
            ratio, low, high = bootstrap_ratio(a, b, trial, len(sittings))
            covered += low <= 1 <= high
            off += abs(ratio - 1) > 0.01
            pairs += 1
    assert fewest <= fmean(numbers) <= most
    assert covered >= 0.91 * pairs
    assert off <= 0.04 * pairs


def test_what_disturbed_a_sitting_is_said_of_it() -> None:
    quiet = replace(measurement(4e3), throttle="", sm_clock_mhz=1980.0, temperature_c=40.0, power_w=300.0)
    capped = replace(quiet, throttle="clocks were held down", sm_clock_mhz=1900.0, temperature_c=60.0, power_w=700.0)
    (joined,) = join([[quiet], [capped]], 0.01)
    assert joined.throttle == "session 2 of 2: clocks were held down"
    assert (joined.sm_clock_mhz, joined.temperature_c, joined.power_w) == (1940.0, 60.0, 700.0)
    assert join([[quiet], [quiet]], 0.01)[0].throttle == ""
    assert join([[measurement(4e3)], [measurement(4e3)]], 0.01)[0].throttle is None


def test_a_failure_in_any_sitting_is_the_measurements() -> None:
    failure = Failure(Fault.MISMATCH, "wrong when timed")
    (joined,) = join([[measurement(4e3)], [measurement(4e3, failure=failure)]], 0.01)
    assert joined.failure == failure


class Long(FakeExecutor):
    """The larger cases take a thousand times as long."""

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        found = super().measure(problem, runners, plan)
        if problem.case == CASE:
            return found
        return [
            Measurement(
                m.case, m.group, m.seed, tuple(tuple(1e4 * s for s in r) for r in m.samples_ns), 1.0, 1.0, 1.0, False
            )
            for m in found
        ]


def run(executor: FakeExecutor, *candidates: Candidate, sittings: int = 3) -> list[Measurement]:
    plan = Plan(cases=OPERATOR.cases, checks=Checks.QUICK, sittings=sittings)
    results = evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="test")
    assert [r.status for r in results] == [Status.PASSED] * len(candidates)
    return list(results[0].measurements)


class Lucky(Long):
    """Each process of a short case is off by some hundredths."""

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        rng = random.Random(len(self.groups))
        found = super().measure(problem, runners, plan)
        lucks = [rng.gauss(1, 0.03) for _ in found]
        return [
            replace(one, samples_ns=tuple((round_[0] * luck,) for round_ in one.samples_ns))
            for one, luck in zip(found, lucks, strict=True)
        ]


@pytest.mark.parametrize(("settle_s", "number"), [(0.0, 3), (60.0, 12)])
def test_a_case_sits_on_until_its_ratios_are_settled(settle_s: float, number: int) -> None:
    executor = Lucky(time_ns={"a": 4e3, "b": 4e3})
    plan = Plan(cases=OPERATOR.cases, checks=Checks.QUICK, sittings=3, settle_s=settle_s)
    results = evaluate(executor, Task(OPERATOR, Precision.FP32), [a(), b()], plan, command="test")
    found = [m.sittings for m in results[0].measurements]
    assert found == [number] + [1] * (len(found) - 1)
    assert all(runner.closed for runner in executor.runners)


@pytest.mark.parametrize(("settle_s", "number"), [(1e-9, 2), (60.0, 12)])
def test_what_a_session_takes_limits_how_many_there_are(settle_s: float, number: int) -> None:
    executor = Lucky(time_ns={"a": 4e3, "b": 4e3})
    plan = Plan(cases=OPERATOR.cases[:1], checks=Checks.QUICK, sittings=3, settle_s=settle_s)
    results = evaluate(executor, Task(OPERATOR, Precision.FP32), [a(), b()], plan, command="test")
    assert [m.sittings for m in results[0].measurements] == [number]


def test_short_cases_get_new_processes_and_keep_their_place() -> None:
    executor = Long(time_ns={"a": 4e3, "b": 8e3})
    found = run(executor, a(), b())
    assert [m.case for m in found] == sorted(OPERATOR.cases, key=lambda case: case.dim("N"))
    assert [m.sittings for m in found] == [3] + [1] * (len(found) - 1)
    assert len(executor.runners) == 2 * 3
    assert all(runner.closed for runner in executor.runners)


def test_a_process_that_cannot_be_had_again_fails_its_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = FakeExecutor(time_ns={"a": 4e3, "b": 8e3})
    opened: list[str] = []

    def refuse(op: Operator, build: object, one: Candidate) -> FakeRunner:
        opened.append(one.label)
        if opened.count(one.label) == 2 and one.label == "b":
            raise WorkerCrashed("The worker died when it was started.")
        return FakeExecutor.open(executor, op, build, one)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "open", refuse)
    plan = Plan(cases=OPERATOR.cases, checks=Checks.QUICK)
    good, bad = evaluate(executor, Task(OPERATOR, Precision.FP32), [a(), b()], plan, command="test")
    assert (good.status, bad.status) == (Status.PASSED, Status.MEASURE_FAILED)
    assert {m.sittings for m in good.measurements} == {Plan(cases=()).sittings}
