import sqlite3
from pathlib import Path

import pytest

from msbench.archive.union import check_files, union
from msbench.errors import StoreError
from msbench.model import digest
from msbench.store import identity
from msbench.store.migrations import MIGRATIONS
from msbench.store.store import Store
from msbench.store.tables import MeasurementRow
from tests import factories

RELEASED = Path(__file__).with_name("schema_1.sql")
"""The schema as it was when it first was version 1: never edited afterwards. Changed a table? Write a migration."""


def schema(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    found = {
        " ".join(sql.split()) for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    }
    connection.close()
    return found


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_oldest_schema_becomes_the_newest(tmp_path: Path, in_memory: bool) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    connection = sqlite3.connect(old)
    connection.executescript(RELEASED.read_text() + "INSERT INTO migration VALUES (1, '2026-11-20T00:00:00+00:00');")
    connection.close()
    if in_memory:
        with union([old]) as store:
            factories.story(store)
            store.add_trials([factories.trial()])
        return
    for path in (old, new):
        with Store(path) as store:
            factories.story(store)
    assert schema(old) == schema(new)


def test_every_migration_is_on_record_once(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    for _ in range(2):
        Store(path).close()
    connection = sqlite3.connect(path)
    versions = connection.execute("SELECT version FROM migration ORDER BY version").fetchall()
    connection.close()
    assert versions == [(number,) for number in range(1, len(MIGRATIONS) + 1)]


@pytest.mark.parametrize("changed", ["DELETE FROM migration", "UPDATE migration SET version = -version"])
def test_a_file_that_lost_its_schema_number_says_so(tmp_path: Path, changed: str) -> None:
    path = tmp_path / "x.sqlite"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute(changed)
    connection.commit()
    connection.close()
    for opened in (Store, Store.snapshot):
        with pytest.raises(StoreError, match=r"x\.sqlite does not say which schema it has"):
            opened(path)


def test_an_interrupted_creation_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(connection: object) -> None:
        MIGRATIONS[0](connection)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    path = tmp_path / "x.sqlite"
    with monkeypatch.context() as patch:
        patch.setattr("msbench.store.migrations.MIGRATIONS", (broken,))
        with pytest.raises(KeyboardInterrupt):
            Store(path)
    with Store(path) as store:
        factories.story(store)


def test_measurements_are_named_by_their_samples_whatever_compressed_them(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with Store(path) as store:
        factories.story(store)
    with sqlite3.connect(path) as file:
        file.row_factory = sqlite3.Row
        rows = [dict(row) for row in file.execute("SELECT * FROM measurement ORDER BY id")]
        for row in rows:
            before = digest("measurement", identity.content(MeasurementRow, row, counts=bytes))
            file.execute("UPDATE measurement SET id = ? WHERE id = ?", (before, row["id"]))
        file.execute("UPDATE measurement SET host_ns = host_ns + 1 WHERE case_id = ?", (rows[0]["case_id"],))
        changed = file.execute("SELECT id FROM measurement WHERE case_id = ?", (rows[0]["case_id"],)).fetchall()
        file.execute(f"DELETE FROM migration WHERE version = {len(MIGRATIONS)}")
    file.close()
    Store(path).close()
    with sqlite3.connect(path) as file:
        now = {id for (id,) in file.execute("SELECT id FROM measurement")}
    file.close()
    right = {row["id"] for row in rows if row["case_id"] != rows[0]["case_id"]}
    assert right and changed and now == right | {row["id"] for row in changed}
    assert len(check_files([path])) == len(changed)
