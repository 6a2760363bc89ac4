"""Publishing loses nothing that is shown, and gives a small file that stays the same."""

from __future__ import annotations

import json
import lzma
import sqlite3
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.archive.publish import publish
from msbench.archive.superseded import drop_superseded, lacking
from msbench.archive.union import check_files
from msbench.errors import IntegrityError, StoreError
from msbench.figures.figures import Figures
from msbench.model import Origin, Status, digest
from msbench.spec import Case, Split
from msbench.store import identity, packed
from msbench.store.store import Store
from msbench.store.tables import MeasurementRow
from tests import factories, turns
from tests.factories import CPU, GPU, candidate, failed, measured, operator, run_row, step_row
from tests.store.test_merge import content

OP = operator(sizes=(1 << 17, 1 << 20), odd=1003)
VERSIONS = [
    candidate(OP, "naive", Origin.NAIVE),
    candidate(OP, "vendor", Origin.LIBRARY),
    candidate(OP, "other vendor", Origin.LIBRARY),
    candidate(OP, "a"),
    candidate(OP, "b"),
]
SESSIONS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(["measure", "step"]),
            st.sets(st.integers(0, 4), min_size=1),
            st.sets(st.integers(0, 2), min_size=1),
            st.booleans(),
        ),
        st.tuples(st.just("fail"), st.integers(0, 4), st.sampled_from(["fails", "fails twice", "is not run"])),
    ),
    max_size=7,
)


def record(store: Store, sessions: Sequence[tuple[Any, ...]], first: int = 0) -> None:
    """Sessions one after the other, of some versions on some cases: of bench, or of a run's step, which tried the last version."""
    store.add_ceilings(GPU, factories.CEILINGS)
    for at, (deed, *rest) in enumerate(sessions, first):
        if deed in ("measure", "step"):
            chosen, cases, on_gpu = rest
            versions = {VERSIONS[i]: 0.3 + 0.1 * i + 0.02 * at for i in sorted(chosen)}
            some: list[Case] = [OP.cases[i] for i in sorted(cases)]
            device = GPU if on_gpu else CPU
            evaluations = measured(OP, versions, at=10.0 * at, cases=some, rounds=3, seed=at, device=device)
            store.add_evaluations(OP, evaluations)
            if deed == "step":
                tried = VERSIONS[max(chosen)].id
                run = run_row(OP, run_id=f"{at:032x}", best_version_id=tried)
                store.start_run(run)
                newest = store.evaluations(tried)[-1].id
                store.add_step(step_row(run, 1, "improved", version_id=tried, evaluation_id=newest))
        else:
            status = Status.UNSUPPORTED if rest[1] == "is not run" else Status.CHECK_FAILED
            for again in range(2 if rest[1] == "fails twice" else 1):
                store.add_evaluation(OP, failed(OP, VERSIONS[rest[0]], status, at=10.0 * at + again))


def shown(store: Store) -> list[Any]:
    """Every figure there is, as values."""
    figures = Figures(store)
    found: list[Any] = [figures.device]
    for task in figures.tasks():
        found += [task.measured_at, [case.id for case in task.cases]]
        for one in task.versions:
            found += [one.version.id, one.score, one.library_score, one.bar_score, one.roofline_fraction, one.problem]
            found.append(one.evaluation.id if one.evaluation else None)
            found.append(figures.occasions(one))
            for case in one.cases:
                found.append({**vars(case), "case": case.case.id})
        for one, other in permutations((one.version.id for one in task.versions), 2):
            compared = figures.compare(one, other)
            found += [compared.overall, [(case.id, ratio) for case, ratio in compared.cases]]
    return found


@settings(max_examples=turns.examples(60), deadline=None)
@given(SESSIONS)
@example([(deed, {0, 1, ours}, {0, 1, 2}, True) for deed, ours in (("measure", 4), ("measure", 3), ("step", 3))])
def test_dropping_what_is_superseded_changes_no_figure(sessions: Sequence[tuple[Any, ...]]) -> None:
    with Store(":memory:") as store:
        record(store, sessions)
        before = shown(store)
        drop_superseded(store)
        assert shown(store) == before
        assert integrity.check(store) == []
        assert drop_superseded(store) == {}


def test_of_two_equal_sessions_the_newer_stays(store: Store) -> None:
    record(store, [("measure", {0, 1, 3}, {0, 1, 2}, True)] * 2)
    assert drop_superseded(store)["evaluation"] == 3
    assert {one.started_at for version in VERSIONS for one in store.evaluations(version.id)} == {factories.instant(10)}


