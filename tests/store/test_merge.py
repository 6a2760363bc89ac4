from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.errors import IntegrityError, StoreError
from msbench.model import Origin, Status
from msbench.spec import Task
from msbench.store.identity import canonical, table_of
from msbench.store.samples import plain
from msbench.store.store import Store
from msbench.store.tables import TABLES, MigrationRow, VersionRow
from tests import factories, turns
from tests.factories import FP32, GPU, candidate, failed, measured, operator, run_row, step_row

OP = operator(sizes=(1 << 17,), odd=1003)
LABELS = ("naive", "a", "b", "c")


def content(store: Store) -> dict[str, list[str]]:
    """Every row of every table, as text in a fixed order."""
    with store.session() as session:
        return {
            table_of(model).name: sorted(
                canonical({k: plain(v).hex() if isinstance(v, bytes) else v for k, v in row.items()})
                for row in session.connection().execute(sqlalchemy.select(table_of(model))).mappings()
            )
            for model in TABLES
            if model is not MigrationRow
        }


# What two machines may have done. Both draw from the same few versions and runs, so that they overlap and contradict.
Deed = tuple[Any, ...]
DEEDS = st.one_of(
    st.tuples(st.just("measure"), st.sampled_from(LABELS), st.sampled_from(list(Origin)), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.sampled_from(LABELS), st.sampled_from([Status.BUILD_FAILED, Status.CHECK_FAILED])),
    st.tuples(st.just("try"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("describe"), st.sampled_from(["y = a x + 1", "y = 1 + a x"])),
    st.tuples(
        st.just("run"), st.sampled_from("rs"), st.integers(0, 4), st.booleans(), st.sampled_from(["left", "right"])
    ),
)


def do(store: Store, deeds: Sequence[Deed]) -> None:
    store.add_task(Task(OP, FP32))
    store.add_device(GPU)
    for deed, *rest in deeds:
        if deed == "measure":
            label, origin, minute = rest
            version = replace(candidate(OP, label), origin=origin, label=f"{label} {origin}", parents=("f" * 32,))
            for evaluation in measured(OP, {version: 0.5}, at=minute, rounds=2):
                store.add_evaluation(OP, evaluation)
        elif deed == "fail":
            store.add_evaluation(OP, failed(OP, candidate(OP, rest[0]), rest[1]))
        elif deed == "try":
            store.add_trials([factories.trial(at=rest[0], held=rest[1])])
        elif deed == "describe":
            store.add_task(Task(replace(OP, definition=rest[0]), FP32))
        elif rest[0] not in [run.id for run in store.runs()]:
            advance(store, *rest)


def advance(store: Store, run_id: str, steps: int, finished: bool, side: str) -> None:
    row = run_row(OP, run_id=run_id, finished_at=factories.instant(30) if finished else None)
    store.start_run(row)
    for number in range(steps):
        store.add_call(
            run_id=run_id, step_number=number, number=number, agent="coder", model="m", seconds=1.0,
            messages=[("system", "You write kernels."), ("user", f"Step {number}, {side}.")], reply=f"Done {side}.",
            created_at=factories.instant(number),
        )  # fmt: skip
        store.add_step(step_row(row, number, "failed", lesson=side))


@settings(max_examples=turns.examples(25), deadline=None)
@given(st.lists(st.lists(DEEDS, max_size=4), min_size=3, max_size=3))
def test_merging_is_sound_and_neither_order_nor_repetition_matters(machines: list[list[Deed]]) -> None:
    with ExitStack() as stack:
        stores = [stack.enter_context(Store(":memory:")) for _ in range(5)]
        parts, (forth, back) = stores[:3], stores[3:]
        for store, deeds in zip(parts, machines, strict=True):
            do(store, deeds)
        for target, order in ((forth, parts), (back, parts[::-1])):
            for part in order:
                merge(target, part, verify=False)
        assert content(forth) == content(back)
        assert [merge(forth, again, verify=False) for again in (*parts, back)] == [{}] * 4
        assert [problem for problem in integrity.check(forth) if "f" * 32 not in problem] == []
        assert {row.id for row in forth.versions()} == {row.id for store in parts for row in store.versions()}


def test_counts_say_what_was_new(told: Store, store: Store) -> None:
    first = merge(store, told)
    assert (
        first["trial"] == 1
        and first["version"] == 24
        and first["run"] == 4
        and first["step"] == 16
        and first["call"] == 12
    )
    assert "migration" not in first
    assert content(store) == content(told)
    for evaluation in measured(OP, {candidate(OP, "new"): 0.5}, at=99):
        told.add_evaluation(OP, evaluation)
    again = merge(store, told)
    assert again == {
        "task": 1,
        "case": 2,
        "version": 1,
        "build": 1,
        "evaluation": 1,
        "check": 4,
        "measurement": 2,
        "profile": 1,
    }


def test_a_run_is_taken_whole_from_where_it_went_further(store: Store) -> None:
    with Store(":memory:") as other:
        for target, steps, side in ((store, 2, "left"), (other, 3, "right")):
            target.add_task(Task(OP, FP32))
            target.add_device(GPU)
            advance(target, "r", steps, False, side)
        assert merge(store, other)["step"] >= 1
        assert [step.lesson for step in store.steps("r")] == ["right"] * 3
        assert [call.reply.content for call in store.calls("r")] == ["Done right."] * 3
        with Store(":memory:") as behind:
            behind.add_task(Task(OP, FP32))
            behind.add_device(GPU)
            advance(behind, "r", 2, True, "left")
            merge(store, behind)
        assert [step.lesson for step in store.steps("r")] == ["right"] * 3


def test_a_database_that_contradicts_itself_is_not_merged(told_file: Path, store: Store) -> None:
    with Store(told_file) as other, other.writing() as session:
        version = session.get_one(VersionRow, other.versions()[0].id)
        version.source += "// changed\n"
    before = content(store)
    with pytest.raises(IntegrityError, match=r"not merged.*is not that of its source"):
        merge(store, told_file)
    assert content(store) == before


def test_merging_leaves_the_other_file_as_it_is(told_file: Path, store: Store) -> None:
    before = told_file.read_bytes()
    merge(store, told_file)
    assert told_file.read_bytes() == before
    assert [path.name for path in told_file.parent.iterdir()] == [told_file.name]
    with pytest.raises(StoreError, match="There is no database"):
        merge(store, told_file.with_name("none.sqlite"))


def test_an_unknown_origin_is_said_whichever_side_has_it(told: Store, told_file: Path) -> None:
    with told.writing() as session:
        session.connection().exec_driver_sql("UPDATE version SET origin = 'hearsay'")
    with pytest.raises(IntegrityError, match=r"unknown origin 'hearsay': see `msbench db check`"):
        merge(told, told_file)
