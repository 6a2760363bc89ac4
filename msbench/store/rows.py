"""Inserts new rows into tables; where two databases disagree, merging either way gives the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, tuple_, update
from sqlmodel import SQLModel

from msbench.errors import IntegrityError
from msbench.model import Origin
from msbench.store.identity import Values, content, table_of
from msbench.store.tables import TABLES, BuildRow, DeviceRow, TaskRow, VersionRow

_CHUNK = 400

_CLAIM = (Origin.NAIVE, Origin.LIBRARY, Origin.AGENT, Origin.EXPERT, Origin.EXTERNAL)
"""Whose word counts about one source text: evaluating a copy of naive.cu by hand doesn't make it external."""


def _newer_text(new: Values, old: Values) -> bool:
    return _since(TaskRow, new, "described_at") > _since(TaskRow, old, "described_at")


def _stronger_claim(new: Values, old: Values) -> bool:
    def rank(values: Values) -> tuple[int, str, str]:
        if values["origin"] not in _CLAIM:
            raise IntegrityError(
                f"Version {values['id']} has the unknown origin {values['origin']!r}: see `msbench db check`."
            )
        return _CLAIM.index(values["origin"]), *_since(VersionRow, values, "created_at")

    return rank(new) < rank(old)


def _better_build(new: Values, old: Values) -> bool:
    def rank(values: Values) -> tuple[bool, str]:
        return values["fault"] is not None, content(BuildRow, values)

    return rank(new) < rank(old)


def _either_device(new: Values, old: Values) -> bool:
    return content(DeviceRow, new) < content(DeviceRow, old)


def _since(model: type[SQLModel], values: Values, instant: str) -> tuple[str, str]:
    return str(values[instant]), content(model, values)


_SUPERSEDES: dict[type[SQLModel], Callable[[Values, Values], bool]] = {
    TaskRow: _newer_text,
    VersionRow: _stronger_claim,
    BuildRow: _better_build,
    DeviceRow: _either_device,
}
"""Tables in which two rows of one id may differ, and when the new one replaces the old. Each is a total order, down to
the content, so it doesn't matter which database is merged into which. Elsewhere one id means one content."""


def put(connection: Connection, model: type[SQLModel], rows: Sequence[Values]) -> int:
    """Insert the rows that aren't there yet, replace those that these supersede; return how many were stored."""
    table = table_of(model)
    keys = [column.name for column in table.primary_key.columns]
    supersedes = _SUPERSEDES.get(model)
    stored = 0
    for start in range(0, len(rows), _CHUNK):
        chunk = {tuple(row[key] for key in keys): row for row in rows[start : start + _CHUNK]}
        there = _existing(connection, table, keys, list(chunk), whole=supersedes is not None)
        new = [dict(row) for key, row in chunk.items() if key not in there]
        if new:
            connection.execute(insert(table), new)
        better = (
            [] if supersedes is None else [k for k, row in chunk.items() if k in there and supersedes(row, there[k])]
        )
        for key in better:
            same = and_(*(table.c[name] == value for name, value in zip(keys, key, strict=True)))
            connection.execute(update(table).where(same).values(**chunk[key]))
        stored += len(new) + len(better)
    return stored


def _existing(
    connection: Connection, table: Table, keys: list[str], wanted: list[tuple[Any, ...]], *, whole: bool
) -> dict[tuple[Any, ...], Values]:
    columns = list(table.columns) if whole else [table.c[key] for key in keys]
    if len(keys) == 1:
        condition = table.c[keys[0]].in_([key[0] for key in wanted])
    else:
        condition = tuple_(*(table.c[key] for key in keys)).in_(wanted)
    found = connection.execute(select(*columns).where(condition)).mappings()
    return {tuple(row[key] for key in keys): dict(row) for row in found}


def put_all(connection: Connection, rows: Iterable[SQLModel]) -> dict[str, int]:
    """``put`` for rows of any tables, in an order that satisfies foreign keys; returns the counts by table."""
    by_model: dict[type[SQLModel], list[Values]] = {}
    for row in rows:
        by_model.setdefault(type(row), []).append(row.model_dump())
    return {table_of(model).name: put(connection, model, by_model[model]) for model in TABLES if model in by_model}