def test_a_newer_session_with_fewer_cases_or_versions_supersedes_only_what_it_repeats(store: Store) -> None:
    record(store, [("measure", {0, 1, 3}, {0, 1, 2}, True), ("measure", {0, 1, 3}, {0}, True)])
    assert drop_superseded(store) == {}
    record(store, [("measure", {0, 3}, {0, 1, 2}, True)] * 3, first=2)
    assert drop_superseded(store)["evaluation"] == 4  # the two older ones of the three


def test_what_a_story_tells_stays_with_what_was_measured_beside_it(store: Store) -> None:
    record(store, [("measure", {0, 3}, {0, 1, 2}, True)])
    run = run_row(OP)
    store.start_run(run)
    told = store.evaluations(VERSIONS[3].id)[0].id
    store.add_step(step_row(run, 1, "improved", version_id=VERSIONS[3].id, evaluation_id=told))
    record(store, [("measure", {0, 3}, {0, 1, 2}, True)] * 2, first=1)
    assert drop_superseded(store)["evaluation"] == 2
    assert told in [one.id for one in store.evaluations(VERSIONS[3].id)]
    assert len(store.evaluations(VERSIONS[0].id)) == 2


def test_a_replaced_version_keeps_its_verdict_and_not_its_times(store: Store) -> None:
    op = operator()
    naive = candidate(op, "naive", Origin.NAIVE)
    old, new = (candidate(op, "best", Origin.EXPERT, body=body) for body in ("old", "new"))
    for at, best in ((1.0, old), (2.0, new)):
        for one in measured(op, {naive: 0.2, best: 0.5}, at=at, seed=int(at)):
            store.add_evaluation(op, one)
    counts = drop_superseded(store)
    assert (counts["evaluation"], counts["measurement"]) == (
        1,
        2 * len(op.cases),
    )  # the first of naive, and old's times
    assert [len(store.evaluation(store.evaluations(v.id)[-1].id).measurements) for v in (naive, old, new)] == [
        len(op.cases),
        0,
        len(op.cases),
    ]
    assert store.evaluation(store.evaluations(old.id)[-1].id).status is Status.PASSED
    assert integrity.check(store) == [] and drop_superseded(store) == {}


def test_a_case_that_nothing_refers_to_goes(store: Store) -> None:
    op = operator()
    naive = candidate(op, "naive", Origin.NAIVE)
    (before,), (after,) = (measured(op, {naive: 0.2}, at=at) for at in (1.0, 2.0))
    hidden = replace(before.checks[0], case=Case((("N", 77),), Split.HELDOUT))
    store.add_evaluation(op, replace(before, checks=(*before.checks, hidden)))
    store.add_evaluation(op, after)
    assert drop_superseded(store)["case"] == 1


def test_what_is_kept_for_its_times_has_the_checks_of_the_cases_that_it_was_timed_on(store: Store) -> None:
    op = operator()
    naive, first, second = candidate(op, "naive", Origin.NAIVE), candidate(op, "a"), candidate(op, "b")
    for at, ours in ((1.0, first), (2.0, second)):
        for one in measured(op, {naive: 0.2, ours: 0.5}, at=at, seed=int(at)):
            hidden = replace(one.checks[0], case=Case((("N", 77),), Split.HELDOUT))
            store.add_evaluation(op, replace(one, checks=(*one.checks, hidden)))
    every = len(store.evaluation(store.evaluations(first.id)[0].id).checks)
    assert drop_superseded(store) == {"check": 1}
    checked = {
        version.label: [len(store.evaluation(one.id).checks) for one in store.evaluations(version.id)]
        for version in (naive, first, second)
    }
    assert checked == {"naive": [every - 1, every], "a": [every], "b": [every]}
    assert integrity.check(store) == []


def test_of_trials_the_newest_recording_stays(store: Store) -> None:
    store.add_device(GPU)
    store.add_trials([factories.trial(at=0), factories.trial(at=1)])
    assert drop_superseded(store) == {"trial": 1}
    assert [trial.created_at for trial in store.trials()] == [factories.trial(at=1).created_at]


def test_it_says_which_trials_a_smaller_recording_supersedes(store: Store) -> None:
    store.add_device(GPU)
    store.add_trials([factories.trial("a"), factories.trial("b")])
    store.add_trials([factories.trial("a", at=1, harness="h2")])
    [said] = lacking(store)
    assert said.startswith(f"exploits on {GPU.name}:") and "1 of 2 subjects, such as 'b'" in said
    store.add_trials([factories.trial("b", at=2, harness="h2")])  # its second part
    assert lacking(store) == []


