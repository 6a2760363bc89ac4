"""A database: opening it, read and write transactions, and compacting it for a commit."""

from __future__ import annotations

import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Self

from sqlmodel import Session

from msbench.errors import StoreError
from msbench.store.engine import MEMORY, explained, open_engine, raw_sqlite, shown, sqlite_path
from msbench.store.identity import table_of
from msbench.store.migrations import MIGRATIONS, migrate, version
from msbench.store.packed import is_packed, unpack
from msbench.store.tables import TABLES


class Database:
    """One database: an SQLite file, ``":memory:"``, or any SQLAlchemy URL."""

    def __init__(
        self, where: str | Path, *, create: bool = True, read_only: bool = False, timeout_s: float = 30.0
    ) -> None:
        """Open a database, and create or migrate it unless it is only read. A new file uses a write-ahead log.

        Args:
            where: a path, ``":memory:"`` or a URL.
            create: make the file (and its folder) if there is none.
            read_only: never change anything, not even the schema.
            timeout_s: how long to wait for another process's transaction.

        Raises:
            StoreError: it can't be opened; what, where and what to do.
        """
        self.where = shown(where)
        self.path = sqlite_path(where)
        self.read_only = read_only
        self.had = 0  # how many migrations it had when it was opened: 0 is an empty database
        if self.path is not None:
            self._look(self.path, create=create and not read_only)
        self._timeout_s = timeout_s
        self._one_at_a_time = RLock()  # for the single connection of an in-memory database
        self._engine = open_engine(where, read_only=read_only, timeout_s=timeout_s)
        self._close = weakref.finalize(self, self._engine.dispose)
        self._writing = self._engine.execution_options(msbench_writing=True)
        try:
            self._ensure_schema()
        except BaseException:
            self.close()
            raise

    def _look(self, path: Path, *, create: bool) -> None:
        if path.is_dir():
            raise StoreError(f"{path} is a folder: name a database file in it.")
        if path.exists():
            return
        if not create:
            raise StoreError(
                f"There is no database {path}: measure something to make one, or check the path given to --db."
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The folder of database {path} can't be made ({error.strerror}): name another with --db."
            ) from error

    def _ensure_schema(self) -> None:
        with explained(self.where, self._timeout_s):
            with self._engine.begin() as connection:
                if self.path is not None and is_packed(raw_sqlite(connection)):
                    raise StoreError(
                        f"Database {self.where} is a published one, which is read-only: write to another (--db FILE), "
                        "then add that with `msbench db publish FILE`."
                    )
                self.had = had = version(connection, self.where)
            if had == len(MIGRATIONS):
                return
            if self.read_only and had == 0:
                raise StoreError(
                    f"Database {self.where} is empty: measure something first, or check the path given to --db."
                )
            if self.read_only:
                raise StoreError(
                    f"Database {self.where} is read-only, and its schema is {had}, not {len(MIGRATIONS)}: "
                    "write to it once, for example by `msbench db merge`, which brings it up to date."
                )
            if had == 0 and self.path is not None:
                self._keep_a_log()
            with self._writing.begin() as connection:
                migrate(connection, self.where)

    def _keep_a_log(self) -> None:
        """Let readers in while a writer works (https://sqlite.org/wal.html), where the file system can."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                with self._engine.connect() as connection:
                    raw_sqlite(connection).execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                # Two processes that create one file at once: the busy timeout doesn't cover this statement.
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session that sees one state of the database; what it changes is dropped. Rows stay usable afterwards.

        Raises:
            StoreError: the database can't be read.
        """
        with (
            self._one_at_a_time,
            explained(self.where, self._timeout_s),
            Session(self._engine, expire_on_commit=False) as session,
        ):
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed at the end of the block, or not at all if the block raises.

        Raises:
            StoreError: the database can't be written.
        """
        with (
            self._one_at_a_time,
            explained(self.where, self._timeout_s),
            Session(self._writing, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    @contextmanager
    def raw(self) -> Iterator[sqlite3.Connection]:
        """The driver's connection of an SQLite database, in a transaction whose changes are dropped.

        Raises:
            StoreError: the database can't be read.
        """
        with self._one_at_a_time, explained(self.where, self._timeout_s), self._engine.connect() as connection:
            connection.begin()
            yield raw_sqlite(connection)

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """The driver's connection of an SQLite database, in a transaction without foreign keys, which is committed.

        Raises:
            StoreError: the database can't be written.
        """
        with self._one_at_a_time, explained(self.where, self._timeout_s), self._engine.connect() as connection:
            raw = raw_sqlite(connection)
            raw.execute("PRAGMA foreign_keys=OFF")
            try:
                with raw:
                    yield raw
            finally:
                raw.execute("PRAGMA foreign_keys=ON")

    def compact(self) -> None:
        """Compact an SQLite file for a commit: small, and with its rows in an order that depends only on them.

        Afterwards it is a single file without a write-ahead log, so that reading it writes nothing. Databases that are
        not SQLite files are left alone.

        Raises:
            StoreError: another process has it open, or it can't be written.
        """
        if self.path is None:
            return
        with explained(self.where, self._timeout_s), self._engine.connect() as connection:
            raw = raw_sqlite(connection)
            raw.execute("PRAGMA foreign_keys=OFF")
            raw.execute("BEGIN IMMEDIATE")
            for table in map(table_of, TABLES):
                order = ", ".join(column.name for column in table.primary_key.columns)
                raw.execute(f'CREATE TEMP TABLE sorted AS SELECT * FROM "{table.name}" ORDER BY {order}')
                raw.execute(f'DELETE FROM "{table.name}"')
                raw.execute(f'INSERT INTO "{table.name}" SELECT * FROM temp.sorted')
                raw.execute("DROP TABLE temp.sorted")
            raw.execute("COMMIT")
            raw.execute("VACUUM")
            raw.execute("PRAGMA journal_mode=DELETE")

    @classmethod
    def read_to_memory(cls, path: str | Path, *, timeout_s: float = 30.0) -> Self:
        """An SQLite file as it is now, in memory and with the newest schema. The file itself is only read.

        Raises:
            StoreError: the file can't be read.
        """
        copy = cls(MEMORY)
        source = open_engine(path, read_only=True, timeout_s=timeout_s)
        try:
            copy._look(Path(sqlite_path(path) or path), create=False)
            copy.where = str(path)
            with explained(str(path), timeout_s), source.connect() as file:
                read = raw_sqlite(file)
                if is_packed(read):
                    with copy._writing.begin() as memory:
                        unpack(read, raw_sqlite(memory))
                else:
                    with copy._engine.connect() as memory:
                        read.backup(raw_sqlite(memory))
            copy._ensure_schema()
        except BaseException:
            copy.close()
            raise
        finally:
            source.dispose()
        return copy

    def close(self) -> None:
        """Close all connections. A store that nobody holds any more closes them too."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"
