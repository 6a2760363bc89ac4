"""Compilers and profilers that end with msbench: no kill, not even SIGKILL, leaves one of them running, or its files for good."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msbench.scratch import scratch

_SCRATCH = "msbench-tool-"
_NO_SPACE = os.strerror(errno.ENOSPC)
_ROOM = 2**26  # with so many bytes free the disk is not full, whatever a kernel's #error says

_running: set[int] = set()
_lock = threading.Lock()

# The guard reads from a pipe of which only msbench has the other end: when that is closed, by whatever end msbench takes,
# it kills its process group, compilers of compilers included. (Linux's parent-death signal reaches children only, and
# fires when the *thread* that started them ends.)
_SHELL = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 & exec 3<&-; {limits}exec "$@"'


@contextmanager
def guarded(argv: Sequence[str], *, limits: str = "", **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, killed with all that it started at the end of the block, or with this process.

    Args:
        argv: what is run, with an empty standard input.
        limits: commands for the shell before it, such as ``"ulimit -c 0; "``.
        options: of ``subprocess.Popen``: ``cwd``, ``env``, ``stdout``, ``stderr``.

    Raises:
        OSError: it can't be started.
    """
    if shutil.which(argv[0]) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    reader, writer = os.pipe()
    try:
        shell = ["/bin/sh", "-c", _SHELL.replace("{limits}", limits), "sh", *argv]
        process = subprocess.Popen(shell, stdin=reader, start_new_session=True, **options)
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
    with _lock:
        _running.add(process.pid)
    try:
        yield process
    finally:
        with _lock:
            _running.discard(process.pid)
        _kill(process.pid)
        os.close(writer)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def captured(argv: Sequence[str], limit_s: float, env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run a tool that leaves files in TMPDIR where it is killed; its exit code, output and errors.

    Its TMPDIR is a folder that is removed when it ends. If this process is killed, the next call removes it.

    Args:
        env: its environment (None: this process's).

    Raises:
        OSError: it can't be started, or there is no place for its files.
        subprocess.TimeoutExpired: it did not finish within ``limit_s`` seconds, and was killed.
    """
    with (
        scratch(Path(tempfile.gettempdir()), _SCRATCH) as folder,
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        environment = {**(os.environ if env is None else env), "TMPDIR": str(folder)}
        with guarded(argv, env=environment, stdout=out, stderr=err) as process:
            code = process.wait(limit_s)
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def disk_was_full(log: str, folder: Path) -> bool:
    """Whether a compiler failed because ``folder``'s disk is full, which is no fault of what it compiled.

    ``log``: what it said, if it still could.
    """
    return (_NO_SPACE in log or not log.strip()) and shutil.disk_usage(folder).free < _ROOM


def end_all() -> None:
    """Kill every process that is still guarded, so that threads that wait for one need not."""
    with _lock:
        for pid in _running:
            _kill(pid)


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