def test_a_published_database_has_every_row_that_counts(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    done = publish(target, [told_file])
    assert (done.before, done.after) == (0, target.stat().st_size)
    assert done.after < 0.6 * told_file.stat().st_size
    with Store.snapshot(told_file) as meant, Store.snapshot(target) as there:
        drop_superseded(meant)
        assert content(there) == content(meant)
    assert check_files([target]) == []


def test_what_a_row_repeats_is_stored_once(tmp_path: Path) -> None:
    """As the samples of a run that was replayed are, which are those of its recording."""
    target = tmp_path / "published.sqlite"
    with Store(tmp_path / "told.sqlite") as store:
        (timed,) = measured(OP, {VERSIONS[1]: 0.4}, cases=OP.cases[:1])
        id = store.add_evaluation(OP, timed)
        run = run_row(OP)
        store.start_run(run)
        again = replace(timed, executor="recorded", recorded_from=id, started_at=factories.instant(20))
        store.add_step(
            step_row(run, 0, "baseline", version_id=VERSIONS[1].id, evaluation_id=store.add_evaluation(OP, again))
        )
        meant = content(store)
    publish(target, [tmp_path / "told.sqlite"])
    with sqlite3.connect(target) as file:
        (first,), (second,) = file.execute("SELECT samples FROM measurement ORDER BY key")
    assert (first[:1], len(first) > 64, second) == (b"x", True, b"=1")
    with Store.snapshot(target) as there:
        assert content(there) == meant


def test_of_a_case_only_what_its_name_does_not_tell_is_stored(told_file: Path, tmp_path: Path) -> None:
    """A file of format 5, which has all of it, is read like one."""
    target = tmp_path / "published.sqlite"
    with Store(told_file) as store:
        (timed,) = measured(OP, {VERSIONS[0]: 0.4}, at=100.0)
        sizes = (("N", 77),)
        for case in (
            Case(sizes, Split.HELDOUT, "spiked", (("a", 0.25), ("b", 7.0))),
            Case(sizes, Split.HELDOUT, "uniform", (("a", 1e20), ("b", -7.0))),
        ):
            store.add_evaluation(OP, replace(timed, checks=(*timed.checks, replace(timed.checks[0], case=case))))
    publish(target, [told_file])
    with Store.snapshot(told_file) as meant:
        drop_superseded(meant)
        whole = content(meant)
        with meant.raw() as raw:
            columns = {
                bytes.fromhex(id): row for id, *row in raw.execute('SELECT id, dims, scalars, distribution FROM "case"')
            }
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        assert content(there) == whole
        samples_apart(file, there)
        query = 'SELECT name, dims, scalars, distribution FROM "case" WHERE coalesce(dims, scalars, distribution) IS NOT NULL'
        assert file.execute(query).fetchall() == [("N=77,a=1e20,b=-7.0", None, '{"a":1e+20,"b":-7.0}', None)]
        for id, row in columns.items():
            file.execute('UPDATE "case" SET dims = ?, scalars = ?, distribution = ? WHERE id = ?', (*row, id))
        file.execute("PRAGMA user_version=5")
    file.close()
    with Store.snapshot(target) as there:
        assert content(there) == whole


def test_publishing_again_gives_the_same_bytes_and_new_rows_come_last(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    before = target.read_bytes()
    with sqlite3.connect(target) as file:
        keys = packed.keys(file)
    assert publish(target, [told_file]).added == {}
    assert target.read_bytes() == before
    with Store(tmp_path / "more.sqlite") as more:
        record(more, [("measure", {0, 1}, {0, 1}, True)])
    publish(target, [tmp_path / "more.sqlite"])
    with sqlite3.connect(target) as file:
        later = packed.keys(file)
    for table, known in keys.items():
        kept = known.keys() & later[table].keys()
        assert {id: later[table][id] for id in kept} == {id: known[id] for id in kept}
        new = [key for id, key in later[table].items() if id not in known]
        assert min(new, default=10**9) > max(known.values(), default=0)


def test_a_published_database_is_merged_like_any_other(told_file: Path, tmp_path: Path) -> None:
    publish(tmp_path / "published.sqlite", [told_file])
    with Store(tmp_path / "ordinary.sqlite") as store:
        merge(store, tmp_path / "published.sqlite")
        with Store.snapshot(tmp_path / "published.sqlite") as there:
            assert content(store) == content(there)


def test_it_is_refused_for_writing(told_file: Path, tmp_path: Path) -> None:
    publish(tmp_path / "published.sqlite", [told_file])
    with pytest.raises(StoreError, match=r"is a published one, which is read-only: write to another .*db publish"):
        Store(tmp_path / "published.sqlite")


def test_the_views_name_the_same_rows(told_file: Path, tmp_path: Path) -> None:
    publish(tmp_path / "published.sqlite", [told_file])
    for view, order in (("timing", "version_id, case_id"), ("speedup", "version_id, reference_id, case_id")):
        with Store.snapshot(tmp_path / "published.sqlite") as store, store.raw() as raw:
            meant = raw.execute(f"SELECT * FROM {view} ORDER BY {order}")
            heads, rows = [column[0] for column in meant.description], list(meant)
        with sqlite3.connect(tmp_path / "published.sqlite") as file:
            there = file.execute(f"SELECT * FROM {view} ORDER BY {order}")
            assert [column[0] for column in there.description] == heads
            assert [[v.hex() if isinstance(v, bytes) else v for v in row] for row in there] == [*map(list, rows)]
        assert rows


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE check_packed SET rows = substr(rows, 1, 20)",
        "UPDATE check_packed SET ids = substr(ids, 1, 16)",
        "UPDATE version SET source = x'7a00' WHERE source IS NOT NULL",
        "UPDATE version SET source = x'7800' WHERE source IS NOT NULL",
        "UPDATE version SET source = x'2b' WHERE source IS NOT NULL",
        "UPDATE measurement SET samples = x'2b' WHERE key = 1",
        "UPDATE measurement SET samples = x'7a00' WHERE key = 1",
        "UPDATE evaluation SET version_id = 99999",
        "DROP VIEW speedup; DROP VIEW timing; DROP TABLE lineage; CREATE VIEW lineage AS SELECT 1",
    ],
)
def test_a_damaged_one_is_refused_in_one_sentence(told_file: Path, tmp_path: Path, change: str) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file:
        file.executescript(change)
    file.close()
    with pytest.raises(IntegrityError, match=r"restore the database from git or a copy\.$"):
        Store.snapshot(target)
    assert len(check_files([target])) == 1


