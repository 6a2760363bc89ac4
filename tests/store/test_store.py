import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlmodel import select

from msbench.archive.union import union
from msbench.errors import IntegrityError, StoreError, UnknownNameError
from msbench.model import Evaluation, Fault, Origin, Status
from msbench.spec import Precision, Task
from msbench.store import convert
from msbench.store import store as storing
from msbench.store.store import Store
from msbench.store.tables import CaseRow, DeviceRow, EvaluationRow, MeasurementRow, VersionRow
from tests import factories
from tests.factories import BF16, CPU, FP32, GPU, candidate, failed, measured, operator

OP = operator()
NAIVE = candidate(OP, "naive", Origin.NAIVE)


def sorted_results(evaluation: Evaluation) -> Evaluation:
    """The evaluation with its results in one order, as a database does not keep it."""
    return replace(
        evaluation,
        checks=tuple(sorted(evaluation.checks, key=repr)),
        measurements=tuple(sorted(evaluation.measurements, key=repr)),
        profiles=tuple(sorted(evaluation.profiles, key=repr)),
    )


@pytest.mark.parametrize("precision", [FP32, BF16])
def test_an_evaluation_comes_back_as_it_was(store: Store, precision: Precision) -> None:
    parent = candidate(OP, "naive", Origin.NAIVE, precision)
    child = candidate(OP, "child", precision=precision, parents=[parent.id])
    _, evaluation = measured(OP, {parent: 0.3, child: 0.8})
    back = store.evaluation(store.add_evaluation(OP, evaluation))
    assert sorted_results(back) == sorted_results(evaluation)


@pytest.mark.parametrize(
    "status", [Status.BUILD_FAILED, Status.CHECK_FAILED, Status.MEASURE_FAILED, Status.UNSUPPORTED]
)
def test_failures_come_back_with_their_reason_and_log(store: Store, status: Status) -> None:
    evaluation = failed(OP, NAIVE, status)
    back = store.evaluation(store.add_evaluation(OP, evaluation))
    assert sorted_results(back) == sorted_results(evaluation)
    assert back.failure is not None and back.failure.message


def test_numpy_numbers_and_nan_are_stored_as_plain_numbers_and_nothing(store: Store) -> None:
    [evaluation] = measured(OP, {NAIVE: 0.3}, cases=OP.cases[:1])
    numpy: Any = {"passed": np.bool_(True), "metrics": {"a": np.float32(0.5), "b": float("nan"), "c": np.int64(3)}}
    strange = replace(
        evaluation,
        checks=(replace(evaluation.checks[0], worst=float("nan"), max_abs_error=float("inf"), passed=numpy["passed"]),),
        profiles=(replace(evaluation.profiles[0], metrics=numpy["metrics"]),),
    )
    back = store.evaluation(store.add_evaluation(OP, strange))
    assert (back.checks[0].worst, back.checks[0].max_abs_error) == (None, float("inf"))
    assert back.profiles[0].metrics == {"a": 0.5, "c": 3}


def test_storing_twice_is_storing_once(store: Store) -> None:
    [evaluation] = measured(OP, {NAIVE: 0.3})
    assert store.add_evaluation(OP, evaluation) == store.add_evaluation(OP, evaluation)
    with store.session() as session:
        assert len(session.exec(select(MeasurementRow)).all()) == len(OP.cases)


def test_a_group_and_what_its_run_has_spent_are_stored_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    group = measured(OP, {candidate(OP, name): 0.3 for name in ("first", "second", "third")})
    store.add_task(Task(OP, FP32))
    store.add_device(GPU)
    run = factories.run_row(OP)
    store.start_run(run)
    spent, put_all, stored = {"evaluations": 1}, storing.put_all, 0

    def fails_in_the_middle(connection: Any, rows: Any) -> dict[str, int]:
        nonlocal stored
        if stored == 2:
            raise OSError("the disk is full")
        stored += 1
        return put_all(connection, rows)

    with monkeypatch.context() as broken, pytest.raises(OSError, match="the disk is full"):
        broken.setattr(storing, "put_all", fails_in_the_middle)
        store.add_evaluations(OP, group, run.id, spend=spent)
    assert (stored, store.versions(), store.run(run.id).spend != spent) == (2, [], True)
    with pytest.raises(UnknownNameError, match="no run 'another'"):
        store.add_evaluations(OP, group, "another", spend=spent)
    assert store.versions() == []
    ids = store.add_evaluations(OP, group, run.id, spend=spent)
    assert [store.evaluation(one).candidate for one in ids] == [evaluation.candidate for evaluation in group]
    assert store.run(run.id).spend == spent
    assert store.add_evaluations(OP, group) == ids


