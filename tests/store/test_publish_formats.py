"""Publications in other formats than today's: earlier ones are read, a later one is refused."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from msbench.archive.publish import publish
from msbench.archive.superseded import drop_superseded
from msbench.archive.union import check_files
from msbench.errors import IntegrityError
from msbench.store import packed
from msbench.store.store import Store
from tests.store.test_merge import content
from tests.store.test_publish import folds, samples_apart, together


def store_apart(file: sqlite3.Connection, table: str, dictionaries: bool) -> None:
    """Write what is folded as it was up to format 4: each a stream of its own, with or without those before it as dictionary."""
    before = b""
    for rowid, _, rows in folds(file, table):
        deflating = zlib.compressobj(9, zdict=before) if dictionaries else zlib.compressobj(9)
        stream = deflating.compress(rows) + deflating.flush()
        file.execute(f"UPDATE {table} SET rows = ? WHERE rowid = ?", (stream, rowid))
        before = (before + rows)[-(1 << 15) :]


@contextmanager
def as_format(version: int, told_file: Path, target: Path) -> Iterator[tuple[sqlite3.Connection, Store]]:
    """A publication to be rewritten as one of an earlier format, which then has to say the same."""
    publish(target, [told_file])
    with Store.snapshot(target) as there:
        meant = content(there)
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        samples_apart(file, there)
        yield file, there
        file.execute(f"PRAGMA user_version={version}")
    file.close()
    with Store.snapshot(target) as there:
        assert content(there) == meant


def test_a_publication_of_format_6_is_read_and_published_with_the_same_keys(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        meant, keys = content(there), packed.keys(file)
        samples_apart(file, there)
        file.execute("PRAGMA user_version=6")
        assert packed.keys(file) == keys
    file.close()
    with Store.snapshot(target) as there:
        assert content(there) == meant
    assert check_files([target]) == []
    publish(target)
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        assert (packed.keys(file), content(there)) == (keys, meant)
    file.close()


def test_a_measurement_that_was_changed_before_its_id_was_another_is_found(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        samples_apart(file, there)
        file.execute("UPDATE measurement SET host_ns = host_ns + 1 WHERE key = 1")
        file.execute("PRAGMA user_version=6")
    file.close()
    (problem,) = check_files([target])
    assert "was changed: its id is not that of its content" in problem


def test_a_publication_without_dictionaries_is_read(told_file: Path, tmp_path: Path) -> None:
    """As format 2 is, in which a check's id is whole."""
    with as_format(2, told_file, tmp_path / "published.sqlite") as (file, there):
        with there.raw() as raw:
            whole = {id[:8]: id for table in ("check", "trial") for (id,) in raw.execute(f'SELECT id FROM "{table}"')}
        for table in ("check_packed", "trial_packed"):
            for rowid, ids, _ in folds(file, table):
                named = "".join(whole[ids[at : at + 4].hex()] for at in range(0, len(ids), 4))
                file.execute(f"UPDATE {table} SET ids = ? WHERE rowid = ?", (bytes.fromhex(named), rowid))
            store_apart(file, table, dictionaries=False)


def test_a_publication_of_format_4_is_read(told_file: Path, tmp_path: Path) -> None:
    """In which each long text is a zlib stream, with the texts before it in its column as dictionary."""
    streams = 0
    with as_format(4, told_file, tmp_path / "published.sqlite") as (file, _):
        for table in ("check_packed", "trial_packed"):
            store_apart(file, table, dictionaries=True)
        for table in ("version", "message", "profile"):
            for _, column, *_ in file.execute(f'PRAGMA table_info("{table}")').fetchall():
                stored = file.execute(f'SELECT "key", "{column}" FROM "{table}" ORDER BY "key"').fetchall()
                before = b""
                for (key, was), text in zip(stored, together([value for _, value in stored]), strict=True):
                    if isinstance(text, str) and len(text) >= 120:
                        if isinstance(was, bytes):
                            deflating = zlib.compressobj(9, zdict=before)
                            stream = b"z" + deflating.compress(text.encode()) + deflating.flush()
                            file.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE "key" = ?', (stream, key))
                            streams += 1
                        before = (before + text.encode())[-(1 << 15) :]
    assert streams > 1


def test_one_of_a_newer_msbench_is_refused(told_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file:
        file.execute(f"PRAGMA user_version={packed.FORMAT + 1}")
    file.close()
    with pytest.raises(IntegrityError, match=r"update msbench\.$"):
        Store.snapshot(target)


def test_a_publication_of_before_a_table_was_there_is_read(told_file: Path, tmp_path: Path) -> None:
    """As the first one is, from before calls were recorded."""
    target = tmp_path / "published.sqlite"
    publish(target, [told_file])
    with sqlite3.connect(target) as file, Store.snapshot(target) as there:
        samples_apart(file, there)
        file.executescript(
            "PRAGMA user_version=6; DROP TABLE record; ALTER TABLE step DROP COLUMN predicted_cases; DELETE FROM migration WHERE version > 2"
        )
    file.close()
    assert check_files([target]) == []
    assert publish(target).dropped == {}
    with Store.snapshot(target) as there, Store.snapshot(told_file) as meant:
        drop_superseded(meant)
        assert {**content(there), "record": []} == {**content(meant), "record": []}
