"""Publishing: one small file with everything that figures depend on, written atomically."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.archive.superseded import drop_superseded, lacking
from msbench.errors import IntegrityError, StoreError
from msbench.figures.proven import unproven
from msbench.scratch import scratch
from msbench.store import packed, samples
from msbench.store.engine import explained, shown
from msbench.store.identity import table_of
from msbench.store.store import Store
from msbench.store.tables import TABLES


@dataclass(frozen=True)
class Published:
    """The result of publishing: how many rows were added and dropped, by table, and its sizes in bytes.

    ``before`` is 0 if there was none. ``lost``: see ``superseded.lacking``.
    """

    added: dict[str, int]
    dropped: dict[str, int]
    before: int
    after: int
    lost: tuple[str, ...] = ()


def publish(target: Path, others: Sequence[str | Path] = (), *, proved: bool = False) -> Published:
    """Merge databases into a published one, drop what is superseded, and write it anew (``store.packed``).

    Readers find the old file or the new one. Publishing the same again gives the same bytes.

    Args:
        target: the published database; it may not be there yet, or be an ordinary one.
        others: ordinary or published databases, files or URLs; they are only read.
        proved: refuse a run that is not published yet, and whose best version was never checked on hidden cases of a
            seed that the run did not use.

    Raises:
        IntegrityError: one of them contradicts itself, or all of them together name what is in none, or
            a run is refused (``proved``).
        StoreError: one of them can't be read, or ``target`` can't be written; it is what it was then.
    """
    keys: packed.Keys = {}
    before = target.stat().st_size if target.is_file() else 0
    with Store.snapshot(target) if before else Store(":memory:") as merged:
        if before:
            keys = _keys(target)
        published = {run.id for run in merged.runs()}
        added: dict[str, int] = {}
        for other in others:
            for table, count in merge(merged, other).items():
                added[table] = added.get(table, 0) + count
        problems = integrity.check(merged)
        if problems:
            raise IntegrityError(
                f"{target} is not published, because of {len(problems)} problem(s). The first: {problems[0]}"
            )
        unchecked = unproven(merged, [run.id for run in merged.runs() if run.id not in published]) if proved else []
        if unchecked:
            raise IntegrityError(
                f"{target} is not published: a run's best version must pass hidden cases that the run never used, and these "
                f"have not: {'; '.join(unchecked)}. Check them with another --seed (`msbench eval`), then publish."
            )
        lost = tuple(lacking(merged))
        dropped = drop_superseded(merged)
        try:
            with scratch(target.absolute().parent, f".{target.name}.msbench-") as work:
                fresh = work / target.name
                _write(merged, fresh, keys)
                _replace(fresh, target)
        except OSError as error:
            raise StoreError(
                f"{target} can't be written ({error.strerror}): free some space, or choose another file with --db."
            ) from error
    return Published(added, dropped, before, target.stat().st_size, lost)


def _keys(target: Path) -> packed.Keys:
    with explained(shown(target)), closing(sqlite3.connect(f"{target.resolve().as_uri()}?mode=ro", uri=True)) as file:
        return packed.keys(file) if packed.is_packed(file) else {}


def _write(merged: Store, fresh: Path, keys: packed.Keys) -> None:
    opened = sqlite3.connect(fresh, isolation_level=None)
    with explained(shown(fresh)), closing(opened) as file, merged.raw() as source:
        packed.pack(source, file, keys)
    with Store.snapshot(fresh) as again, again.raw() as read, merged.raw() as meant:
        for table in map(table_of, TABLES):
            query = f'SELECT * FROM "{table.name}" ORDER BY ' + ", ".join(key.name for key in table.primary_key)
            if [*map(_plain, read.execute(query))] != [*map(_plain, meant.execute(query))]:
                raise StoreError(f"Table {table.name} changes when packed: nothing was published.")


def _replace(fresh: Path, target: Path) -> None:
    if target.with_name(f"{target.name}-wal").exists():
        raise StoreError(f"Database {target} is open in another process: wait for it to finish, then try again.")
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.chmod(0o644)
    fresh.replace(target)


def _plain(row: Sequence[Any]) -> list[Any]:
    """A row with its samples as they are, whatever compressed them."""
    return [samples.plain(value) if isinstance(value, bytes) else value for value in row]
