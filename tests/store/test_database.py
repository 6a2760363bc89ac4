import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msbench.archive.merge import merge
from msbench.archive.union import union
from msbench.errors import StoreError
from msbench.spec import Task
from msbench.store.engine import explain
from msbench.store.migrations import MIGRATIONS
from msbench.store.store import Store
from tests import factories
from tests.factories import FP32, candidate, operator

OP = operator()


def answer(path: str | Path, **options: bool) -> str:
    """What opening a database complains about: one sentence or two, without a traceback's noise."""
    with pytest.raises(StoreError) as caught, Store(path, **options) as store:
        store.tasks()
        store.add_task(Task(OP, FP32))
    text = str(caught.value)
    assert "\n" not in text and "sqlalche.me" not in text and text.endswith(".")
    return text


def test_a_new_file_keeps_a_log_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "local.sqlite"
    with Store(path) as store, store.session() as session:
        assert session.connection().exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    assert [p.name for p in path.parent.iterdir()] == ["local.sqlite"]


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    for path in (tmp_path / "a b?c#d%20é.sqlite", f"sqlite:///{tmp_path}/url.sqlite"):
        with Store(path) as store:
            store.add_task(Task(OP, FP32))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a b?c#d%20é.sqlite", "url.sqlite"]


def test_reading_a_published_database_changes_nothing_and_leaves_nothing(told_file: Path) -> None:
    with Store(told_file) as store:
        store.compact()
    before = told_file.read_bytes(), told_file.stat().st_mtime_ns
    ways: list[Callable[[], Store]] = [
        lambda: Store(told_file, read_only=True),
        lambda: Store(told_file),
        lambda: union([told_file]),
    ]
    for way in ways:
        with way() as store:
            assert len(store.versions()) == 24
            assert [p.name for p in told_file.parent.iterdir()] == [told_file.name]
    assert (told_file.read_bytes(), told_file.stat().st_mtime_ns) == before


def read_only_mount(folder: Path, argv: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command for which ``folder`` is on a read-only medium (file permissions don't stop root)."""
    mount = f'mount --bind "{folder}" "{folder}" && mount -o remount,ro,bind "{folder}"'
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "sh", "-c", mount]).returncode != 0:
        pytest.skip("only root may mount something read-only")
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh", *argv], capture_output=True, text=True
    )


@pytest.mark.parametrize("compact", [True, False])
def test_a_database_on_a_read_only_medium_can_be_read(told_file: Path, compact: bool) -> None:
    if compact:
        with Store(told_file) as store:
            store.compact()
    code = f"""
from msbench.errors import StoreError
from msbench.store.store import Store
from msbench.archive.union import union
from msbench.spec import Task
from tests.factories import FP32, operator
for store in (Store({str(told_file)!r}, read_only=True), union([{str(told_file)!r}])):
    print(len(store.versions()))
    store.close()
try:
    with Store({str(told_file)!r}) as store:
        store.add_task(Task(operator("another"), FP32))
except StoreError as error:
    print(error)
"""
    done = read_only_mount(told_file.parent, [sys.executable, "-c", code])
    assert done.stdout.splitlines()[:2] == ["24", "24"], done.stderr
    assert "can't be written" in done.stdout or "can't be opened" in done.stdout


def test_read_only_refuses_to_write(told_file: Path) -> None:
    assert "can't be written" in answer(told_file, read_only=True)


def test_what_is_not_there_or_not_a_database_is_said(tmp_path: Path) -> None:
    assert "is a folder" in answer(tmp_path)
    assert "There is no database" in answer(tmp_path / "none.sqlite", create=False)
    assert "There is no database" in answer(tmp_path / "none.sqlite", read_only=True)
    (tmp_path / "text.sqlite").write_text("This is a text, and long enough to be more than a header of a file.\n" * 20)
    assert "is not an SQLite database" in answer(tmp_path / "text.sqlite")
    (tmp_path / "empty.sqlite").touch()
    assert "is empty" in answer(tmp_path / "empty.sqlite", read_only=True)
    assert "can't be made" in answer(tmp_path / "text.sqlite" / "below" / "x.sqlite")
    assert not (tmp_path / "none.sqlite").exists()


def test_a_url_that_leads_nowhere_is_said_without_its_password() -> None:
    assert "not a database URL" in answer("what://is:this/thing://")
    said = answer("postgresql+nosuchdriver://me:secret@localhost/x")
    assert "not installed" in said and "localhost" in said and "secret" not in said


