"""What a call leaves changed in its process is noticed."""

from __future__ import annotations

import ctypes
import os
import platform
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
CXX = ctypes.CDLL("libstdc++.so.6")
TOWARD_ZERO = 0xC00  # FE_TOWARDZERO on x86-64
INEXACT = 0x20
X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 only")


def rounding() -> Callable[[], object]:
    before = LIBC.fegetround()
    LIBC.fesetround(TOWARD_ZERO if before == 0 else 0)
    return lambda: LIBC.fesetround(before)


def environment() -> Callable[[], object]:
    LIBC.setenv(b"MSBENCH_SNAPSHOT", b"1", 1)
    return lambda: LIBC.unsetenv(b"MSBENCH_SNAPSHOT")


def exception() -> Callable[[], object]:
    get_globals = CXX["__cxa_get_globals"]
    get_globals.restype = ctypes.c_void_p
    caught = ctypes.c_void_p.from_address(get_globals())
    before, caught.value = caught.value, 8
    return lambda: setattr(caught, "value", before)


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


def segment_base() -> Callable[[], object]:
    arch_prctl, set_gs = 158, 0x1001
    LIBC.syscall(ctypes.c_long(arch_prctl), ctypes.c_long(set_gs), ctypes.c_ulong(1))
    return lambda: LIBC.syscall(ctypes.c_long(arch_prctl), ctypes.c_long(set_gs), ctypes.c_ulong(0))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(segment_base, "the thread's segment base", marks=X86_64),
        (rounding, "the floating-point environment"),
        (environment, "the environment"),
        (folder, "the current folder"),
        (files, "open files"),
        (child, "child processes"),
        (handler, "the signal handlers"),
        (limits, "the limits"),
        (timer, "the timers"),
        (exception, "the thread's exceptions"),
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


@X86_64
def test_exceptions_that_have_occurred_are_forgotten() -> None:
    """They would be bits that a call leaves for the next one; any arithmetic may set them."""
    LIBC.feraiseexcept(INEXACT)
    before = snapshot.take()
    assert LIBC.fetestexcept(INEXACT) == 0
    LIBC.feraiseexcept(INEXACT)
    assert snapshot.changed(before, snapshot.take()) is None