def test_a_build_that_works_later_replaces_the_failed_one(store: Store) -> None:
    broken = failed(OP, NAIVE, Status.BUILD_FAILED)
    [works] = measured(OP, {NAIVE: 0.3})
    store.add_evaluation(OP, broken)
    back = store.evaluation(store.add_evaluation(OP, works))
    assert back.build is not None and back.build.failure is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_stronger_claim_about_a_source_counts_whenever_it_is_made(store: Store, order: tuple[int, int]) -> None:
    claims = [candidate(OP, "naive", Origin.NAIVE), replace(NAIVE, origin=Origin.EXTERNAL, label="mine.cu")]
    for minute, which in enumerate(order):
        [evaluation] = measured(OP, {claims[which]: 0.3}, at=minute)
        store.add_evaluation(OP, evaluation)
    assert (store.version(NAIVE.id).origin, store.version(NAIVE.id).label) == ("naive", "naive")


def test_among_equal_claims_the_first_stays_and_parents_add_up(store: Store) -> None:
    first = candidate(OP, "first", parents=[NAIVE.id])
    second = replace(first, label="second", parents=("f" * 32,))
    for minute, version in enumerate((first, second)):
        [evaluation] = measured(OP, {version: 0.3}, at=minute)
        store.add_evaluation(OP, evaluation)
    assert store.candidate(first.id).label == "first"
    assert set(store.candidate(first.id).parents) == {NAIVE.id, "f" * 32}


def test_a_task_follows_its_newest_description(store: Store) -> None:
    store.add_task(Task(OP, FP32))
    store.add_task(Task(replace(OP, definition="y = a x + 1"), FP32))
    assert [task.definition for task in store.tasks()] == ["y = a x + 1"]


def test_cases_keep_their_dimensions_bytes_and_operations(store: Store) -> None:
    store.add_task(Task(OP, BF16))
    cases = store.cases(f"{OP.name}/bf16")
    assert [case.dims["N"] for case in cases] == sorted(case.dim("N") for case in OP.cases)
    assert [(case.nbytes, case.flops) for case in cases] == [(4 * case.dims["N"], 2 * case.dims["N"]) for case in cases]
    assert {convert.to_case(case) for case in cases} == set(OP.cases)


def test_recorded_is_the_fullest_passed_evaluation_and_the_newest_of_those(store: Store) -> None:
    assert store.recorded(NAIVE.id) is None
    evaluations = [
        *measured(OP, {NAIVE: 0.3}, at=0),
        *measured(OP, {NAIVE: 0.3}, at=1),
        *measured(OP, {NAIVE: 0.3}, at=2, cases=OP.cases[:1]),
        *measured(OP, {NAIVE: 0.3}, at=3, device=replace(CPU, kind="cpu")),
        failed(OP, NAIVE, at=4),
    ]
    ids = [store.add_evaluation(OP, evaluation) for evaluation in evaluations]
    repeated = replace(evaluations[1], executor="recorded", recorded_from=ids[1], started_at=factories.instant(5))
    store.add_evaluation(OP, repeated)
    found = store.recorded(NAIVE.id)
    assert found is not None and found[0] == ids[1]
    assert found[1].measurements[0].samples_ns == evaluations[1].measurements[0].samples_ns
    cpu = store.recorded(NAIVE.id, device_kind="cpu")
    assert cpu is not None and cpu[0] == ids[3]


def test_seconds_are_those_of_the_newest_evaluation_on_a_kind_of_device(store: Store) -> None:
    [evaluation] = measured(OP, {NAIVE: 0.3})
    for number, (device, seconds) in enumerate([(GPU, 9.0), (GPU, 3.0), (CPU, 1.0)]):
        when = f"2026-01-0{number + 1}T00:00:00.000+00:00"
        store.add_evaluation(OP, replace(evaluation, device=device, seconds=seconds, started_at=when))
    assert store.seconds("cuda") == {NAIVE.id: 3.0}
    assert store.seconds("cpu") == {NAIVE.id: 1.0}


def test_recorded_devices_and_newest_ceilings(told: Store) -> None:
    assert told.recorded_devices() == [replace(GPU, uuid="", host="")]
    newer = replace(factories.CEILINGS, copy_bytes_per_s=4.1e12, measured_at="2026-12-01T00:00:00+00:00")
    told.add_ceilings(GPU, newer)
    assert told.ceilings(GPU.id) == newer
    assert told.ceilings(GPU.id, until=newer.measured_at) == newer
    assert told.ceilings(GPU.id, until="2000-01-01T00:00:00+00:00") is None
    assert told.ceilings("0" * 32) is None


def test_the_device_that_timed_the_most_current_versions_comes_first_then_the_one_used_last() -> None:
    other = replace(GPU, uuid="GPU-2", name="another GPU")
    first, second = candidate(OP, "best", Origin.EXPERT), candidate(OP, "best", Origin.EXPERT, body="// faster\n")
    naive = candidate(OP, "naive", Origin.NAIVE)
    with Store(":memory:") as store:

        def names() -> list[str]:
            return [one.name for one in store.recorded_devices()]

        for device, at in ((GPU, 1.0), (other, 2.0)):
            store.add_evaluations(OP, measured(OP, {naive: 0.2, first: 0.5}, at=at, device=device))
        assert names() == [other.name, GPU.name]
        store.add_evaluations(OP, measured(OP, {naive: 0.2, second: 0.6}, at=3.0))
        store.add_evaluations(OP, measured(OP, {naive: 0.2, first: 0.5}, at=4.0, device=other))
        assert names() == [GPU.name, other.name]


