"""Databases merged, checked, compared and counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from msbench.model import Origin
from msbench.store.store import Store
from tests import factories, turns
from tests.cli.running import GOOD, QUICKLY, run


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


@turns.costly
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


@pytest.mark.parametrize("columns", turns.share(["80", "100", "200"]))
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
    assert re.fullmatch(r"\d+ times compared, median ratio 1\.000; .*\n?.*", same.stdout.strip()), same.stdout


def test_publishing_changes_no_byte_of_the_site(here: Path, other: Path) -> None:
    """Also where there is something to drop: each version's first session is superseded by another one."""
    op = factories.operator("scale")
    again = [factories.candidate(op, "naive", Origin.NAIVE), factories.candidate(op, "vendor", Origin.LIBRARY)]
    with Store(other) as store:
        for at in (100.0, 200.0):
            store.add_evaluations(op, factories.measured(op, dict.fromkeys(again, 0.5), at=at, seed=int(at)))
    before = run(here, "build-site", "--db", other, "--out", "before")
    published = run(here, "db", "publish", other, "--db", "published.sqlite")
    after = run(here, "build-site", "--db", "published.sqlite", "--out", "after")
    assert (before.returncode, published.returncode, after.returncode) == (0, 0, 0), (before, published, after)
    assert re.search(r"dropped as superseded: .*2 evaluation", published.stdout)
    sites = [
        {path.relative_to(here / site): path.read_bytes() for path in (here / site).rglob("*") if path.is_file()}
        for site in ("before", "after")
    ]
    assert len(sites[0]) > 20
    assert sites[0] == sites[1]


def test_a_published_database_is_not_written_by_other_commands(here: Path, other: Path) -> None:
    assert run(here, "db", "publish", other, "--db", "published.sqlite").returncode == 0
    merged = run(here, "db", "merge", other, "--db", "published.sqlite")
    assert merged.returncode == 2
    assert "published.sqlite is a published one, which is read-only" in merged.stderr


def test_what_is_good_in_a_damaged_database_can_be_taken(here: Path, other: Path) -> None:
    import sqlite3

    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE measurement SET median_ns = 1.0 WHERE rowid = 1")
    connection.close()
    repaired = run(here, "db", "repair", other, "--db", "good.sqlite")
    assert repaired.returncode == 1
    assert re.match(r"✗ Measurement \w+ .+\n", repaired.stdout)
    assert repaired.stdout.endswith("good.sqlite: all but 1 rows\n")
    assert run(here, "db", "check", "--db", "good.sqlite").returncode == 0


def test_nothing_is_written_into_a_damaged_database(here: Path, other: Path) -> None:
    import sqlite3

    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE version SET source = source || ' ' WHERE rowid = 1")
    connection.close()
    before = other.read_bytes()
    (here / "mine.cu").write_text(GOOD, encoding="utf-8")
    for command in (
        ("eval", "mine.cu", "--op", "vector_add", "--precision", "fp32", *QUICKLY),
        ("bench", "vector_add/fp32", *QUICKLY),
        ("db", "merge", "db/none.sqlite"),
    ):
        done = run(here, *command, "--db", other)
        assert done.returncode == 2, done
        assert re.match(r"error: Nothing is written into .*other\.sqlite, because of \d+ problem", done.stderr), done
    assert other.read_bytes() == before


def test_a_byte_order_mark_makes_no_other_version(here: Path) -> None:
    """Compilers skip it: both files have one build, which may not be of two versions."""
    for encoding in ("utf-8-sig", "utf-8"):
        (here / "mine.cu").write_text(GOOD, encoding=encoding)
        done = run(
            here, "eval", "mine.cu", "--op", "vector_add", "--precision", "fp32", *QUICKLY, "--db", "mine.sqlite"
        )
        assert done.returncode == 0, done
    assert run(here, "db", "check", "--db", "mine.sqlite").returncode == 0
    with Store(here / "mine.sqlite", read_only=True) as store:
        assert len(store.versions()) == 1
    assert run(here, "db", "merge", "mine.sqlite", "--db", "all.sqlite").returncode == 0
