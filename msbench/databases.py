"""Which databases a command reads and writes.

Without ``--db``: reads the published database that msbench ships and every ``db/*.sqlite`` of the current folder,
writes ``db/local.sqlite``. With ``--db``: reads and writes that one alone.
"""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msbench import resources
from msbench.errors import IntegrityError, StoreError

if TYPE_CHECKING:
    from msbench.store.store import Store

FOLDER = Path("db")
LOCAL = FOLDER / "local.sqlite"
PUBLISHED = FOLDER / "published.sqlite"


def paths(db: str | None) -> list[str]:
    """The databases that are read, the shipped one first; with ``--db`` that one, whether it is there or not."""
    if db is not None:
        return [db]
    published = resources.published_db()
    found = {p.resolve() for p in FOLDER.glob("*.sqlite")} | ({published.resolve()} if published else set())
    return [str(p) for p in sorted(found, key=lambda p: (p != published, str(p)))]


def reader(db: str | None) -> Store:
    """All that is known, merged into memory.

    Raises:
        StoreError: the database that ``db`` names is not there, or one can't be read.
    """
    from msbench.archive.union import union

    return union(paths(db))


def seconds(db: str | None, device_kind: str) -> dict[str, float]:
    """How long versions' newest evaluations took, by their ids: ``Store.seconds`` of each database that is read."""
    from msbench.store.store import Store

    known: dict[str, float] = {}
    for path in filter(os.path.exists, paths(db)):
        with closing(Store.snapshot(path)) as store:
            known |= store.seconds(device_kind)
    return known


def sound(db: str | None, refusal: str) -> Store:
    """``reader`` for what shows figures: a changed record must not become one.

    Args:
        refusal: how the error begins; the databases' names follow.

    Raises:
        StoreError: as ``reader``.
        IntegrityError: a database contradicts itself.
    """
    from msbench.archive import integrity

    store = reader(db)
    problems = integrity.check(store, alone=True)
    if problems:
        store.close()
        raise IntegrityError(
            f"{refusal} {store.where}, because of {len(problems)} problem(s); see `msbench db check`. "
            f"The first: {problems[0]}"
        )
    return store


def writer(db: str | None) -> Store:
    """The database that new results go to; it is made if it is not there.

    Raises:
        StoreError: it can't be made or written.
        IntegrityError: it contradicts itself: nothing is added to that.
    """
    from msbench.archive import integrity

    store = _opened(db)
    problems = integrity.check(store, alone=True)
    if problems:
        store.close()
        raise IntegrityError(
            f"Nothing is written into {store.where}, because of {len(problems)} problem(s); see `msbench db check`, and "
            f"`msbench db repair` to recover its good rows. The first: {problems[0]}"
        )
    return store


def _opened(db: str | None) -> Store:
    from msbench.store.store import Store

    if db is not None:
        return Store(db)
    try:
        FOLDER.mkdir(exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The folder {FOLDER.absolute()} can't be made ({(error.strerror or str(error)).lower()}); results go there: "
            "change to a folder that you may write to, or name another database with --db."
        ) from error
    return Store(LOCAL)
