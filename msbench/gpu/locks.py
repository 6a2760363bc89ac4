"""One process at a time on a GPU: a lock file for each GPU, shared by all users and processes of the machine."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msbench.errors import DeviceError

LOCK_DIR = Path("/tmp")  # the same for all users, whatever TMPDIR says

_POLL_S = 0.2
_held: dict[Path, tuple[int, int]] = {}  # this process's locks: file descriptor, and how many hold it


@contextmanager
def gpu_lock(
    uuid: str,
    *,
    waiting: Callable[[str], None] = lambda text: None,
    limit_s: float | None = None,
    folder: Path = LOCK_DIR,
) -> Iterator[None]:
    """Hold the GPU; the lock is released however its process ends. This process may hold it more than once.

    Args:
        uuid: the GPU's own name, such as ``"GPU-1b2c…"``.
        waiting: called once with the holder if this has to wait.
        limit_s: how long to wait; None for ever.

    Raises:
        DeviceError: ``limit_s`` has passed, or the lock file can't be opened.
    """
    path = folder / f"msbench-{uuid}.lock"
    if path in _held:
        fd, users = _held[path]
    else:
        fd, users = _open(path), 0
        try:
            _acquire(fd, uuid, waiting, limit_s)
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    _held[path] = fd, users + 1
    try:
        yield
    finally:
        fd, users = _held.pop(path)
        if users > 1:
            _held[path] = fd, users - 1
        else:
            os.close(fd)


def _open(path: Path) -> int:
    # No O_CREAT on a file that is there: in a sticky folder Linux may refuse that to others (fs.protected_regular).
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            fd = os.open(path, flags | os.O_CREAT, 0o666)
            with suppress(PermissionError):
                os.fchmod(fd, 0o666)  # whatever the umask: other users wait for the same GPU
    except OSError as error:
        raise DeviceError(f"The GPU's lock file {path} can't be opened: {error.strerror}. Remove it.") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DeviceError(f"The GPU's lock file {path} is no ordinary file. Remove it.")
    return fd


def _acquire(fd: int, uuid: str, waiting: Callable[[str], None], limit_s: float | None) -> None:
    deadline = None if limit_s is None else time.monotonic() + limit_s
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        if not told:
            waiting(f"Waiting for {uuid}: process {holder} is using it.")
            told = True
        if deadline is not None and time.monotonic() > deadline:
            raise DeviceError(f"{uuid} is still in use by process {holder} after {limit_s:g} s.")
        time.sleep(_POLL_S)
