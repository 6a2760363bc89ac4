"""A published database: the same rows as in an ordinary one, in a file that is small and that git stores well.

It is an SQLite file too, with the same tables and column names, and differs in this:

- each row has an integer ``key``, and rows name each other by it; a row keeps its key from one publication to the next,
- 32 hexadecimal digits are 16 bytes, and long texts are the letter ``z`` and a zlib stream,
- a long value that an earlier row has in the same column is ``=`` and that row's key,
- the checks of an evaluation, and the trials of one recording, are one row of a table of its own (``check_packed``): the
  ``rows`` are a zlib stream of JSON, an object of lists, one a column,
- there are no indexes, and rows are in the order of their keys, so that what is new comes last.

``PRAGMA user_version`` tells it from an ordinary database. It is only read: into memory, where it is an ordinary one.
"""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import Column, LargeBinary, Table
from sqlmodel import SQLModel

from msbench.errors import IntegrityError
from msbench.store.identity import table_of
from msbench.store.tables import TABLES, CheckRow, LedgerRow, MigrationRow, NotesRow, RecordRow, StepRow, TrialRow
from msbench.store.views import VIEWS

FORMAT = 2
"""``PRAGMA user_version`` of a packed file; an ordinary one has 0, and in one with 1 no value refers to another row's."""

_LONG = 120
"""Characters from which a text is worth compressing."""
_REPEATED = 64
"""Bytes from which a value that an earlier row has is worth a reference."""
_PAGE = 8192
"""Bytes of a page: samples are some 800 bytes each, and in small pages much room stays empty behind them."""
_MOST = 1 << 28
"""Bytes of a row: a few can be made to unpack to any number."""
_HEX = re.compile("[0-9a-f]{32}")

_LATER_COLUMNS: Mapping[type[SQLModel], frozenset[str]] = {StepRow: frozenset({"predicted_cases"})}
"""Columns that a later migration brought: files of before lack them."""

_FOLDED: dict[type[SQLModel], tuple[str, ...]] = {
    CheckRow: ("evaluation_id",),
    TrialRow: ("study", "device_id", "harness", "command", "created_at"),
}
"""Tables that become one row for each set of rows that have these columns in common."""

_LATER: dict[type[SQLModel], int] = {RecordRow: 4, LedgerRow: 5, NotesRow: 7}
"""The tables that came later, and by which migration: publications of before lack them."""

Keys = dict[str, dict[Any, int]]
"""The key of each row, by its table's name and its id."""


def is_packed(connection: sqlite3.Connection) -> bool:
    """Whether a file is a published database."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0])


def keys(connection: sqlite3.Connection) -> Keys:
    """The keys of a packed file's rows, to be kept by ``pack``."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {
        table.name: {_restored(id): key for key, id in connection.execute(f'SELECT "key", id FROM "{table.name}"')}
        for table in map(table_of, _keyed())
        if table.name in there
    }


def pack(source: sqlite3.Connection, target: sqlite3.Connection, known: Keys) -> None:
    """Write an ordinary database's rows into an empty file.

    Args:
        source: the ordinary database.
        target: an empty database; it is a packed one afterwards, committed and compact.
        known: the keys that rows already have.
    """
    target.execute(f"PRAGMA page_size={_PAGE}")
    target.execute("BEGIN")
    all_keys: Keys = {}
    for model in TABLES:
        table = table_of(model)
        target.execute(_definition(model))
        rows = _ordered(source, table)
        if model in _keyed():
            all_keys[table.name] = numbers = _numbered((row["id"] for row in rows), known.get(table.name, {}))
            rows.sort(key=lambda row: numbers[row["id"]])
        packed = _folds(model, rows, all_keys) if model in _FOLDED else _plain(model, rows, all_keys)
        names = ", ".join("?" for _ in _columns(model))
        target.executemany(f'INSERT INTO "{_name(model)}" VALUES ({names})', packed)
    for view in VIEWS:
        target.execute(_view(view))
    target.execute(f"PRAGMA user_version={FORMAT}")
    target.execute("COMMIT")
    target.execute("VACUUM")


