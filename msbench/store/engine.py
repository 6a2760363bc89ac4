"""Connections: SQLite's settings, and every database error as one sentence with advice."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, StaticPool, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from msbench.errors import IntegrityError, StoreError

MEMORY = ":memory:"


def _json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sqlite_path(where: str | Path) -> Path | None:
    """The file behind a path or an ``sqlite:///`` URL; None for memory and for other databases.

    Raises:
        StoreError: ``where`` looks like a URL, but isn't one.
    """
    if isinstance(where, Path):
        return where
    if where == MEMORY:
        return None
    if "://" not in where:
        return Path(where)
    url = _url(where)
    if url.get_backend_name() == "sqlite" and url.database and url.database != MEMORY:
        return Path(url.database)
    return None


def shown(where: str | Path) -> str:
    """``where`` as it may be printed: without a password."""
    text = str(where)
    return _url(text).render_as_string(hide_password=True) if "://" in text else text


def _url(text: str) -> URL:
    try:
        url = make_url(text)
        url.get_backend_name()
    except (ArgumentError, ValueError) as error:
        # The text isn't repeated: it may hold a password.
        raise StoreError(
            "That is not a database URL: give a file's path, or a URL like postgresql://host/name."
        ) from error
    return url


def open_engine(where: str | Path, *, read_only: bool, timeout_s: float) -> Engine:
    """An engine for a path, ``":memory:"`` or a URL. No connection is made yet, except to memory.

    Raises:
        StoreError: the URL's database or driver isn't known here.
    """
    path = sqlite_path(where)
    if path is not None:
        engine = _sqlite(f"{path.resolve().as_uri()}?{_mode(path, read_only)}", timeout_s, read_only=read_only)
    elif str(where) in (MEMORY, "sqlite://", f"sqlite:///{MEMORY}"):
        engine = _sqlite("file::memory:", timeout_s, pooled=True)
    else:
        try:
            engine = create_engine(_with_driver(_url(str(where))), json_serializer=_json_text)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise StoreError(f"The driver for {shown(where)} is not installed ({error}): pip install it.") from error
    return engine


def _with_driver(url: URL) -> URL:
    """``postgresql://`` means psycopg 3 where it is installed; SQLAlchemy's own choice is its predecessor."""
    known = url.drivername != "postgresql" or find_spec("psycopg") is None
    return url if known else url.set(drivername="postgresql+psycopg")


def _mode(path: Path, read_only: bool) -> str:
    if not read_only:
        return "mode=rwc"
    if not _is_wal(path):
        return "mode=ro"
    # A write-ahead log needs its side files even for reading, and only who may write removes them again.
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "mode=rw"
    # Where none can be made and none is there, nobody else can be writing.
    return "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"


def _is_wal(path: Path) -> bool:
    """Whether the file's header asks for a write-ahead log (bytes 18 and 19, https://sqlite.org/fileformat.html)."""
    try:
        with path.open("rb") as file:
            return file.read(20)[18:20] == b"\x02\x02"
    except OSError:
        return False


def _sqlite(uri: str, timeout_s: float, *, read_only: bool = False, pooled: bool = False) -> Engine:
    def connect() -> sqlite3.Connection:
        # Transactions are begun by _begin below: the driver's own begin too late for a consistent read.
        connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA temp_store=MEMORY")  # whatever room /tmp has
        if read_only:
            connection.execute("PRAGMA query_only=ON")
        return connection

    # A file's connections are closed after each use: nothing to leak, to fork, or to hold a log open.
    pool: type[StaticPool] | type[NullPool] = StaticPool if pooled else NullPool
    engine = create_engine("sqlite://", creator=connect, poolclass=pool, json_serializer=_json_text)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    if raw_sqlite(connection).in_transaction:
        return  # a reader inside another session of the one in-memory connection
    # A writer takes its lock at once: a reader that turns writer can't wait for its turn.
    writing = connection.get_execution_options().get("msbench_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def raw_sqlite(connection: Connection) -> sqlite3.Connection:
    """The driver's connection of an SQLite engine."""
    raw: Any = connection.connection.dbapi_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


_ADVICE = (
    ("locked", "is locked by another process, also after {waited:g} s: let that one finish, then try again"),
    ("readonly", "can't be written: check its permissions and its folder's, or name another one with --db"),
    ("read-only", "can't be written: check its permissions and its folder's, or name another one with --db"),
    ("not a database", "is not an SQLite database: check the path given to --db"),
    ("malformed", "is damaged: restore it from git or a copy, or save what is left with `sqlite3 FILE .recover`"),
    ("is full", "can't grow because the disk is full: free some space, then try again; nothing was half written"),
    ("disk i/o error", "could not be read or written (disk I/O error): check the disk, then `msbench db check`"),
    ("unable to open", "can't be opened: check that its folder exists and that you may read and write it"),
    ("no such table", "is not an msbench database, or lost a table: check the path given to --db"),
    ("no such column", "has other columns than this msbench expects: check that both are of the same release"),
)


def explain(where: str, error: BaseException, waited_s: float = 0.0) -> StoreError:
    """One sentence for a driver's error: which database, what is wrong, what to do.

    Args:
        waited_s: how long other processes' transactions are waited for.
    """
    cause = getattr(error, "orig", None) or error
    text = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
    if "constraint" in text.lower():
        return IntegrityError(f"Database {where} refused a row that contradicts it ({text}): nothing was stored.")
    for sign, advice in _ADVICE:
        if sign in text.lower():
            return StoreError(f"Database {where} {advice.format(waited=waited_s)}.")
    return StoreError(f"Database {where} could not be used ({text}): check the path or URL given to --db.")


@contextmanager
def explained(where: str, waited_s: float = 0.0) -> Iterator[None]:
    """Turn a database error inside the block into a StoreError.

    Raises:
        StoreError: see ``explain``.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        raise explain(where, error, waited_s) from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:  # the last: JSON in JSON, without end
        raise StoreError(
            f"Database {where} is damaged: a column that should hold JSON or text doesn't. See `msbench db check`."
        ) from error
