"""Several databases read as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msbench.archive.integrity import check, damage
from msbench.archive.merge import merge
from msbench.errors import StoreError
from msbench.store.engine import MEMORY, shown, sqlite_path
from msbench.store.store import Store


def union(paths: Sequence[str | Path]) -> Store:
    """All of several databases, merged in memory: what readers use. The files are only read; none may be missing.

    Raises:
        StoreError: one of them can't be read.
    """
    merged: Store | None = None
    for where in paths:
        part = Store.snapshot(where)
        if merged is None and sqlite_path(where) is None:
            merged = Store(MEMORY)
        if merged is None:
            merged = part
        else:
            merge(merged, part, verify=False)
            part.close()
    merged = merged or Store(MEMORY)
    merged.where = " + ".join(map(shown, paths)) or MEMORY
    return merged


class Unopened(str):
    """A problem that is no damage, or says itself what to do about it: why a database could not be opened at all."""


def check_files(paths: Sequence[str | Path]) -> list[str]:
    """``integrity.check`` for databases that are read together: one may refer to another. A problem begins with its file.

    One that can't be opened is an ``Unopened``.
    """
    problems: list[str] = []
    with ExitStack() as opened:
        stores: list[Store] = []  # each is read once: that takes longer than most of what is asked of it
        for path in paths:
            try:
                stores.append(opened.enter_context(Store.snapshot(path)))
                problems += (f"{stores[-1].where}: {problem}" for problem in damage(stores[-1]))
            except StoreError as error:
                problems.append(Unopened(error))
        if problems:
            return problems
        known = stores[0] if len(stores) == 1 else opened.enter_context(union(paths))
        for store in stores:
            problems += (f"{store.where}: {problem}" for problem in check(store, known))
    return problems
