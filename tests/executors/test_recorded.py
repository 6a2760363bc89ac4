"""Recorded times come back as recorded: from the right version, device and session, beside a check made now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from msbench.errors import ExecutorError, UnknownNameError
from msbench.executors.recorded import RecordedExecutor
from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.harness.protocols import Executor, Remembers
from msbench.model import (
    BuildResult,
    Candidate,
    CheckResult,
    Device,
    Evaluation,
    Failure,
    Fault,
    Measurement,
    Status,
    digest,
)
from msbench.spec import Case, Precision, Task
from msbench.store.store import Store
from tests.harness.check.test_case import zeros
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right
from tests.test_roofline import CEILINGS

H200 = Device("cuda", "NVIDIA H200", "GPU-1111", "sm_90a", 132, 10**11, 6 * 10**7, "580", "13.0")
A100 = Device("cuda", "NVIDIA A100", "GPU-2222", "sm_80", 108, 4 * 10**10, 4 * 10**7, "550", "12.4")
PLAN = Plan((case(64), case(777)), checks=Checks.QUICK)


def also_right(arena: Any, at: Case) -> None:
    right(arena, at)


MINE, OTHER = candidate(right), candidate(also_right)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "recorded.sqlite") as made:
        yield made


def record(
    store: Store,
    *candidates: Candidate,
    session: str = "1",
    device: Device = H200,
    cases: Sequence[Case] = PLAN.cases,
    **fields: Any,
) -> list[str]:
    """Store an evaluation of each candidate, all measured together."""
    ids = []
    for number, wanted in enumerate(candidates, 1):
        measurements = tuple(
            Measurement(at, f"{session} {at.id}", 0, ((1000.0 * number,), (1010.0 * number,)), 9.0, None, 2.0, False)
            for at in cases
        )
        evaluation = Evaluation(
            candidate=wanted,
            device=device,
            executor="cuda",
            status=Status.PASSED,
            started_at=f"2026-01-0{session}T00:00:00+00:00",
            seconds=1.0,
            command="msbench bench",
            seed=0,
            build=BuildResult(digest("build", wanted.id), wanted.id, "nvcc 13.0", ("-O3",), 2.0, False),
            checks=(CheckResult(case(64), "aligned", 0, True, 0.25),),
            measurements=measurements,
            harness="h",
        )
        ids.append(store.add_evaluation(OPERATOR, replace(evaluation, **fields)))
    return ids


def run(executor: Executor, *candidates: Candidate) -> list[Evaluation]:
    return evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, PLAN, command="msbench eval x.cu")


def executor(store: Store | None, device: str | None = None, **fields: Any) -> RecordedExecutor:
    return RecordedExecutor(FakeExecutor(measures=False, **fields), store, device)


def test_times_are_recalled_and_say_from_where(store: Store) -> None:
    (recorded,) = record(store, MINE)
    chosen = executor(store)
    assert isinstance(chosen, Remembers)
    (result,) = run(chosen, MINE)
    assert (result.status, result.executor, result.recorded_from) == (Status.PASSED, "recorded", recorded)
    assert result.device == H200
    assert [m.samples_ns for m in result.measurements] == [((1000.0,), (1010.0,))] * 2
    assert [m.group for m in result.measurements] == ["1 N=64", "1 N=777"]
    assert len(result.checks) == 2  # made now
    assert "2026-01-01" in result.note
    assert result.started_at > "2026-01-02"


def test_the_result_can_be_stored_and_is_never_recalled_itself(store: Store) -> None:
    (recorded,) = record(store, MINE)
    for _ in range(2):
        (result,) = run(executor(store), MINE)
        assert result.recorded_from == recorded
        stored = store.evaluation(store.add_evaluation(OPERATOR, result))
        assert (stored.recorded_from, stored.note) == (recorded, result.note)


def test_another_source_has_no_times(store: Store) -> None:
    record(store, MINE)
    (result,) = run(executor(store), OTHER)
    assert (result.status, result.measurements, result.recorded_from) == (Status.PASSED, (), None)
    assert "Nothing is recorded for this version" in result.note


def test_a_failing_check_hides_recorded_times(store: Store) -> None:
    wrong = candidate(zeros)
    record(store, wrong)
    (result,) = run(executor(store), wrong)
    assert (result.status, result.measurements) == (Status.CHECK_FAILED, ())


def test_what_the_cpu_cannot_run_relies_on_the_recorded_check(store: Store) -> None:
    record(store, MINE)
    (result,) = run(executor(store, unsupported={"right"}), MINE)
    assert (result.status, len(result.checks), len(result.measurements)) == (Status.PASSED, 1, 2)
    assert "inline PTX" in result.note


def test_only_evaluations_that_passed_count(store: Store) -> None:
    failure = Failure(Fault.MISMATCH, "wrong")
    record(store, MINE, status=Status.CHECK_FAILED, failure=failure)
    assert executor(store).recall(OPERATOR, [MINE]) == {}


def test_the_newest_with_most_cases_is_recalled(store: Store) -> None:
    record(store, MINE, session="1")
    (complete,) = record(store, MINE, session="2")
    record(store, MINE, session="3", cases=[case(64)])
    assert executor(store).recall(OPERATOR, [MINE])[MINE.id].recorded_from == complete


def test_versions_are_recalled_from_the_session_that_they_share(store: Store) -> None:
    """Only times that were interleaved compare; a newer session of one of them alone does not."""
    together = record(store, MINE, OTHER, session="1")
    record(store, MINE, session="2")
    found = executor(store).recall(OPERATOR, [OTHER, MINE])
    assert [found[c.id].recorded_from for c in (MINE, OTHER)] == together
    assert found[MINE.id].measurements[0].group == found[OTHER.id].measurements[0].group


def test_a_session_can_be_preferred(store: Store) -> None:
    """As a replayed run does, whose baseline was measured in one session of several."""
    wanted, other = record(store, MINE, OTHER, session="1")
    record(store, MINE, OTHER, session="2")
    assert executor(store).recall(OPERATOR, [MINE], other)[MINE.id].recorded_from == wanted


def test_the_device_can_be_chosen(store: Store) -> None:
    store.add_ceilings(H200, CEILINGS)
    record(store, MINE, OTHER)
    record(store, MINE, session="0", device=A100)
    most = executor(store)
    assert (most.device().id, most.ceilings()) == (H200.id, CEILINGS)
    for wanted in ("A100", "nvidia a100", A100.id):
        chosen = executor(store, wanted)
        assert (chosen.device().id, chosen.ceilings()) == (A100.id, None)
        found = chosen.recall(OPERATOR, [MINE, OTHER])
        assert set(found) == {MINE.id}
        assert found[MINE.id].device == A100  # with the unit that it was measured on
    with pytest.raises(UnknownNameError, match=r"no recorded device 'B200'.*Known: NVIDIA H200, NVIDIA A100"):
        executor(store, "B200")


@pytest.mark.parametrize("empty", [True, False])
def test_without_records_it_is_the_check_alone(store: Store, empty: bool) -> None:
    chosen = executor(store if empty else None)
    assert chosen.ceilings() is None
    (result,) = run(chosen, MINE)
    assert (result.status, result.measurements) == (Status.PASSED, ())
    assert result.device == chosen.checked_on()


def test_it_never_measures(store: Store) -> None:
    chosen = executor(store)
    assert not chosen.measures
    with pytest.raises(ExecutorError, match="--executor cuda"):
        chosen.measure(Task(OPERATOR, Precision.FP32).at(case(64)), [], PLAN)
