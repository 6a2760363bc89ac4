"""Runs the ``msbench`` command and kills it with SIGKILL just before its n-th operation: ``python -m tests.faults.killer FILE N …``.

Operations are what leaves traces: files opened for writing, renamed, made and removed, processes started, and every
statement that changes a database file. FILE gets the last operation's number and name; with N = 0 none is the end, so it counts them.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

_CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "subprocess.Popen", "ctypes.dlsym")
_connect = sqlite3.connect
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killer:
    """Counts operations, and ends this process at the one that it is told."""

    def __init__(self, file: Path, at: int) -> None:
        self._file = file
        self._at = at
        self._count = 0
        self._lock = threading.RLock()

    def operation(self, name: str) -> None:
        """One operation is about to happen."""
        with self._lock:
            self._count += 1
            if self._count == self._at:
                self.tell(name)
                os.kill(os.getpid(), signal.SIGKILL)

    def tell(self, name: str) -> None:
        """Write down how far it came."""
        fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, f"{self._count} {name}".encode())
        os.close(fd)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The interpreter's hook (PEP 578)."""
        if self._count == self._at and self._at:
            return  # the file above
        if event in _CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING):
            self.operation(event)

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Stands in for ``sqlite3.connect``."""
        connection: sqlite3.Connection = _connect(*arguments, **options)
        if ":memory:" not in str(arguments[0]):
            connection.set_trace_callback(self._statement)
        return connection

    def _statement(self, text: str) -> None:
        if not text.startswith(("SELECT", "PRAGMA")) or "journal_mode" in text:
            self.operation(" ".join(text.split()[:3]))


def main() -> None:
    """See the module's docstring."""
    file, at, *arguments = sys.argv[1:]
    killer = Killer(Path(file), int(at))
    from msbench.cli import main as command

    sys.addaudithook(killer.audit)
    sqlite3.connect = killer.connect
    sys.argv = ["msbench", *arguments]
    try:
        command()
    finally:
        killer.tell("the end")


if __name__ == "__main__":
    main()
