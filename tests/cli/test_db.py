"""Databases merged, checked, compared and counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from msbench.model import Origin
from msbench.store.store import Store
from tests import factories
from tests.cli.running import run


def test_merging_twice_is_merging_once(here: Path, other: Path) -> None:
    first = run(here, "db", "merge", other, "--db", "mine.sqlite")
    assert first.returncode == 0, first
    assert re.search(r"other\.sqlite → mine\.sqlite: .*\d+ evaluation", first.stdout)
    before = (here / "mine.sqlite").stat().st_size
    second = run(here, "db", "merge", other, "--db", "mine.sqlite")
    assert second.returncode == 0
    assert second.stdout.endswith("mine.sqlite: nothing new\n")
    assert (here / "mine.sqlite").stat().st_size == before
    checked = run(here, "db", "check", "--db", "mine.sqlite")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "mine.sqlite: every hash and reference is right" in checked.stdout


def test_a_changed_row_is_found(here: Path, other: Path) -> None:
    import sqlite3

    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE version SET source = source || ' ' WHERE rowid = 1")
    connection.close()
    checked = run(here, "db", "check", "--db", other)
    assert checked.returncode == 1
    assert re.search(r"✗ .*other\.sqlite: Version \w+ was changed", checked.stdout)
    assert re.fullmatch(r"\d+ problem\(s\): .+\n", checked.stderr)


def test_a_database_that_is_not_there_is_a_problem(here: Path) -> None:
    checked = run(here, "db", "check", "--db", "none.sqlite")
    assert checked.returncode == 1
    assert "There is no database none.sqlite" in checked.stdout
    assert checked.stderr == ""  # nothing to restore
    assert not (here / "none.sqlite").exists()


def test_a_file_that_is_no_database_is_no_damaged_one(here: Path) -> None:
    (here / "x.txt").write_text("hello", encoding="utf-8")
    checked = run(here, "db", "check", "--db", "x.txt")
    assert (checked.returncode, checked.stderr) == (1, "")
    assert "x.txt is not an SQLite database: check the path" in checked.stdout


def test_a_parent_may_be_in_another_database(here: Path) -> None:
    """What is read together is checked together: here a version in db/local.sqlite, its parent in db/other.sqlite."""
    op = factories.operator("scale")
    parent = factories.candidate(op, "naive", Origin.NAIVE)
    child = factories.candidate(op, "child", Origin.AGENT, parents=(parent.id,))
    (here / "db").mkdir()
    for name, candidate in (("other", parent), ("local", child)):
        with Store(here / "db" / f"{name}.sqlite") as store:
            store.add_version(op, candidate)
    together = run(here, "db", "check")
    assert together.returncode == 0, together
    alone = run(here, "db", "check", "--db", "db/local.sqlite")
    assert alone.returncode == 1
    assert f"names the parent {parent.id}, which is in none here" in alone.stdout


@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_counts_are_whole_numbers_at_any_usual_width(here: Path, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = run(here, "db", "counts").stdout.partition("Further apart")[0]
    assert "…" not in shown
    rows = [line.split() for line in shown.splitlines()[1:] if re.search(r"\d\.\d{3}", line)]
    assert len(rows) > 20
    for row in rows:
        assert all(re.fullmatch(r"[\d.]+(e[+-]\d\d)?|–", number) for number in row[-6:]) and len(row) >= 8, row


def test_a_comparison_without_differences_has_no_table(other: Path, here: Path) -> None:
    same = run(here, "db", "compare", other, "--db", other)
    assert (same.returncode, same.stderr) == (0, "")
    assert re.fullmatch(r"\d+ times compared, in the median 1\.000 .*\n?.*", same.stdout.strip()), same.stdout
