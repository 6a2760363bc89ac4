"""Scratch folders go with their process or with the next one's sweep, and a folder is replaced in one step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msbench import scratch as scratching
from msbench.scratch import replace_folder, scratch

HOLD = """
import sys, time
from pathlib import Path
from msbench.scratch import scratch
with scratch(Path(sys.argv[1])) as folder:
    (folder / "file").write_text("half")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_left_is_swept_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    held = [
        subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in "ab"
    ]
    try:
        left, used = (Path(one.stdout.readline().strip()) for one in held if one.stdout)
        os.kill(held[0].pid, signal.SIGKILL)
        held[0].wait()
        assert left.is_dir() and used.is_dir()
        (tmp_path / "msbench-file").touch()
        (tmp_path / "mine").mkdir()
        with scratch(tmp_path) as folder:
            assert not left.exists()
            assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "mine", tmp_path / "msbench-file", folder, used])
        assert not folder.exists()
    finally:
        for one in held:
            one.kill()
            one.communicate()


@pytest.mark.parametrize("where", ["fcntl.flock", "shutil.rmtree"])
def test_an_interruption_while_it_is_made_or_removed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    module, name = where.split(".")
    happens = getattr(getattr(scratching, module), name)
    interrupted = iter([True])

    def interrupt_once(*arguments: object, **named: object) -> object:
        if next(interrupted, False):
            raise KeyboardInterrupt
        return happens(*arguments, **named)

    monkeypatch.setattr(getattr(scratching, module), name, interrupt_once)
    with pytest.raises(KeyboardInterrupt), scratch(tmp_path) as folder:
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_many_at_once_do_not_sweep_each_other(tmp_path: Path) -> None:
    def use(_: int) -> bool:
        with scratch(tmp_path) as folder:
            (folder / "file").write_text("mine")
            return (folder / "file").read_text() == "mine"

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))
    assert not list(tmp_path.iterdir())


def folder_of(path: Path, text: str) -> Path:
    (path / "below").mkdir(parents=True)
    for name in ("a", "below/b"):
        (path / name).write_text(text)
    return path


def texts(path: Path) -> set[str]:
    return {p.read_text() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "by two renamings"])
def test_a_folder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool) -> None:
    if not exchange:
        monkeypatch.setattr(scratching, "_exchange", lambda one, other: False)
    target = tmp_path / "site"
    for text in ("first", "second"):
        replace_folder(folder_of(tmp_path / text / "fresh", text), target)
        assert texts(target) == {text}


def test_a_folder_is_whole_at_any_instant(tmp_path: Path) -> None:
    target = folder_of(tmp_path / "site", "0")
    if not scratching._exchange(folder_of(tmp_path / "probe", "0"), target):
        pytest.skip("this file system can't exchange two names")
    seen: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append("there" if (target / "below" / "b").exists() else "missing")

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(200):
        replace_folder(folder_of(tmp_path / str(number), str(number)), target)
    over.set()
    watcher.join()
    assert set(seen) == {"there"}


def test_a_folder_that_cant_be_replaced_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = folder_of(tmp_path / "site", "old")
    fresh = folder_of(tmp_path / "fresh", "new")
    monkeypatch.setattr(scratching, "_exchange", lambda one, other: False)
    rename = Path.rename

    def fails(self: Path, to: Path) -> Path:
        if self == fresh and not target.exists():
            raise OSError(5, "Input/output error")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fails)
    with pytest.raises(OSError, match="Input/output"):
        replace_folder(fresh, target)
    assert texts(target) == {"old"}
