"""The database that ships with msbench, unpacked once: a command that reads it takes seconds for that, and some fifty tests run some.

What they read instead is an ordinary database with the same rows, in a file that the first who needs it makes. The shipped file
itself is read by those commands that start as a user's do (``tests.faults.test_ending``, ``tests.test_packaging``).
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msbench.resources import published_db
from msbench.store.database import Database

_read_to_memory = Database.read_to_memory.__func__  # type: ignore[attr-defined]


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="msbench-shipped-")


def unpacked() -> Path:
    """Where it is, as soon as somebody has read it; it goes with this process."""
    return Path(_folder().name, "unpacked.sqlite")


def reading(there: Path) -> Any:
    """``Database.read_to_memory`` with ``there`` in the shipped database's place."""
    packed = published_db()

    def read_to_memory(cls: type[Database], path: str | Path, *, timeout_s: float = 30.0) -> Database:
        if packed is None or Path(path).resolve() != packed.resolve():
            return _read_to_memory(cls, path, timeout_s=timeout_s)  # type: ignore[no-any-return]
        if not there.exists():
            _unpack(packed, there)
        copy = _read_to_memory(cls, there, timeout_s=timeout_s)
        copy.where = str(path)
        return copy  # type: ignore[no-any-return]

    return classmethod(read_to_memory)


def _unpack(packed: Path, there: Path) -> None:
    whole = there.with_suffix(".part")
    target = sqlite3.connect(whole)
    with _read_to_memory(Database, packed) as store, store.raw() as source:
        source.backup(target)
    target.close()
    whole.replace(there)