def together(values: Sequence[Any]) -> list[Any]:
    """What a column's stored values stand for: its texts one by one."""
    texts: list[str] = []
    found = []
    for value in values:
        if isinstance(value, bytes) and value[:1] == b"x":
            assert not texts
            texts = json.loads(lzma.decompress(value[1:]))
        is_text = isinstance(value, bytes) and value[:1] in (b"x", b"+")
        found.append(texts.pop(0) if is_text else value)
    assert not texts
    return found


def folds(file: sqlite3.Connection, table: str) -> list[tuple[int, bytes, bytes]]:
    """The rowid, the starts of ids and the JSON of each of a table's rows."""
    rowids, ids, rows = zip(*file.execute(f"SELECT rowid, ids, rows FROM {table} ORDER BY rowid"), strict=True)
    return list(zip(rowids, ids, (text.encode() for text in together(rows)), strict=True))


def samples_apart(file: sqlite3.Connection, ordinary: Store) -> None:
    """Write samples, and measurements' ids, as they were up to format 6: as in an ordinary database, whose bytes counted."""
    with ordinary.raw() as raw:
        raw.row_factory = sqlite3.Row
        for row in map(dict, raw.execute("SELECT * FROM measurement")):
            blob = row["samples"][:4] + zlib.compress(zlib.decompress(row["samples"][4:]), 9)
            before = digest("measurement", identity.content(MeasurementRow, {**row, "samples": blob}, counts=bytes))
            ids = bytes.fromhex(before), bytes.fromhex(row["id"])
            assert file.execute("UPDATE measurement SET samples = ?, id = ? WHERE id = ?", (blob, *ids)).rowcount == 1
        raw.row_factory = None


def test_a_changed_check_is_found(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file:
        rows = [rows.decode() for _, _, rows in folds(file, "check_packed")]
        better = [text.replace("0.25", "0.01") for text in rows]
        assert better != rows
        stream = b"x" + lzma.compress(json.dumps(better).encode())
        file.execute("UPDATE check_packed SET rows = ? WHERE rowid = (SELECT min(rowid) FROM check_packed)", (stream,))
    file.close()
    problems = check_files([target])
    assert problems and all("was changed: its id is not that of its content" in problem for problem in problems)


def test_what_is_damaged_is_not_published(told_file: Path, tmp_path: Path) -> None:
    with sqlite3.connect(told_file) as file:
        file.execute("UPDATE measurement SET hot_ns = 1 WHERE rowid = 1")
    file.close()
    with pytest.raises(IntegrityError, match="was changed"):
        publish(tmp_path / "published.sqlite", [told_file])
    assert not (tmp_path / "published.sqlite").exists()


def test_a_best_version_that_was_only_checked_by_its_run_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "mine.sqlite") as store:
        factories.story(store)
    target = tmp_path / "published.sqlite"
    with pytest.raises(IntegrityError, match="hidden cases that the run never used"):
        publish(target, [tmp_path / "mine.sqlite"], proved=True)
    assert not target.exists()
    publish(target, [tmp_path / "mine.sqlite"])
    publish(target, [tmp_path / "mine.sqlite"], proved=True)  # what is published stays so
