"""What is made of the times of whole calls: rivals, ratios, and what has none. The executor here only says how long things take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msbench import operators
from msbench.audit import abi, files, times
from msbench.audit.subjects import Kind, Subject
from msbench.audit.times import rivals_of, time_files
from msbench.audit.verdict import Verdict
from msbench.errors import WorkerCrashed
from msbench.harness.protocols import Plan
from msbench.model import BuildResult, Candidate, Ceilings, Device, Failure, Fault, Measurement
from msbench.spec import Operator, Precision, Problem, Task

KERNELS = Path(__file__).with_name("kernels") / "good"
PLAN = Plan(cases=(), seed=3, whole_calls=True)


class Silence:
    def started(self, text: str) -> None: ...

    def advanced(self, done: int, total: int, text: str) -> None: ...


class Runner:
    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Clock:
    """An executor whose versions take ``times``, by label: nanoseconds (by case), a failure, or None where a library does
    not take the case. What is not there does not build."""

    name = "clock"
    measures = True
    check_limit = None
    host_work = 0.0
    xp = np

    def __init__(self, times: Mapping[str, Any], ceilings: Ceilings | None = None) -> None:
        self.times = times
        self.plans: list[Plan] = []
        self.opened: list[Runner] = []
        self.built: list[Candidate] = []
        self._ceilings = ceilings

    def device(self) -> Device:
        return Device("cuda", "Clock", "GPU-0")

    def ceilings(self) -> Ceilings | None:
        return self._ceilings

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        self.built.append(candidate)
        failure = None if candidate.label in self.times else Failure(Fault.LINK, "There is no such library.")
        return BuildResult("", candidate.id, "", (), 0.0, False, binary="b", failure=failure)

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> Runner:
        if self.times[candidate.label] == "crash":
            raise WorkerCrashed("The worker died of SIGSEGV.")
        self.opened.append(Runner(candidate))
        return self.opened[-1]

    def measure(self, problem: Problem, runners: Sequence[Runner], plan: Plan) -> list[Measurement]:
        self.plans.append(plan)
        case = problem.case
        found = []
        for runner in runners:
            time = self.times[runner.candidate.label]
            value = time[case.id] if isinstance(time, dict) else time
            if value == "memory":
                raise MemoryError
            failure = None
            if value is None:
                failure = Failure(Fault.UNSUPPORTED, "not this size")
            elif isinstance(value, str):
                failure, value = Failure(Fault.MISMATCH, value), None
            samples = tuple((value * (1 + 0.001 * n),) * 3 for n in range(6)) if value else ()
            found.append(
                Measurement(
                    case, "g", 0, samples, hot_ns=value, host_ns=None, floor_ns=1.0, noisy=False, failure=failure
                )
            )
        return found


def timed(executor: Clock, name: str = "softmax_bf16", cases: int = 2) -> Verdict:
    """The verdict on one of the samples, on the first of the paper's sizes."""
    found = files.identify(f"{name}.cu", (KERNELS / f"{name}.cu").read_bytes(), abi.load("mskernelbench"))
    assert found.symbol is not None
    op = operators.load(found.symbol.function.operator)
    subject = Subject(found, op, executor)  # type: ignore[arg-type]
    subject.built(executor.build(op, subject.candidate))
    subject.tried[Kind.PAPER] = cases
    rivals = {c: executor.build(op, c) for c in rivals_of(subject.task, found.symbol.host_pointers)}
    verdicts = time_files(executor, [subject], rivals, op.cases[:cases], PLAN, Silence())  # type: ignore[arg-type]
    assert all(runner.closed for runner in executor.opened if runner.candidate.label != found.name)
    return verdicts[found.name]


@pytest.fixture
def cases() -> list[str]:
    return [case.id for case in operators.load("softmax").cases[:2]]


def test_ratios_are_rivals_times_over_the_files(cases: list[str]) -> None:
    executor = Clock({"softmax_bf16.cu": 3000.0, "best": 1000.0, "cudnn": {cases[0]: 6000.0, cases[1]: 1500.0}})
    verdict = timed(executor)
    assert verdict.ours is not None and verdict.library is not None
    assert (verdict.ours.rival, verdict.library.rival) == ("best", "cudnn")
    assert verdict.ours.ratio == pytest.approx(1 / 3)
    assert verdict.library.ratio == pytest.approx(1.0)  # twice as fast on one case, half as fast on the other
    assert verdict.ours.low <= verdict.ours.ratio <= verdict.ours.high
    assert [times.case for times in verdict.times] == cases
    assert Verdict.from_json(json.loads(json.dumps(verdict.as_json()))) == verdict
    assert verdict.times[0].cold_ns["file"][0] == 3000.0
    assert verdict.times[0].hot_ns == {"file": 3000.0, "best": 1000.0, "cudnn": 6000.0}
    assert all(plan.whole_calls for plan in executor.plans)


