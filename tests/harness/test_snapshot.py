"""What a call leaves changed in its process is noticed."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from msbench.harness import snapshot

LIBC = ctypes.CDLL(None)
TOWARD_ZERO = 0xC00  # FE_TOWARDZERO on x86-64


def rounding() -> Callable[[], object]:
    before = LIBC.fegetround()
    LIBC.fesetround(TOWARD_ZERO if before == 0 else 0)
    return lambda: LIBC.fesetround(before)


def environment() -> Callable[[], object]:
    LIBC.setenv(b"MSBENCH_SNAPSHOT", b"1", 1)
    return lambda: LIBC.unsetenv(b"MSBENCH_SNAPSHOT")


def folder() -> Callable[[], object]:
    before = Path.cwd()
    os.chdir(tempfile.gettempdir() if str(before) != tempfile.gettempdir() else "/")
    return lambda: os.chdir(before)


def files() -> Callable[[], object]:
    file = tempfile.TemporaryFile()  # noqa: SIM115
    return file.close


def child() -> Callable[[], object]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def end() -> None:
        process.kill()
        process.wait()

    return end


def handler() -> Callable[[], object]:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    return lambda: signal.signal(signal.SIGUSR2, before)


def limits() -> Callable[[], object]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def timer() -> Callable[[], object]:
    signal.setitimer(signal.ITIMER_VIRTUAL, 1000, 1000)
    return lambda: signal.setitimer(signal.ITIMER_VIRTUAL, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (rounding, "the floating-point environment"),
        (environment, "the environment"),
        (folder, "the current folder"),
        (files, "open files"),
        (child, "child processes"),
        (handler, "the signal handlers"),
        (limits, "the limits"),
        (timer, "the timers"),
    ],
)
def test_a_change_is_named(change: Callable[[], Callable[[], object]], says: str) -> None:
    before = snapshot.take()
    undo = change()
    try:
        found = snapshot.changed(before, snapshot.take())
    finally:
        undo()
    assert found == f"the launcher left {says} changed"
    assert snapshot.changed(before, snapshot.take()) is None
