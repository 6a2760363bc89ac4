"""The referee's side of ``confine.py``: receives and describes the system call at which a worker was stopped."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase

from msbench.harness.sandbox import confine

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND, linux/seccomp.h
_NOTIFICATION = struct.Struct("=QII iIQ6Q")  # struct seccomp_notif with its struct seccomp_data
_RESPONSE = struct.Struct("=QqiI")  # struct seccomp_notif_resp
_CONTINUE = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE
_AT_FDCWD = -100
_PATH_BYTES = 4096

# Which argument is the folder's descriptor (None: the working directory) and which one the path, or the file itself.
_PATHS: dict[str, tuple[int | None, int]] = {
    **dict.fromkeys(("open", "creat", "truncate", "unlink", "rmdir", "mkdir", "mknod", "chmod", "chown"), (None, 0)),
    **dict.fromkeys(("openat", "unlinkat", "mkdirat", "mknodat", "fchmodat", "fchownat", "utimensat"), (0, 1)),
}
_FILES = ("fchmod", "fchown")


@dataclass
class Guard:
    """A worker's listener, its process id, and the patterns of files that it may write (None: any)."""

    fd: int
    pid: int
    writable: Sequence[str] | None

    def violation(self) -> str | None:
        """What the worker was stopped at, as in ``"tried to run another program (execve)"``.

        None if it may go on: it wrote one of its own files, or is gone. Call this when ``fd`` can be read. A worker that
        is not let go on stays where it is until it is killed.
        """
        raw = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.fd, _RECEIVE, raw)
        except OSError:  # it was killed meanwhile
            return None
        number, thread, _, call, architecture, _, *arguments = _NOTIFICATION.unpack(raw)
        name, what = confine.system_call(call, architecture)
        path = _path(thread, name, arguments)
        if path and self.writable is not None and _is_own(path, self.pid, self.writable):
            with suppress(OSError):
                fcntl.ioctl(self.fd, _SEND, _RESPONSE.pack(number, 0, 0, _CONTINUE))
            return None
        return f"tried to {what} ({name}{' ' + path if path else ''})"


def _is_own(path: str, pid: int, writable: Sequence[str]) -> bool:
    """Only for what is said: what a path names may change after this look at it, but not what Landlock lets through."""
    return any(fnmatchcase(path.replace(f"/proc/{pid}/", "/proc/self/", 1), pattern) for pattern in writable)


def _path(pid: int, name: str, arguments: Sequence[int]) -> str:
    """The path that a stopped system call names; "" where it names none, or can't be read."""
    with suppress(OSError, ValueError):
        if name in _FILES:
            return os.readlink(f"/proc/{pid}/fd/{arguments[0]}")  # noqa: PTH115
        if name in _PATHS:
            folder, argument = _PATHS[name]
            path = _text(pid, arguments[argument])
            beside = _AT_FDCWD if folder is None else ctypes.c_int32(arguments[folder]).value
            start = f"/proc/{pid}/cwd" if beside == _AT_FDCWD else f"/proc/{pid}/fd/{beside}"
            return os.path.normpath(os.path.join(os.readlink(start), path))  # noqa: PTH115, PTH118
    return ""


def _text(pid: int, address: int) -> str:
    """A C string in another process's memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        memory.seek(address)
        try:
            raw = memory.read(_PATH_BYTES)
        except OSError:  # it ends before a page that is not there
            memory.seek(address)
            raw = memory.read(_PATH_BYTES - address % _PATH_BYTES)
    return raw.partition(b"\0")[0].decode(errors="replace")
