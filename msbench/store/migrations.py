"""The schema's history. A migration is a function; its number is its place in MIGRATIONS, counted from 1.

A new database gets all of tables.py at once and is marked as having had every migration; an older one gets those it
lacks. So a change of a table is an edit of tables.py, and one more function here that brings an older database to the
same schema.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy.schema import CreateIndex, CreateTable

from msbench.errors import StoreError
from msbench.store.identity import renamed, table_of
from msbench.store.tables import TABLES, MigrationRow
from msbench.store.views import VIEWS


def _1_everything(connection: Connection) -> None:
    """All tables, their indexes and the views, always in the same order, so that equal databases have equal bytes."""
    for table in map(table_of, TABLES):
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index))
    for view in VIEWS:
        connection.execute(text(view))


def _2_trials(connection: Connection) -> None:
    """The trials of the evaluator itself."""
    connection.execute(
        text("""
            CREATE TABLE trial (
                id VARCHAR NOT NULL,
                study VARCHAR NOT NULL,
                subject VARCHAR NOT NULL,
                expected VARCHAR NOT NULL,
                outcome VARCHAR NOT NULL,
                held BOOLEAN NOT NULL,
                details JSON NOT NULL,
                device_id VARCHAR NOT NULL,
                harness VARCHAR NOT NULL,
                command VARCHAR NOT NULL,
                created_at VARCHAR NOT NULL,
                PRIMARY KEY (id),
                FOREIGN KEY(device_id) REFERENCES device (id)
            )
        """)
    )


_LONG = {
    "device": ("memory_bytes", "l2_bytes"),
    "case": ("nbytes", "flops"),
    "evaluation": ("seed",),
    "check": ("seed",),
    "measurement": ("seed",),
    "run": ("seed",),
    "call": ("prompt_tokens", "completion_tokens"),
}


def _3_long_numbers(connection: Connection) -> None:
    """64 bits for seeds and sizes. SQLite's integers always had them."""
    if connection.dialect.name == "sqlite":
        return
    for view in ("speedup", "timing"):  # a view keeps its columns from being changed
        connection.execute(text(f"DROP VIEW {view}"))
    for table, columns in _LONG.items():
        for column in columns:
            connection.execute(text(f'ALTER TABLE "{table}" ALTER COLUMN {column} TYPE BIGINT'))
    for view in VIEWS:
        connection.execute(text(view))


def _4_records(connection: Connection) -> None:
    """What launchers put into their streams."""
    connection.execute(
        text("""
            CREATE TABLE record (
                id VARCHAR NOT NULL,
                evaluation_id VARCHAR NOT NULL,
                case_name VARCHAR NOT NULL,
                summary VARCHAR NOT NULL,
                nodes JSON NOT NULL,
                PRIMARY KEY (id),
                FOREIGN KEY(evaluation_id) REFERENCES evaluation (id)
            )
        """)
    )
    connection.execute(text("CREATE INDEX ix_record_evaluation_id ON record (evaluation_id)"))


def _5_ledger(connection: Connection) -> None:
    """What runs spend, request by request."""
    whole = "INTEGER" if connection.dialect.name == "sqlite" else "BIGINT"
    connection.execute(
        text(f"""
            CREATE TABLE ledger (
                id VARCHAR NOT NULL,
                run_id VARCHAR NOT NULL,
                number INTEGER NOT NULL,
                step_number INTEGER NOT NULL,
                kind VARCHAR NOT NULL,
                agent VARCHAR NOT NULL,
                state VARCHAR NOT NULL,
                reserved_tokens {whole},
                reserved_usd FLOAT,
                reserved_gpu_seconds FLOAT,
                uncached_tokens {whole},
                cached_tokens {whole},
                reasoning_tokens {whole},
                output_tokens {whole},
                cost_usd FLOAT,
                priced_by VARCHAR NOT NULL,
                gpu_seconds FLOAT,
                seconds FLOAT,
                wall_seconds FLOAT NOT NULL,
                note VARCHAR NOT NULL,
                reasoning VARCHAR NOT NULL,
                created_at VARCHAR NOT NULL,
                PRIMARY KEY (id),
                UNIQUE (run_id, number),
                FOREIGN KEY(run_id) REFERENCES run (id)
            )
        """)
    )
    connection.execute(text("CREATE INDEX ix_ledger_run_id ON ledger (run_id)"))


def _6_predicted_cases(connection: Connection) -> None:
    """What a plan predicts of single cases."""
    connection.execute(text("ALTER TABLE step ADD COLUMN predicted_cases JSON"))


def _7_notes(connection: Connection) -> None:
    """What is known of steps besides their results."""
    connection.execute(
        text("""
            CREATE TABLE notes (
                id VARCHAR NOT NULL,
                step_id VARCHAR NOT NULL,
                notes JSON NOT NULL,
                PRIMARY KEY (id)
            )
        """)
    )
    connection.execute(text("CREATE INDEX ix_notes_step_id ON notes (step_id)"))


def _8_measurements(connection: Connection) -> None:
    """Ids of measurements by their samples, not by how these are compressed."""
    for row in map(dict[str, Any], connection.execute(text("SELECT * FROM measurement")).mappings().all()):
        names = {"before": row["id"], "now": renamed(row)}
        if names["now"] != names["before"]:
            connection.execute(text("UPDATE measurement SET id = :now WHERE id = :before"), names)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _1_everything,
    _2_trials,
    _3_long_numbers,
    _4_records,
    _5_ledger,
    _6_predicted_cases,
    _7_notes,
    _8_measurements,
)


def version(connection: Connection, where: str) -> int:
    """How many migrations a database has had; 0 if it is empty.

    Raises:
        StoreError: it has tables, but none of msbench's, or no schema that this msbench knows.
    """
    names = inspect(connection).get_table_names()
    if MigrationRow.__tablename__ not in names:
        if names:
            raise StoreError(f"Database {where} is not one of msbench's: check the path given to --db.")
        return 0
    had = connection.execute(select(func.max(table_of(MigrationRow).c.version))).scalar()
    if not isinstance(had, int) or had < 1:
        raise StoreError(
            f"Database {where} does not say which schema it has: its table migration was changed. "
            "Restore it from git or a copy."
        )
    if had > len(MIGRATIONS):
        raise StoreError(
            f"Database {where} has schema {had}, newer than this msbench's {len(MIGRATIONS)}: update msbench."
        )
    return had


def migrate(connection: Connection, where: str) -> None:
    """Bring a database to the newest schema, within the caller's transaction.

    Raises:
        StoreError: as ``version``.
    """
    had = version(connection, where)
    for migration in MIGRATIONS[:1] if had == 0 else MIGRATIONS[had:]:
        migration(connection)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    rows = [{"version": number, "applied_at": now} for number in range(had + 1, len(MIGRATIONS) + 1)]
    if rows:
        connection.execute(table_of(MigrationRow).insert(), rows)
