"""Whatever is in a database file: `db check`, `db merge` and `build-site` take it, or say in one sentence why not."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.archive.union import check_files, union
from msbench.errors import StoreError
from msbench.store.store import Store
from tests import factories

_shared = settings(
    max_examples=max(6, settings().max_examples // 20),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small database, as it is committed."""
    path = tmp_path_factory.mktemp("whole") / "x.sqlite"
    with Store(path) as store:
        op = factories.operator("scale")
        store.add_ceilings(factories.GPU, factories.CEILINGS)
        for evaluation in factories.measured(op, {factories.candidate(op, "naive"): 0.3}, cases=op.cases[:1]):
            store.add_evaluation(op, evaluation)
        run = factories.run_row(op)
        store.start_run(run)
        store.add_step(factories.step_row(run, 0, "baseline"))
        store.add_call(
            run_id=run.id, step_number=0, number=1, agent="coder", messages=[("user", "Faster.")], reply="No.", model="x", seconds=1
        )  # fmt: skip
        store.compact()
    return path


@contextmanager
def copy_of(whole: Path) -> Iterator[Path]:
    """A folder of its own for each example: a failed one leaves nothing to the next."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(shutil.copy(whole, Path(folder) / "x.sqlite"))


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def judged(path: Path) -> list[str]:
    """What check says; everything else must agree: what it finds nothing wrong with can be used, and the rest is refused."""
    before = path.read_bytes()
    problems = check_files([path])
    for problem in problems:
        assert problem.count("\n") == 0 and problem.endswith("."), problem
    with Store(path.with_name("target.sqlite")) as into:
        try:
            merge(into, path)
        except StoreError as error:
            assert str(error).count("\n") == 0
            assert into.tasks() == []  # all or nothing
        else:
            assert not problems or "is empty" in problems[0], problems
    try:
        with union([path]) as store:
            found = integrity.check(store, alone=True)
            assert bool(found) <= bool(problems)
    except StoreError as error:
        assert problems and str(error).count("\n") == 0
    assert path.read_bytes() == before
    return problems


@_shared
@given(data=st.data())
def test_flipped_bytes(whole: Path, data: st.DataObject) -> None:
    with copy_of(whole) as path:
        raw = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 8))):
            header = data.draw(st.booleans())
            raw[data.draw(st.integers(0, 200 if header else len(raw) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(raw)
        judged(path)


@_shared
@given(cut=st.integers(0, 400_000), filling=st.binary(max_size=40))
def test_cut_and_lengthened_files(whole: Path, cut: int, filling: bytes) -> None:
    with copy_of(whole) as path:
        raw = path.read_bytes()
        path.write_bytes(raw[: cut % len(raw)] + filling)
        assert judged(path)


@_shared
@given(raw=st.binary(max_size=300))
def test_files_of_any_bytes(whole: Path, raw: bytes) -> None:
    for text in (raw, b"SQLite format 3\0" + raw):
        with copy_of(whole) as path:
            path.write_bytes(text)
            assert judged(path)


VALUES: tuple[Any, ...] = (
    None, 0, -1, 2**62, 1.5, float("inf"), "", "x", "{", "[]", '{"a": [1, null]}', "null", "NaN", "é\0", b"", b"\xff\xfe", b"MS\x01I", "a" * 5000,
    "2026-13-45T99:00:00", "passed", "fp32", "\ud800".encode("utf-8", "surrogatepass"),
)  # fmt: skip


@_shared
@given(data=st.data())
def test_changed_values(whole: Path, data: st.DataObject) -> None:
    """What no sane program writes, in any column of any row."""
    with copy_of(whole) as path:
        with opened(path) as connection:
            for _ in range(data.draw(st.integers(1, 3))):
                table = data.draw(st.sampled_from(_tables(connection)))
                columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
                rows = [row[0] for row in connection.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')] or [0]
                column, row, value = (data.draw(st.sampled_from(some)) for some in (columns, rows, VALUES))
                with suppress(sqlite3.IntegrityError):  # what SQLite itself refuses
                    connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, row))
        judged(path)


CHANGES = (
    'DROP TABLE "{0}"', 'DELETE FROM "{0}"', 'ALTER TABLE "{0}" ADD COLUMN more', 'ALTER TABLE "{0}" RENAME TO other',
    'CREATE VIEW other AS SELECT * FROM "{0}"', "UPDATE migration SET version = 999", "UPDATE migration SET version = 0",
    "INSERT INTO migration VALUES (-5, 'then')", "DELETE FROM migration", "PRAGMA user_version = 12345",
)  # fmt: skip


@_shared
@given(data=st.data())
def test_changed_schemas(whole: Path, data: st.DataObject) -> None:
    with copy_of(whole) as path:
        with opened(path) as connection:
            table, change = data.draw(st.sampled_from(_tables(connection))), data.draw(st.sampled_from(CHANGES))
            with suppress(sqlite3.Error):  # a view depends on it
                connection.execute(change.format(table))
        judged(path)


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