def unpack(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Put a packed file's rows into an ordinary database that has its tables and no rows, within its transaction.

    Raises:
        IntegrityError: the file is damaged.
    """
    ids: dict[str, dict[int, Any]] = {table_of(model).name: {} for model in _keyed()}
    target.execute("PRAGMA defer_foreign_keys=ON")  # a message may come before the one that it follows
    try:
        for model in _there(source):
            table = table_of(model)
            rows = _unfolded(model, source, ids) if model in _FOLDED else _unpacked(model, source, ids)
            # The tables have the newest schema already; what a file says of its migrations replaces when they were done.
            replacing = "OR REPLACE " if model is MigrationRow else ""
            places = ", ".join("?" for _ in table.columns)
            target.executemany(f'INSERT {replacing}INTO "{table.name}" VALUES ({places})', rows)
    except (AttributeError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise IntegrityError(
            f"A row of table {_name(model)} can't be unpacked ({type(error).__name__}: {error}): "
            "restore the database from git or a copy."
        ) from error


# ------------------------------------------------------------------ the form of a table


@cache
def _keyed() -> tuple[type[SQLModel], ...]:
    return tuple(model for model in TABLES if model not in _FOLDED and "id" in table_of(model).columns)


def _name(model: type[SQLModel]) -> str:
    return f"{table_of(model).name}_packed" if model in _FOLDED else table_of(model).name


def _columns(model: type[SQLModel]) -> list[str]:
    if model in _FOLDED:
        return [*_FOLDED[model], "ids", "rows"]
    return [*(["key"] if model in _keyed() else []), *(column.name for column in table_of(model).columns)]


def _there(source: sqlite3.Connection) -> list[type[SQLModel]]:
    """The tables that a file has. It may lack those that later migrations brought, and those of its time it may not."""
    kinds = dict(source.execute("SELECT name, type FROM sqlite_master"))
    had = source.execute("SELECT max(version) FROM migration").fetchone()[0]
    later = {model for model, since in _LATER.items() if had < since}
    found = [model for model in TABLES if not (model in later and _name(model) not in kinds)]
    for name in map(_name, found):
        if kinds.get(name) != "table":
            raise IntegrityError(f"Table {name} was not made by msbench: restore the database from git or a copy.")
    return found


def _definition(model: type[SQLModel]) -> str:
    columns = ", ".join('"key" INTEGER PRIMARY KEY' if name == "key" else f'"{name}"' for name in _columns(model))
    return f'CREATE TABLE "{_name(model)}" ({columns})'


@cache
def _refers(column: Column[Any]) -> str | None:
    """The table whose key stands in this column, if it has keys."""
    names = [key.column.table.name for key in column.foreign_keys]
    return names[0] if names and names[0] in {table_of(model).name for model in _keyed()} else None


def _view(definition: str) -> str:
    """A view over an ordinary database as one over a packed one, with the same columns."""
    joined = re.sub(r"ON (\w)\.id = ", r'ON \1."key" = ', definition)
    return re.sub(r"\b([cved])\.id AS", r"lower(hex(\1.id)) AS", joined)


# ------------------------------------------------------------------ values


def _squeezed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _HEX.fullmatch(value):
        return bytes.fromhex(value)
    if len(value) < _LONG:
        return value
    stream = b"z" + zlib.compress(value.encode(), 9)
    return stream if 16 < len(stream) < len(value) else value


def _restored(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    return value.hex() if len(value) == 16 else _text(value)


def _text(value: bytes) -> str:
    if value[:1] != b"z":
        raise ValueError("a text that does not start as one")
    return _inflated(value[1:]).decode()


def _inflated(stream: bytes) -> bytes:
    inflating = zlib.decompressobj()
    raw = inflating.decompress(stream, _MOST)
    if not inflating.eof:
        raise ValueError(f"a stream that does not end, or is more than {_MOST >> 20} MiB")
    return raw


# ------------------------------------------------------------------ rows


def _ordered(source: sqlite3.Connection, table: Table) -> list[dict[str, Any]]:
    """A table's rows as they are stored, by their primary key."""
    names = [column.name for column in table.columns]
    listed = ", ".join(f'"{name}"' for name in names)
    order = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    rows = source.execute(f'SELECT {listed} FROM "{table.name}" ORDER BY {order}')
    return [dict(zip(names, row, strict=True)) for row in rows]


def _numbered(ids: Iterable[Any], known: Mapping[Any, int]) -> dict[Any, int]:
    """A key for every id: the one it has, or the next that none ever had in this file."""
    following = max(known.values(), default=0) + 1
    numbers: dict[Any, int] = {}
    for id in ids:
        numbers[id] = known.get(id, following)
        following += id not in known
    return numbers


def _stored(column: Column[Any], value: Any, all_keys: Keys) -> Any:
    table = _refers(column)
    if table is not None:
        return None if value is None else all_keys[table][value]
    return value if isinstance(column.type, LargeBinary) else _squeezed(value)


def _plain(model: type[SQLModel], rows: Sequence[Mapping[str, Any]], all_keys: Keys) -> Iterator[tuple[Any, ...]]:
    table = table_of(model)
    if model not in _keyed():
        yield from (tuple(_stored(column, row[column.name], all_keys) for column in table.columns) for row in rows)
        return
    firsts: dict[tuple[int, bytes], bytes] = {}
    for row in rows:
        key = all_keys[table.name][row["id"]]
        stored = [_stored(column, row[column.name], all_keys) for column in table.columns]
        for place, value in enumerate(stored):
            if isinstance(value, bytes) and len(value) >= _REPEATED:
                stored[place] = firsts.get((place, value), value)
                firsts.setdefault((place, value), b"=%d" % key)
        yield (key, *stored)


def _folds(model: type[SQLModel], rows: list[dict[str, Any]], all_keys: Keys) -> Iterator[tuple[Any, ...]]:
    table, shared = table_of(model), _FOLDED[model]
    own = [column for column in table.columns if column.name not in (*shared, "id")]

    def common(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_stored(table.c[name], row[name], all_keys) for name in shared)

    def place(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(map(repr, common(row)))

    in_folds = sorted(rows, key=lambda row: (*_by_key(common(row)), row["id"]))
    for _, group in groupby(in_folds, key=place):
        members = list(group)
        lists = {column.name: [_folded(column, row[column.name], all_keys) for row in members] for column in own}
        text = json.dumps(lists, separators=(",", ":"), ensure_ascii=False)
        ids = bytes.fromhex("".join(row["id"] for row in members))
        yield (*common(members[0]), ids, zlib.compress(text.encode(), 9))


def _by_key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value if isinstance(value, int) else str(value) for value in values)


def _folded(column: Column[Any], value: Any, all_keys: Keys) -> Any:
    table = _refers(column)
    return value if table is None or value is None else all_keys[table][value]


def _unpacked(
    model: type[SQLModel], source: sqlite3.Connection, ids: dict[str, dict[int, Any]]
) -> Iterator[tuple[Any, ...]]:
    table = table_of(model)
    keyed = model in _keyed()
    if keyed:
        pairs = source.execute(f'SELECT "key", id FROM "{table.name}"')
        ids[table.name] = {key: _restored(id) for key, id in pairs}
    ways = [_way(column, ids) for column in table.columns]
    there = {name for _, name, *_ in source.execute(f'PRAGMA table_info("{table.name}")')}
    lacked = _LATER_COLUMNS.get(model, frozenset()) - there
    listed = ", ".join("NULL" if name in lacked else f'"{name}"' for name in _columns(model))
    order = 'ORDER BY "key"' if keyed else ""
    long: dict[tuple[int, bytes], bytes] = {}
    for row in source.execute(f'SELECT {listed} FROM "{table.name}" {order}'):
        values = list(row[1:] if keyed else row)
        for place, value in enumerate(values):
            if keyed and isinstance(value, bytes) and len(value) < 16 and value[:1] == b"=":  # an id has 16 bytes
                values[place] = long[place, value]
            elif keyed and isinstance(value, bytes) and len(value) >= _REPEATED:
                long[place, b"=%d" % row[0]] = value
        yield tuple(way(value) for way, value in zip(ways, values, strict=True))


def _unfolded(
    model: type[SQLModel], source: sqlite3.Connection, ids: Mapping[str, Mapping[int, Any]]
) -> Iterator[tuple[Any, ...]]:
    table, shared = table_of(model), _FOLDED[model]
    listed = ", ".join(f'"{name}"' for name in _columns(model))
    for *common, own, stream in source.execute(f'SELECT {listed} FROM "{_name(model)}"'):
        lists = json.loads(_inflated(stream))
        count = len(own) // 16
        columns: dict[str, Sequence[Any]] = {"id": [own[16 * i : 16 * i + 16].hex() for i in range(count)]}
        for name, value in zip(shared, common, strict=True):
            columns[name] = [_way(table.c[name], ids)(value)] * count
        for column in table.columns:
            if column.name not in columns:
                keys_of = ids.get(_refers(column) or "")
                found = lists[column.name]
                columns[column.name] = found if keys_of is None else [keys_of[key] for key in found]
        yield from zip(*(columns[column.name] for column in table.columns), strict=True)


def _way(column: Column[Any], ids: Mapping[str, Mapping[int, Any]]) -> Callable[[Any], Any]:
    """How a stored value becomes the ordinary one."""
    table = _refers(column)
    if table is not None:
        names = ids[table]
        return lambda key: None if key is None else names[key]
    return (lambda value: value) if isinstance(column.type, LargeBinary) else _restored