def test_bounds_are_of_all_measured_ceilings(told: Store) -> None:
    assert told.usual_ceilings(GPU.id) == factories.CEILINGS
    assert told.usual_ceilings("0" * 32) is None
    first = factories.CEILINGS.launch_ns
    for day, launch in enumerate((first + 300, first + 200), 1):
        told.add_ceilings(
            GPU, replace(factories.CEILINGS, launch_ns=launch, measured_at=f"2026-12-0{day}T00:00:00+00:00")
        )
    usual = told.usual_ceilings(GPU.id)
    assert usual is not None
    assert usual.launch_ns == first + 200
    assert usual.measured_at == "2026-12-02T00:00:00+00:00"


def test_versions_are_found_by_any_unique_beginning(told: Store) -> None:
    version = told.versions("scale/fp32")[0]
    assert told.version(version.id[:10]).id == version.id
    for wrong in ("", "nothing like that", "%"):
        with pytest.raises(UnknownNameError):
            told.version(wrong)
    with pytest.raises(UnknownNameError):
        told.evaluation("nothing like that")


def test_a_reference_to_nothing_is_refused_and_leaves_nothing(store: Store) -> None:
    with pytest.raises(IntegrityError, match="nothing was stored"):
        store.start_run(factories.run_row(OP))
    with pytest.raises(RuntimeError), store.writing() as session:
        session.add(convert.device_row(GPU))
        session.flush()
        raise RuntimeError
    with store.session() as session:
        assert session.get(DeviceRow, GPU.id) is None


def test_what_a_reading_session_changes_is_dropped(told: Store) -> None:
    with told.session() as session:
        version = session.exec(select(VersionRow)).first()
        assert version is not None
        version.label = "changed"
    assert all(row.label != "changed" for row in told.versions())


WRITER = """
import sys
from msbench.store.store import Store
from tests import factories as f
op = f.operator()
with Store(sys.argv[1]) as store:
    for minute in range(10_000):
        for evaluation in f.measured(op, {f.candidate(op, "naive", f.Origin.NAIVE): 0.3}, at=minute):
            store.add_evaluation(op, evaluation)
        print(minute, flush=True)
"""


def test_a_killed_writer_leaves_whole_evaluations_only(tmp_path: Path) -> None:
    path = tmp_path / "killed.sqlite"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    for _ in range(4):
        committed = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    with Store(path) as store, store.session() as session:
        evaluations = session.exec(select(EvaluationRow)).all()
        cases = len(session.exec(select(CaseRow)).all())
        measurements = session.exec(select(MeasurementRow)).all()
    assert len(evaluations) > committed
    assert len(measurements) == cases * len(evaluations)


def test_union_reads_several_files_and_changes_none(told_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    extra = candidate(OP, "extra", parents=[NAIVE.id])
    with Store(other) as store:
        for evaluation in measured(OP, {NAIVE: 0.3, extra: 0.5}, at=60):
            store.add_evaluation(OP, evaluation)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with union([told_file, str(other)]) as both:
        assert both.version(extra.id).label == "extra"
        assert len(both.versions()) == 25
        assert both.candidate(extra.id).parents == (NAIVE.id,)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_union_of_nothing_is_empty_and_of_a_missing_file_an_error(tmp_path: Path) -> None:
    with union([]) as nothing:
        assert nothing.tasks() == []
    with pytest.raises(StoreError, match=r"no database .*nowhere"):
        union([tmp_path / "nowhere.sqlite"])


def test_every_fault_and_status_of_the_model_can_be_stored(store: Store) -> None:
    for minute, fault in enumerate(Fault):
        evaluation = failed(OP, NAIVE, at=minute)
        assert evaluation.failure is not None
        changed = replace(evaluation, failure=replace(evaluation.failure, fault=fault), checks=())
        assert store.evaluation(store.add_evaluation(OP, changed)).failure == changed.failure


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE measurement SET median_ns = median_ns / 2",
        "UPDATE measurement SET hot_ns = 'fast'",
        "UPDATE evaluation SET status = 'passed', fault = NULL, seed = 7",
        'UPDATE "check" SET worst = 0',
        "UPDATE measurement SET samples = 'none'",
    ],
)
def test_a_changed_evaluation_is_not_told(store: Store, change: str) -> None:
    evaluation_id = store.add_evaluation(OP, measured(OP, {candidate(OP, "naive"): 0.5})[0])
    with store.writing() as session:
        session.connection().exec_driver_sql(change)
    with pytest.raises(StoreError, match="db check"):
        store.evaluation(evaluation_id)
