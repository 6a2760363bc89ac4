"""Folders that appear all at once or not at all, whenever the process that makes them is killed.

What is made is made in a scratch folder, which is locked for as long as its process lives. What a killed process left is
not locked any more, and the next one that needs such a folder removes it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch(parent: Path, prefix: str = "msbench-") -> Iterator[Path]:
    """A fresh folder in ``parent``, removed at the end of the block; what killed processes left there is removed first.

    Args:
        parent: made if it is not there.
        prefix: how the folder's name begins; nothing else may have names that begin so.

    Raises:
        OSError: it can't be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent, prefix)
    folder, lock = _unused(parent, prefix), None
    try:  # from before it is made on, so that it is removed whenever Ctrl-C comes
        while (lock := _made(folder)) is None:
            folder = _unused(parent, prefix)
        yield folder
    finally:
        _remove(folder)
        if lock is not None:
            os.close(lock)


def _unused(parent: Path, prefix: str) -> Path:
    return parent / f"{prefix}{secrets.token_hex(8)}"


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except BaseException:  # Ctrl-C, which rmtree may turn into an OSError
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _made(folder: Path) -> int | None:
    """The descriptor of its lock; None if another process or thread swept it away before it was locked."""
    folder.mkdir(mode=0o700)
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks: then nobody's sweep gets one either
        fcntl.flock(lock, fcntl.LOCK_EX)
    if folder.exists():
        return lock
    os.close(lock)
    return None


def _sweep(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # in use, gone by now, or somebody else's
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)


def replace_folder(fresh: Path, target: Path) -> None:
    """Give ``fresh`` the name ``target``; whatever had that name before has ``fresh``'s afterwards, or is gone.

    In one step where Linux and the file system can, so that there is a whole ``target`` at any instant; elsewhere there is
    none for the time between two renamings.

    Raises:
        OSError: it can't be done; then ``target`` is what it was.
    """
    try:
        fresh.rename(target)  # also over an empty folder
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    if _exchange(fresh, target):
        return
    old = fresh.with_name(f"{fresh.name}.old")
    target.rename(old)
    try:
        fresh.rename(target)
    except OSError:
        old.rename(target)
        raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names by renameat2(2); False where the system or the file system has no such thing."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(current_folder, os.fsencode(one), current_folder, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))