def test_someone_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "music.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE album (title)")
    connection.close()
    before = path.read_bytes()
    assert "not one of msbench's" in answer(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_and_left_alone(told_file: Path) -> None:
    connection = sqlite3.connect(told_file)
    connection.execute("INSERT INTO migration VALUES (?, 'later')", [len(MIGRATIONS) + 1])
    connection.commit()
    connection.close()
    assert "update msbench" in answer(told_file)
    assert "update msbench" in answer(told_file, read_only=True)


def test_a_damaged_file_is_said(told_file: Path) -> None:
    with Store(told_file) as store:
        store.compact()
    data = bytearray(told_file.read_bytes())
    data[4096 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 4096)
    told_file.write_bytes(data)
    assert "is damaged" in answer(told_file)


def test_a_locked_database_is_waited_for_and_then_said(told_file: Path) -> None:
    other = sqlite3.connect(told_file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with Store(told_file, timeout_s=0.2) as store:
        with pytest.raises(StoreError, match="locked by another process"):
            store.add_task(Task(operator("late"), FP32))
        assert len(store.versions()) == 24  # reading goes on
        other.execute("ROLLBACK")
        store.add_task(Task(operator("late"), FP32))
    other.close()


def test_a_full_disk_stores_nothing_and_the_next_write_works(told_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.execute("PRAGMA max_page_count=1")  # that is: no more pages than there are
        return connection

    big = factories.measured(OP, {candidate(OP, "big", body="x" * 100_000): 0.5})[0]
    with Store(told_file) as store:
        with monkeypatch.context() as patch:
            patch.setattr("msbench.store.engine.sqlite3.connect", small)
            with pytest.raises(StoreError, match="disk is full"):
                store.add_evaluation(OP, big)
        assert len(store.versions()) == 24
        store.add_evaluation(OP, big)
        assert len(store.versions()) == 25


@pytest.mark.parametrize("text", ["disk I/O error", "no such table: task", "something new", ""])
def test_any_other_driver_error_is_one_sentence(text: str) -> None:
    said = str(explain("x.sqlite", sqlite3.OperationalError(text)))
    assert said.startswith("Database x.sqlite") and said.endswith(".")


def test_many_processes_may_create_one_database(tmp_path: Path) -> None:
    code = "import sys; from msbench.store.store import Store; from msbench.spec import Task; from tests.factories import *\n"
    code += "with Store(sys.argv[1]) as s: s.add_task(Task(operator(sys.argv[2]), FP32))"
    path = str(tmp_path / "shared.sqlite")
    with ThreadPoolExecutor(4) as pool:
        runs = pool.map(lambda n: subprocess.run([sys.executable, "-c", code, path, f"op{n}"], timeout=120), range(6))
    assert [run.returncode for run in runs] == [0] * 6
    with Store(path) as store:
        assert len(store.tasks()) == 6


def test_compact_gives_one_file_whose_bytes_follow_from_its_rows(tmp_path: Path) -> None:
    parts = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    for path, name in zip(parts, ("scale", "shift"), strict=True):
        with Store(path) as store:
            factories.story(store, [operator(name)])
    pages: list[bytes] = []
    for order in (parts, parts[::-1]):
        path = tmp_path / f"merged{len(pages)}.sqlite"
        with Store(path) as store:
            for part in order:
                merge(store, part)
            store.compact()
            connection = sqlite3.connect(path)
            connection.execute("UPDATE migration SET applied_at = 'then'")
            connection.commit()
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
            connection.close()
        pages.append(path.read_bytes()[100:])  # after the header, which counts changes
        assert not list(tmp_path.glob(f"{path.name}-*"))
    assert pages[0] == pages[1]


def test_compact_loses_nothing(told_file: Path) -> None:
    def rows() -> list[str]:
        connection = sqlite3.connect(told_file)
        dump = sorted(connection.iterdump())
        connection.close()
        return dump

    before = rows()
    with Store(told_file) as store:
        store.compact()
        store.add_task(Task(operator("later"), FP32))
    assert [line for line in rows() if "later" not in line] == before


def test_compact_needs_the_file_for_itself(told_file: Path) -> None:
    other = sqlite3.connect(told_file, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM version").fetchone()
    with Store(told_file, timeout_s=0.2) as store, pytest.raises(StoreError, match="locked"):
        store.compact()
    other.close()
