"""A damaged database loses its bad rows, what refers to them, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from msbench.archive import integrity
from msbench.archive.repair import repair
from msbench.errors import StoreError
from msbench.model import Origin
from msbench.store.store import Store
from tests import factories
from tests.store.test_merge import content


def repaired(path: Path, *changes: str) -> tuple[list[str], dict[str, list[str]], dict[str, list[str]]]:
    """What is left of a file that was changed, and the rows of the file before and of the new database."""
    with Store.snapshot(path) as store:
        before = content(store)
    with sqlite3.connect(path) as file:
        for change in changes:
            file.execute(change)
    file.close()
    with Store.snapshot(path) as damaged, Store(":memory:") as target:
        left = repair(damaged, target)
        assert integrity.check(target) == []
        return left, before, content(target)


def test_a_sound_database_is_taken_whole(told_file: Path) -> None:
    left, before, after = repaired(told_file)
    assert (left, after) == ([], before)


def test_a_changed_figure_goes_alone(told_file: Path) -> None:
    left, before, after = repaired(told_file, "UPDATE measurement SET hot_ns = 1 WHERE rowid = 1")
    assert len(left) == 1 and left[0].endswith("was changed: its id is not that of its content.")
    assert len(after["measurement"]) == len(before["measurement"]) - 1
    assert {name: rows for name, rows in after.items() if name != "measurement"} == {
        name: rows for name, rows in before.items() if name != "measurement"
    }


def test_what_refers_to_a_bad_row_goes_with_it(told_file: Path) -> None:
    left, before, after = repaired(told_file, "UPDATE device SET name = 'another'")
    assert any("goes with a row of table device that was left" in says for says in left)
    assert not after["evaluation"] and not after["check"]
    assert after["message"] == before["message"]


def test_a_column_that_is_no_json_costs_one_row(told_file: Path) -> None:
    left, before, after = repaired(told_file, "UPDATE profile SET metrics = '{' WHERE rowid = 1")
    assert len(left) == 1 and left[0].endswith("has a metrics that is no JSON.")
    assert len(after["profile"]) == len(before["profile"]) - 1


def test_a_build_of_another_version_costs_its_evaluation(store: Store, tmp_path: Path) -> None:
    """As two files had it that differed by a byte order mark."""
    op = factories.operator()
    with Store(tmp_path / "two.sqlite") as two:
        marked, plain = (factories.candidate(op, name, Origin.EXTERNAL) for name in ("marked", "plain"))
        for at, version in enumerate((marked, plain)):
            for evaluation in factories.measured(op, {version: 0.5}, at=10.0 * at):
                two.add_evaluation(op, evaluation)
    build = factories.build(marked)
    with sqlite3.connect(tmp_path / "two.sqlite") as file:
        file.execute("UPDATE evaluation SET build_id = ? WHERE version_id = ?", (build.id, plain.id))
    file.close()
    with Store.snapshot(tmp_path / "two.sqlite") as damaged:
        repair(damaged, store)
    assert integrity.check(store) == []
    assert len(store.evaluations(marked.id)) == 1 and store.evaluations(plain.id) == []


def test_a_view_in_a_tables_place_is_no_rows_fault(told_file: Path) -> None:
    with pytest.raises(StoreError, match="can't be repaired row by row"):
        repaired(told_file, "ALTER TABLE lineage RENAME TO was", "CREATE VIEW lineage AS SELECT * FROM was")