def test_the_naive_kernel_stands_in_for_a_best_one_and_the_fastest_library_counts_on_each_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_best = [
        one for one in operators.versions(Task(operators.load("elu"), Precision.FP32)) if one.label != "best"
    ]
    monkeypatch.setattr(times, "versions", lambda task: without_best)
    first, second = (case.id for case in operators.load("elu").cases[:2])
    libraries = {"cub": {first: 1000.0, second: None}, "cudnn": {first: 2000.0, second: 500.0}}
    verdict = timed(Clock({"elu_optimized.cu": 1000.0, "naive": 2000.0, **libraries}), "elu_optimized")
    assert verdict.ours is not None and verdict.library is not None
    assert (verdict.ours.rival, verdict.ours.ratio) == ("naive", pytest.approx(2.0))
    assert (verdict.library.rival, verdict.library.ratio) == ("cub, cudnn", pytest.approx(0.5**0.5))


def test_there_is_no_ratio_where_a_case_lacks_one(cases: list[str]) -> None:
    verdict = timed(Clock({"softmax_bf16.cu": 1000.0, "best": "wrong", "cudnn": {cases[0]: 900.0, cases[1]: None}}))
    assert verdict.ours is None and verdict.library is None
    assert verdict.times[1].cold_ns.keys() == {"file"}
    assert verdict.untimed == ""


@pytest.mark.parametrize("missing", [{}, {"best": "crash", "cudnn": "crash"}])
def test_rivals_that_do_not_run_here_are_left_out(missing: dict[str, str]) -> None:
    verdict = timed(Clock({"softmax_bf16.cu": 1000.0, **missing}))
    assert verdict.ours is None and verdict.library is None and len(verdict.times) == 2


def test_a_file_that_is_wrong_while_it_is_timed_has_no_times(cases: list[str]) -> None:
    executor = Clock({"softmax_bf16.cu": {cases[0]: 1000.0, cases[1]: "Case 2: wrong."}, "best": 1000.0})
    verdict = timed(executor)
    assert verdict.untimed == "Case 2: wrong."
    assert verdict.paper.wrong == {cases[1]: "Case 2: wrong."} and not verdict.held
    assert len(executor.plans) == 2
    assert verdict.ours is None and verdict.times == ()


def test_a_file_that_does_not_start_again_has_no_times() -> None:
    assert timed(Clock({"softmax_bf16.cu": "crash", "best": 1000.0})).untimed == "The worker died of SIGSEGV."


def test_a_case_that_the_device_has_no_room_for_leaves_no_ratio(cases: list[str]) -> None:
    verdict = timed(Clock({"softmax_bf16.cu": {cases[0]: 1000.0, cases[1]: "memory"}, "best": 1000.0}))
    assert f"Case {cases[1]}: the device has not enough memory" in verdict.untimed
    assert verdict.paper.right


def test_a_time_that_no_device_reaches_is_none() -> None:
    rates = dict.fromkeys(("fp32_flops", "tf32_flops", "bf16_flops", "fp64_flops"), 1e15)
    widths = dict.fromkeys(("copy_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s", "l2_copy_bytes_per_s"), 1e12)
    ceilings = Ceilings(**rates, **widths, launch_ns=1.0, graph_node_ns=1.0, measured_at="")
    executor = Clock({"softmax_bf16.cu": 10.0, "best": 1e6}, ceilings)
    verdict = timed(executor)
    assert len(executor.plans) == 1  # nothing is left to be timed
    assert "the work was not done where it is timed" in verdict.untimed


def test_rivals_of_a_function_with_host_pointers_get_them_too() -> None:
    executor = Clock({"FFT_optimized.cu": 1000.0, "naive": 1000.0, "cufft": 500.0})
    verdict = timed(executor, "FFT_optimized")
    assert verdict.library is not None and verdict.library.ratio == pytest.approx(0.5)
    rivals = [candidate for candidate in executor.built if candidate.label != "FFT_optimized.cu"]
    assert rivals and all(c.entry and "msbench_on_host" in c.entry.after for c in rivals)
