"""A published database: the same rows as in an ordinary one, in a file that is small and that git stores well.

It is an SQLite file too, with the same tables and column names, and differs in this:

- each row has an integer ``key``, and rows name each other by it; a row keeps its key from one publication to the next,
- 32 hexadecimal digits are 16 bytes,
- the long texts of a column are compressed together, about 1 MiB of them at a time: the first is the letter ``x`` and an xz
  stream of them all, a JSON list, and ``+`` stands for each of the others, in the order of their rows,
- so are samples, as ``samples.plain`` gives them, each with its length before it, 4 bytes,
- a long value that an earlier row has in the same column is ``=`` and that row's key,
- of a case NULL stands for what its name tells: dimensions, scalars and distribution,
- the checks of an evaluation, and the trials of one recording, are one row of a table of its own (``check_packed``): the
  ``rows`` are such a text, JSON, an object of lists, one a column; the ``ids`` are the first 4 bytes of each id, which follows
  from the content, and tell a changed row,
- there are no indexes, and rows are in the order of their keys, so that what is new comes last.

``PRAGMA user_version`` tells it from an ordinary database. It is only read: into memory, where it is an ordinary one.
"""

from __future__ import annotations

import json
import lzma
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import JSON, Column, Float, LargeBinary, Table
from sqlmodel import SQLModel

from msbench.errors import IntegrityError
from msbench.store import samples, together
from msbench.store.identity import content_id, renamed, table_of
from msbench.store.tables import (
    TABLES,
    CaseRow,
    CheckRow,
    LedgerRow,
    MeasurementRow,
    MigrationRow,
    NotesRow,
    RecordRow,
    StepRow,
    TrialRow,
)
from msbench.store.together import LONG, Samples, Texts
from msbench.store.views import VIEWS

FORMAT = 7
"""``PRAGMA user_version`` of a packed file; an ordinary one has 0.

In one with 1 no value refers to another row's, in one with 2 streams have no dictionary and ids are whole, in one with 3 only
texts of 120 characters and more refer, up to 4 each long text is the letter ``z`` and a zlib stream, whose dictionary is the
last 32 KiB of the long texts before it in its column, up to 5 a case has what its name tells, too, and up to 6 samples are as
in an ordinary database, and measurements' ids follow from the bytes of these.
"""

_REPEATED, _REPEATED_TEXT = 64, 40
"""Bytes and characters from which a value that an earlier row has is worth a reference; a text of 32 may be digits that views compare."""
_ID = 4
"""Bytes kept of an id that follows from its row's content."""
_PAGE = 8192
"""Bytes of a page: samples are some 400 bytes each, and in small pages much room stays empty behind them."""
_HEX = re.compile("[0-9a-f]{32}")

_SAMPLES_TOGETHER = 7
"""The first format with that."""

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
    return bool(_format(connection))


