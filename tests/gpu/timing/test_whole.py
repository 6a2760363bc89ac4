"""Whole calls: the measured process as it is, on a CUDA runtime that needs no GPU, with launchers that do what they like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from msbench.errors import LaunchFailed
from msbench.gpu.job import Job
from msbench.gpu.telemetry import Reading, Telemetry
from msbench.gpu.timing import rounds as timing
from msbench.gpu.timing.verify import Verifier
from msbench.gpu.timing.whole import WholeCalls
from msbench.harness.check.case import POISONS
from msbench.spec import Precision, Task
from tests.gpu.fake_gpu import MODES, OPERATOR, FakeGpu, filled, scale


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def subject(gpu: FakeGpu) -> Iterator[WholeCalls]:
    with gpu.runner_of() as runner:
        yield WholeCalls(runner)


def job(gpu: FakeGpu, name: str = "right", **scalars: float) -> tuple[Job, object, object]:
    case = scale(mode=float(MODES.index(name)), **scalars)
    arena, expected = filled(gpu, case)
    arena.poison(POISONS[0])
    return Job.of(OPERATOR, case, [arena], poison=True), arena.view("y"), expected


@pytest.mark.parametrize("name", ["right", "chained"])
def test_a_call_may_wait_and_choose_its_stream_and_its_work_is_done_when_it_ends(
    gpu: FakeGpu, subject: WholeCalls, name: str
) -> None:
    made, y, expected = job(gpu, name, spin_us=500.0)
    subject.prepare(made, scale())
    batch = subject.cold(0, 3)
    assert len(batch) == 3
    assert min(batch) >= 500_000  # what the kernel does is in its time
    np.testing.assert_array_equal(y, expected)


def test_an_error_of_a_call_is_told(gpu: FakeGpu, subject: WholeCalls) -> None:
    made, _, _ = job(gpu, "returns")
    subject.prepare(made, scale())
    with pytest.raises(LaunchFailed, match="the launcher returned"):
        subject.cold(0, 1)


def test_hot_ones_are_calls_in_a_row(gpu: FakeGpu, subject: WholeCalls) -> None:
    made, _, _ = job(gpu, spin_us=200.0)
    subject.prepare(made, scale())
    times = subject.hot(8, 3)
    assert len(times) == 3
    assert min(times) >= 8 * 200_000


def test_versions_are_measured_against_each_other(gpu: FakeGpu, tmp_path: Path) -> None:
    case = scale()
    with gpu.runner_of(label="a") as first, gpu.runner_of(label="b") as second:
        arena, _ = filled(gpu, case)
        subjects = [WholeCalls(first), WholeCalls(second)]
        measured = timing.measure_group(
            subjects,
            Job.of(OPERATOR, case, [arena], poison=True),
            case,
            timing.Settings("g", seed=0, budget_s=0.2, half_width=0.01),
            Verifier(Task(OPERATOR, Precision.FP32).at(case), [arena], 0, np, draw=lambda: 3, permuted=False),
            Telemetry(lambda: Reading(None, None, None, None)),
        )
    for one in measured:
        assert one.failure is None
        assert one.hot_ns is not None and one.floor_ns is not None
        assert len(one.samples_ns) >= 5
