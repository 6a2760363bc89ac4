"""What msbench starts ends with it, however msbench ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msbench import guarded as guarding
from msbench.guarded import disk_was_full, end_all, guarded

# A compiler that has started another, and neither ends by itself. It says who both are.
NEVER = "sleep 1000 & echo $! $$ >pids; wait"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pids(folder: Path) -> list[int]:
    deadline = time.monotonic() + 20
    while len(found := (folder / "pids").read_text().split() if (folder / "pids").exists() else []) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [int(pid) for pid in found]


def all_gone(found: list[int]) -> bool:
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(alive(pid) for pid in found)


def test_exit_code_and_output_are_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "with spaces").mkdir()
    argv = [sys.executable, "-c", "import sys; print(sys.argv[1], repr(sys.stdin.read())); sys.exit(7)", "a b'$c"]
    with guarded(argv, cwd=tmp_path / "with spaces", stdout=subprocess.PIPE) as process:
        said, _ = process.communicate(timeout=30)
    assert (process.returncode, said) == (7, b"a b'$c ''\n")
    with guarded([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) as process:
        assert process.wait(30) == -signal.SIGKILL
    with pytest.raises(FileNotFoundError), guarded(["/does/not/exist"]):
        pass


def test_limits_are_set_before_it(tmp_path: Path) -> None:
    with guarded(["/bin/sh", "-c", "ulimit -c"], limits="ulimit -c 0; ", stdout=subprocess.PIPE) as process:
        assert process.communicate(timeout=30)[0] == b"0\n"


def test_the_end_of_the_block_ends_all(tmp_path: Path) -> None:
    with guarded(["/bin/sh", "-c", NEVER], cwd=tmp_path):
        started = pids(tmp_path)
        assert all(map(alive, started))
    assert all_gone(started)


def test_ending_all_lets_threads_go_on(tmp_path: Path) -> None:
    with guarded(["/bin/sh", "-c", NEVER], cwd=tmp_path) as process:
        started = pids(tmp_path)
        end_all()
        assert process.wait(30) == -signal.SIGKILL
    assert all_gone(started)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_takes_its_compilers_with_it(tmp_path: Path, how: signal.Signals) -> None:
    code = f"""
from msbench.guarded import guarded
with guarded(["/bin/sh", "-c", {NEVER!r}], cwd={str(tmp_path)!r}) as process:
    process.wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    started = pids(tmp_path)
    os.kill(parent.pid, how)
    parent.wait()
    assert all_gone(started)


def test_a_full_disk_is_told_from_a_kernels_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = "kernel.cu:3:2: error: #error No space left on device"
    assert not disk_was_full(log, tmp_path)
    monkeypatch.setattr(guarding.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    assert disk_was_full(log, tmp_path)
    assert not disk_was_full("error: expected ';'", tmp_path)