def _format(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def keys(connection: sqlite3.Connection) -> Keys:
    """The keys of a packed file's rows, to be kept by ``pack``."""
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found = {
        table.name: {_id(id): key for key, id in connection.execute(f'SELECT "key", id FROM "{table.name}"')}
        for table in map(table_of, _keyed())
        if table.name in there
    }
    if _format(connection) < _SAMPLES_TOGETHER:
        ids = {name: {key: id for id, key in rows.items()} for name, rows in found.items()}
        measurements = table_of(MeasurementRow).name
        rows = _unpacked(MeasurementRow, connection, ids)
        found[measurements] = {row[0]: key for row, key in zip(rows, sorted(ids[measurements]), strict=True)}
    return found


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
        IntegrityError: the file is damaged, or from a newer msbench.
    """
    found = _format(source)
    if found > FORMAT:
        raise IntegrityError(
            f"This published database has format {found}, and this msbench reads up to {FORMAT}: update msbench."
        )
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
    except (AttributeError, LookupError, TypeError, ValueError, lzma.LZMAError, zlib.error) as error:
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
    floats = {column.name for column in table_of(model).columns if isinstance(column.type, Float)}
    # SQLite keeps a whole number in a column of REAL as a short integer.
    kinds = dict.fromkeys(floats, " REAL") | {"key": " INTEGER PRIMARY KEY"}
    columns = ", ".join(f'"{name}"{kinds.get(name, "")}' for name in _columns(model))
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


def _digits(value: Any) -> Any:
    return bytes.fromhex(value) if isinstance(value, str) and _HEX.fullmatch(value) else value


def _id(value: Any) -> Any:
    return Texts().restored(value)


def _repeats(value: Any) -> bool:
    """Whether a value is long enough to be worth a reference to an earlier row that has it."""
    return (
        len(value) >= (_REPEATED_TEXT if isinstance(value, str) else _REPEATED)
        if isinstance(value, str | bytes)
        else False
    )


def _told(model: type[SQLModel], row: Mapping[str, Any]) -> dict[str, str]:
    """What a case's name tells, by its other columns; of rows that have no such name nothing."""
    if model is not CaseRow:
        return {}
    parts = [part.partition("=") for part in row["name"].split(",")]
    dims = [f'"{name}":{value}' for name, _, value in parts if value.isdecimal()]
    scalars = [f'"{name}":{value}' for name, _, value in parts if value and not value.isdecimal()]
    distribution = next((name for name, equals, _ in parts if not equals), "uniform")
    return {"dims": f"{{{','.join(dims)}}}", "scalars": f"{{{','.join(scalars)}}}", "distribution": distribution}


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
    """A value but for long texts, which are compressed together."""
    table = _refers(column)
    if table is not None:
        return None if value is None else all_keys[table][value]
    return value if isinstance(column.type, LargeBinary) else _digits(value)


def _plain(model: type[SQLModel], rows: Sequence[Mapping[str, Any]], all_keys: Keys) -> Iterator[tuple[Any, ...]]:
    table = table_of(model)
    keyed = model in _keyed()
    own: list[list[int]] = [[all_keys[table.name][row["id"]]] if keyed else [] for row in rows]
    told = [_told(model, row) for row in rows]
    columns = []
    for column in table.columns:
        firsts: dict[Any, bytes] = {}
        stored = []
        for row, key, known in zip(rows, own, told, strict=True):
            value = row[column.name] if row[column.name] != known.get(column.name) else None
            if isinstance(column.type, LargeBinary):
                value = samples.plain(row[column.name])
            repeats = keyed and _repeats(value)
            stored.append(firsts[value] if repeats and value in firsts else _stored(column, value, all_keys))
            if repeats:
                firsts.setdefault(value, b"=%d" % key[0])
        columns.append(
            _with_samples_together(stored) if isinstance(column.type, LargeBinary) else _with_texts_together(stored)
        )
    return ((*key, *values) for key, values in zip(own, zip(*columns, strict=True), strict=True))


def _with_texts_together(stored: Sequence[Any]) -> list[Any]:
    texts = together.of_texts(value for value in stored if _is_long(value))
    return [next(texts) if _is_long(value) else value for value in stored]


def _with_samples_together(stored: Sequence[bytes]) -> list[bytes]:
    blobs = together.of_samples(value for value in stored if value[:1] != b"=")
    return [value if value[:1] == b"=" else next(blobs) for value in stored]


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= LONG


def _folds(model: type[SQLModel], rows: list[dict[str, Any]], all_keys: Keys) -> Iterator[tuple[Any, ...]]:
    table, shared = table_of(model), _FOLDED[model]
    own = [column for column in table.columns if column.name not in (*shared, "id")]

    def common(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(_stored(table.c[name], row[name], all_keys) for name in shared)

    def place(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(map(repr, common(row)))

    def folded(row: Mapping[str, Any]) -> list[Any]:
        return [_folded(column, row[column.name], all_keys) for column in own]

    in_folds = sorted(rows, key=lambda row: (*_by_key(common(row)), *map(repr, folded(row))))  # alike beside alike
    folds, texts = [], []
    for _, group in groupby(in_folds, key=place):
        members = list(group)
        columns = zip(*map(folded, members), strict=True)
        lists = dict(zip((column.name for column in own), columns, strict=True))
        texts.append(json.dumps(lists, separators=(",", ":"), ensure_ascii=False))
        folds.append((*common(members[0]), b"".join(bytes.fromhex(row["id"])[:_ID] for row in members)))
    return ((*fold, text) for fold, text in zip(folds, together.of_texts(texts), strict=True))


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
        ids[table.name] = {key: _id(id) for key, id in pairs}
    names = [column.name for column in table.columns]
    are_together = _format(source) >= _SAMPLES_TOGETHER
    ways = [_way(column, ids, Texts(), Samples() if are_together else None) for column in table.columns]
    there = {name for _, name, *_ in source.execute(f'PRAGMA table_info("{table.name}")')}
    lacked = _LATER_COLUMNS.get(model, frozenset()) - there
    listed = ", ".join("NULL" if name in lacked else f'"{name}"' for name in _columns(model))
    order = 'ORDER BY "key"' if keyed else ""
    long: dict[tuple[int, bytes], Any] = {}
    for row in source.execute(f'SELECT {listed} FROM "{table.name}" {order}'):
        values = list(row[1:] if keyed else row)
        for place, value in enumerate(values):
            if keyed and isinstance(value, bytes) and len(value) < 16 and value[:1] == b"=":  # an id has 16 bytes
                values[place] = long[place, value]
                continue
            values[place] = ways[place](value)
            if keyed and (
                isinstance(values[place], bytes) or _repeats(values[place])
            ):  # samples are shorter compressed
                long[place, b"=%d" % row[0]] = values[place]
        if None in values and (told := _told(model, dict(zip(names, values, strict=True)))):
            values = [told.get(name) if value is None else value for name, value in zip(names, values, strict=True)]
        if model is MeasurementRow and not are_together:
            values[names.index("id")] = renamed(dict(zip(names, values, strict=True)))
        yield tuple(values)


def _unfolded(
    model: type[SQLModel], source: sqlite3.Connection, ids: Mapping[str, Mapping[int, Any]]
) -> Iterator[tuple[Any, ...]]:
    table, shared = table_of(model), _FOLDED[model]
    names = [column.name for column in table.columns]
    listed = ", ".join(f'"{name}"' for name in _columns(model))
    texts = Texts()
    are_together = _format(source) > 4
    for *common, own, stream in source.execute(f'SELECT {listed} FROM "{_name(model)}" ORDER BY rowid'):
        lists = json.loads(texts.restored(stream) if are_together else texts.inflated(stream))
        count = len(next(iter(lists.values())))
        columns: dict[str, Sequence[Any]] = {}
        for name, value in zip(shared, common, strict=True):
            columns[name] = [_way(table.c[name], ids, Texts())(value)] * count
        for column in table.columns:
            if column.name not in (*shared, "id"):
                keys_of = ids.get(_refers(column) or "")
                found = lists[column.name]
                columns[column.name] = found if keys_of is None else [keys_of[key] for key in found]
        if len(own) not in (_ID * count, 16 * count):
            raise ValueError(f"{count} rows with {len(own)} bytes of ids")
        if len(own) == 16 * count:  # as in formats 1 and 2
            columns["id"] = [own[at : at + 16].hex() for at in range(0, len(own), 16)]
        else:
            starts = [own[at : at + _ID].hex() for at in range(0, len(own), _ID)]
            columns["id"] = list(_identified(model, columns, starts))
        yield from zip(*(columns[name] for name in names), strict=True)


def _identified(model: type[SQLModel], columns: Mapping[str, Sequence[Any]], starts: Sequence[str]) -> Iterator[str]:
    """The ids that rows have by their content; where one starts otherwise, one that no content has: the row was changed."""
    objects = {column.name for column in table_of(model).columns if isinstance(column.type, JSON)}
    typed = [map(json.loads, values) if name in objects else values for name, values in columns.items()]
    for start, *row in zip(starts, *typed, strict=True):
        id = content_id(model, dict(zip(columns, row, strict=True)))
        yield id if id.startswith(start) else start.ljust(len(id), "0")


def _way(
    column: Column[Any], ids: Mapping[str, Mapping[int, Any]], texts: Texts, blobs: Samples | None = None
) -> Callable[[Any], Any]:
    """How a stored value becomes the ordinary one. ``blobs``: samples are compressed together."""
    table = _refers(column)
    if table is not None:
        names = ids[table]
        return lambda key: None if key is None else names[key]
    if isinstance(column.type, LargeBinary):
        return blobs.restored if blobs else (lambda value: value)
    return texts.restored
