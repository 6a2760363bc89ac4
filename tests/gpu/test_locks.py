"""One process at a time on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from msbench.errors import DeviceError
from msbench.gpu.locks import gpu_lock

HOLD = """
import sys, time
from pathlib import Path
from msbench.gpu.locks import gpu_lock
with gpu_lock("GPU-1", folder=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(folder: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_waits_and_is_told_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with holder(tmp_path, 0.7) as process:
        start = time.monotonic()
        with gpu_lock("GPU-1", waiting=said.append, folder=tmp_path):
            assert time.monotonic() - start > 0.3
    assert said == [f"Waiting for GPU-1: process {process.pid} is using it."]


def test_waiting_has_a_limit_and_another_gpu_is_free(tmp_path: Path) -> None:
    with holder(tmp_path, 30) as process:
        with (
            pytest.raises(DeviceError, match=f"in use by process {process.pid}"),
            gpu_lock("GPU-1", limit_s=0.3, folder=tmp_path),
        ):
            pass
        with gpu_lock("GPU-2", limit_s=0.3, folder=tmp_path):
            pass
        process.kill()


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    with holder(tmp_path, 30) as process:
        process.kill()
        with gpu_lock("GPU-1", limit_s=5, folder=tmp_path):
            pass


def test_the_file_is_for_all_users(tmp_path: Path) -> None:
    mask = os.umask(0o077)
    try:
        with gpu_lock("GPU-1", folder=tmp_path):
            pass
    finally:
        os.umask(mask)
    assert (tmp_path / "msbench-GPU-1.lock").stat().st_mode & 0o777 == 0o666


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "msbench-GPU-1.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(DeviceError, match="Remove it"), gpu_lock("GPU-1", folder=tmp_path):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


def test_one_process_may_hold_it_twice_and_keeps_it_until_the_last(tmp_path: Path) -> None:
    first, second = gpu_lock("GPU-1", folder=tmp_path), gpu_lock("GPU-1", folder=tmp_path)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path), "0"],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with other:
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.6)
        second.__exit__(None, None, None)
        assert other.wait(10) == 0
