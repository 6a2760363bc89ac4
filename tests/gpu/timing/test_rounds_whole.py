"""Whole measurements in processes, on the runtime that needs no GPU."""

from __future__ import annotations

import random
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pytest

from msbench.gpu.job import Job
from msbench.gpu.runner import GpuRunner
from msbench.gpu.telemetry import Reading, Telemetry
from msbench.gpu.timing import rounds as timing
from msbench.gpu.timing import verify
from msbench.gpu.timing.verify import Verifier
from msbench.harness.arena import Layout
from msbench.harness.inputs import generate
from msbench.harness.protocols import ONLY_TURN, Turn
from msbench.model import Fault, Measurement
from msbench.spec import Case, Precision, Task
from tests.gpu.fake_gpu import MODES, OPERATOR, FakeGpu, filled, scale
from tests.gpu.timing.test_rounds import Nobody


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(tmp_path_factory.mktemp("gpu"))


class Noted:
    """A turn that knows whose it is."""

    alone = False
    waited_s = 0.0

    def take(self, *, alone: bool) -> None:
        self.alone = alone

    def leave(self) -> None:
        self.alone = False


def measured_on(
    gpu: FakeGpu, case: Case, *runners: GpuRunner, budget_s: float = 1.0, turn: Turn = ONLY_TURN, **verifying: Any
) -> list[Measurement]:
    """Two input sets, looked at as the cuda executor does."""
    layout = Layout.of(Task(OPERATOR, Precision.FP32).at(case))
    arenas = [gpu.arena(layout) for _ in range(2)]
    for number, arena in enumerate(arenas):
        arena.write_inputs(generate(Task(OPERATOR, Precision.FP32).at(case), number, np))
    return timing.measure_group(
        runners,
        Job.of(OPERATOR, case, arenas, poison=True),
        case,
        timing.Settings("g", seed=0, budget_s=budget_s, half_width=0.05),
        Verifier(
            Task(OPERATOR, Precision.FP32).at(case),
            arenas,
            0,
            np,
            draw=partial(random.SystemRandom().getrandbits, 64),
            turn=turn,
            **verifying,
        ),
        Telemetry(lambda: Reading(None, None, None, None)),
        turn=turn,
    )


@pytest.mark.parametrize("name", ["tires", "knows"])
def test_who_leaves_out_calls_that_are_timed_is_found_out(gpu: FakeGpu, name: str) -> None:
    """One that does its work in one of 64 calls, and one that does it wherever values were not seen before."""
    with gpu.runner_of() as runner:
        (measured,) = measured_on(gpu, scale(mode=float(MODES.index(name))), runner, budget_s=0.2)
    assert measured.failure is not None
    assert measured.failure.fault in (Fault.UNWRITTEN, Fault.MISMATCH)
    assert "while it was timed, " in measured.failure.message


def test_who_works_on_one_set_of_inputs_only_is_found_out(gpu: FakeGpu) -> None:
    for _ in range(3):
        with gpu.runner_of() as runner:
            (measured,) = measured_on(gpu, scale(mode=float(MODES.index("one_set"))), runner, budget_s=0.2)
        assert measured.failure is not None
        assert measured.failure.fault is Fault.UNWRITTEN


def test_inputs_that_are_kept_are_as_they_were_drawn_and_others_are_drawn_again(gpu: FakeGpu) -> None:
    problem = Task(OPERATOR, Precision.FP32).at(scale())
    with gpu.runner_of() as runner:
        for keeps in (True, False):
            kept: dict[int, Any] = {}
            (measured,) = measured_on(gpu, problem.case, runner, budget_s=0.1, keeps=keeps, kept=kept)
            assert measured.failure is None
            assert sorted(kept) == ([0, 1] if keeps else [])
            for number, inputs in kept.items():
                drawn = generate(problem, number, np)
                assert {name: array.tobytes() for name, array in inputs.items()} == {
                    name: array.tobytes() for name, array in drawn.items()
                }


def test_the_whole_measurement(gpu: FakeGpu) -> None:
    case = scale(spin_us=200.0)
    with gpu.runner_of(label="a") as a, gpu.runner_of(label="b") as b:
        measured = measured_on(gpu, case, a, b)
    for one in measured:
        assert one.failure is None
        assert 180_000 < median(s for samples in one.samples_ns for s in samples) < 1_000_000
        assert one.hot_ns is not None
        assert one.hot_ns > 180_000
        assert one.throttle is None


def test_what_is_timed_has_the_device_to_itself_and_nothing_else_has(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, seen = Noted(), list[tuple[str, bool]]()

    def noted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            seen.append((name, turn.alone))
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    timed, beside = ("cold", "floor", "hot", "busy"), ("generate", "expect", "look")
    for name in timed:
        noted(GpuRunner, name)
    for name in beside:
        noted(verify, name)
    with gpu.runner_of(label="a") as a, gpu.runner_of(label="b") as b:
        assert [one.failure for one in measured_on(gpu, scale(spin_us=200.0), a, b, budget_s=0.2, turn=turn)] == [
            None
        ] * 2
    assert set(seen) == {(name, True) for name in timed} | {(name, False) for name in beside}


def test_work_outside_the_stream_is_not_measured(gpu: FakeGpu) -> None:
    case = scale(mode=float(MODES.index("escapes")))
    arena, _ = filled(gpu, case)
    with gpu.runner_of() as runner:
        measured = timing.measure_group(
            [runner],
            Job.of(OPERATOR, case, [arena]),
            case,
            timing.Settings("g", seed=0, budget_s=0.2, half_width=0.05),
            Nobody(),
            Telemetry(lambda: Reading(None, None, None, None)),
        )[0]
    assert measured.samples_ns == ()
    assert measured.failure is not None
    assert measured.failure.fault is Fault.FORBIDDEN
