"""Verifies a database: every id, reference, sample and word in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import SQLModel

from msbench.archive.plausible import implausible
from msbench.errors import IntegrityError
from msbench.figures.timings import CHECKED
from msbench.model import Fault, Origin, Outcome, Status, Study, normalise
from msbench.spec import Precision, Split
from msbench.store.engine import explain
from msbench.store.identity import (
    CONTENT_ADDRESSED,
    Values,
    call_id,
    content_id,
    device_id,
    ledger_id,
    step_id,
    table_of,
    version_id,
)
from msbench.store.samples import median_ns, unpack_samples
from msbench.store.store import Store
from msbench.store.tables import (
    TABLES,
    BuildRow,
    CallRow,
    CaseRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    LedgerRow,
    LineageRow,
    MeasurementRow,
    MessageRow,
    ProfileRow,
    RunRow,
    StepRow,
    TaskRow,
    TrialRow,
    VersionRow,
)

RUN_STATUSES = ("running", "waiting", "finished", "stopped", "failed")
RATES = ("fp32", "tf32", "bf16", "fp64")
ROLES = ("system", "user", "assistant", "tool")

_WORDS: dict[type[SQLModel], dict[str, Sequence[str] | type[StrEnum]]] = {
    DeviceRow: {"kind": ("cuda", "cpu")},
    TaskRow: {"precision": Precision, "compute": RATES},
    CaseRow: {"split": Split},
    VersionRow: {"origin": Origin},
    BuildRow: {"fault": Fault},
    EvaluationRow: {"status": Status, "fault": Fault},
    CheckRow: {"fault": Fault},
    MeasurementRow: {"fault": Fault},
    ProfileRow: {"fault": Fault},
    RunRow: {"status": RUN_STATUSES},
    StepRow: {"outcome": Outcome},
    MessageRow: {"role": ROLES},
    TrialRow: {"study": Study},
}


class Problem(str):
    """One sentence; ``blamed`` is the row that it is about, as its class and primary key."""

    blamed: tuple[type[SQLModel], tuple[Any, ...]] | None = None

    @classmethod
    def of(cls, model: type[SQLModel], row: Values, says: str) -> Problem:
        """What is wrong with a row: ``says`` follows its name."""
        problem = cls(f"{_called(model, row)} {says}.")
        problem.blamed = model, tuple(row[column.name] for column in table_of(model).primary_key.columns)
        return problem


def check(store: Store, known: Store | None = None, *, alone: bool = False) -> list[Problem]:
    """Every problem of a database as one sentence; an empty list means none.

    Ids are recomputed from what they are the hash of (a build's and a run's are given), references
    are followed, samples are decoded and compared with the figures beside them, and words must be msbench's.

    Args:
        store: what is checked.
        known: where else a version's parents and a recorded evaluation's original may be; by default nowhere.
        alone: whether these may be anywhere, as in a database that is read without the others.
    """
    problems: list[Problem] = []
    with store.session() as session:
        connection = session.connection()
        try:
            problems += map(Problem, _file(connection))
            if any(_made_otherwise(connection)):
                return problems
            tables = {model: _rows(connection, model) for model in TABLES}
        except (DBAPIError, ValueError, TypeError, RecursionError) as error:  # what is no JSON, no text, no truth value
            return [*problems, Problem(_unreadable(store.where, error))]
    typed = True
    for model, rows in tables.items():
        for row in rows:
            wrong = list(_type_problems(model, row))
            typed = typed and not wrong
            problems += (Problem.of(model, row, says) for says in wrong or _row_problems(model, row))
    if not typed:
        return problems  # what rows say about each other is only asked where each says something
    problems += _across(tables)
    if not alone:
        problems += _elsewhere(tables, known)
    return problems


def damage(store: Store) -> list[str]:
    """What SQLite says of a database's file, which is all that is asked of one before others are read."""
    if store.had == 0:
        return ["The database is empty."]
    with store.session() as session:
        return _file(session.connection())


def _file(connection: Connection) -> list[str]:
    """SQLite's own opinion."""
    if connection.dialect.name != "sqlite":
        return []
    verdicts = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check"))]
    problems = [
        f"SQLite finds the file damaged: {' '.join(verdict.split()).rstrip('.')}."
        for verdict in verdicts
        if verdict != "ok"
    ]
    otherwise = list(_made_otherwise(connection))
    if otherwise:
        return problems + otherwise
    for table, _, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        problems.append(f"A row of table {table} names one of table {parent} that is not there.")
    return problems


def _made_otherwise(connection: Connection) -> Iterator[str]:
    """What has the name of a table of msbench's and is none. It is not asked for rows: a view's may never end.

    Nor are rows behind a trigger, which may change them, or in a table without its key, which may hold them twice.
    """
    if connection.dialect.name != "sqlite":
        return
    kinds = {str(name): str(kind) for kind, name in connection.execute(text("SELECT type, name FROM sqlite_master"))}
    for name in sorted(name for name, kind in kinds.items() if kind == "trigger"):
        yield f"It has the trigger {name!r}, and msbench makes none."
    for table in map(table_of, TABLES):
        columns = list(connection.execute(text(f'PRAGMA table_info("{table.name}")')))
        keys = [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]
        if kinds.get(table.name, "table") != "table" or (columns and keys != [key.name for key in table.primary_key]):
            yield f"Table {table.name} was not made by msbench: it is a view, or has another primary key."


def _unreadable(where: str, error: Exception) -> str:
    if isinstance(error, DBAPIError):
        return str(explain(where, error))
    return f"A column of database {where} that should hold JSON or text doesn't ({error})."


def _rows(connection: Connection, model: type[SQLModel]) -> list[Values]:
    return [dict(row) for row in connection.execute(select(table_of(model))).mappings()]


def _called(model: type[SQLModel], row: Values) -> str:
    keys = (str(row[column.name]) for column in table_of(model).primary_key.columns)
    return f"{table_of(model).name.capitalize()} {' '.join(keys)}"


@cache
def _values_of(model: type[SQLModel]) -> type[BaseModel]:
    """What a row class declares, as a model that does validate: SQLModel's tables don't."""
    fields: dict[str, Any] = {name: (field.annotation, ...) for name, field in model.model_fields.items()}
    return create_model(f"{model.__name__}Values", __config__=ConfigDict(strict=True, allow_inf_nan=False), **fields)


def _type_problems(model: type[SQLModel], row: Values) -> Iterator[str]:
    try:
        _values_of(model).model_validate(row)
    except ValidationError as error:
        for column in dict.fromkeys(str(one["loc"][0]) for one in error.errors(include_url=False)):
            yield f"has a {column} of the wrong type: {str(row[column])[:40]!r}"
        return
    yield from implausible(model, row)


@cache
def _words(model: type[SQLModel]) -> list[tuple[str, frozenset[str]]]:
    return [(column, frozenset(map(str, words))) for column, words in _WORDS.get(model, {}).items()]


def _row_problems(model: type[SQLModel], row: Values) -> Iterator[str]:
    for column, words in _words(model):
        if row[column] is not None and row[column] not in words:
            yield f"has the unknown {column} {row[column]!r}"
    if "fault" in row and (row["fault"] is None) != (row["message"] is None):
        yield "has a fault without a message, or a message without a fault"
    if model in CONTENT_ADDRESSED and content_id(model, row) != row["id"]:
        yield "was changed: its id is not that of its content"
    special = _SPECIAL.get(model)
    if special is not None:
        yield from special(row)


def _device(row: Values) -> Iterator[str]:
    if device_id(row) != row["id"]:
        yield "was changed: its id is not that of its content"


def _task(row: Values) -> Iterator[str]:
    if row["id"] != f"{row['operator']}/{row['precision']}":
        yield "is not called by its operator and precision"


def _version(row: Values) -> Iterator[str]:
    operator, _, precision = str(row["task_id"]).partition("/")
    if version_id(operator, precision, row["source"]) != row["id"]:
        yield "was changed: its id is not that of its source"
    if normalise(row["source"]) != row["source"]:
        yield "has a source that is not normalised"


def _evaluation(row: Values) -> Iterator[str]:
    if (row["status"] == Status.PASSED) != (row["fault"] is None):
        yield f"has status {row['status']!r}, and {'no' if row['fault'] is None else 'a'} fault"


def _check(row: Values) -> Iterator[str]:
    if row["passed"] != (row["fault"] is None):
        yield f"{'passed with a' if row['passed'] else 'failed without a'} fault"


def _measurement(row: Values) -> Iterator[str]:
    try:
        rounds = unpack_samples(row["samples"])
    except IntegrityError as error:
        yield f"has samples that can't be read: {str(error).rstrip('.')}"
        return
    if not all(all(map(math.isfinite, one)) for one in rounds):
        yield "has samples that are no times"
    if row["sittings"] > max(1, len(rounds)):
        yield f"says {row['sittings']} sessions of {len(rounds)} rounds"
    if len(rounds) != row["rounds"]:
        yield f"says {row['rounds']} rounds, but has samples of {len(rounds)}"
    if median_ns(rounds) != row["median_ns"]:
        yield f"says a median of {row['median_ns']} ns, but its samples have {median_ns(rounds)}"
    if row["fault"] is None and row["median_ns"] is None:
        yield "has neither a time nor a fault"


def _step(row: Values) -> Iterator[str]:
    if step_id(row["run_id"], row["number"]) != row["id"]:
        yield "has an id that is not its run's and number's"


def _call(row: Values) -> Iterator[str]:
    if call_id(row["run_id"], row["number"]) != row["id"]:
        yield "has an id that is not its run's and number's"


def _ledger(row: Values) -> Iterator[str]:
    if ledger_id(row["run_id"], row["number"]) != row["id"]:
        yield "has an id that is not its run's and number's"


_SPECIAL: dict[type[SQLModel], Callable[[Values], Iterator[str]]] = {
    DeviceRow: _device,
    TaskRow: _task,
    VersionRow: _version,
    EvaluationRow: _evaluation,
    CheckRow: _check,
    MeasurementRow: _measurement,
    StepRow: _step,
    CallRow: _call,
    LedgerRow: _ledger,
}

_Tables = dict[type[SQLModel], list[Values]]


def _across(tables: _Tables) -> Iterator[Problem]:
    """What rows say about each other."""
    task_of = {row["id"]: row["task_id"] for model in (VersionRow, CaseRow, RunRow) for row in tables[model]}
    evaluations = {row["id"]: row for row in tables[EvaluationRow]}
    version_of_build = {row["id"]: row["version_id"] for row in tables[BuildRow]}
    for model in (CheckRow, MeasurementRow, ProfileRow):
        for row in tables[model]:
            evaluation = evaluations.get(row["evaluation_id"])
            if evaluation and task_of.get(evaluation["version_id"]) != task_of.get(row["case_id"]):
                yield Problem.of(model, row, "is of a case of another task than its version")
    yield from _unchecked(tables, evaluations)
    for row in evaluations.values():
        if version_of_build.get(row["build_id"], row["version_id"]) != row["version_id"]:
            yield Problem.of(EvaluationRow, row, "has the build of another version")
    for row in tables[StepRow]:
        for name in ("version_id", "parent_version_id"):
            if task_of.get(row[name], task_of.get(row["run_id"])) != task_of.get(row["run_id"]):
                yield Problem.of(StepRow, row, "names a version of another task")


def _unchecked(tables: _Tables, evaluations: Mapping[str, Values]) -> Iterator[Problem]:
    """Times that would be shown without a check that passed. (What repeats a record has its times from there, and none is shown.)"""
    passed = {(row["evaluation_id"], row["case_id"]) for row in tables[CheckRow] if row["passed"]}
    shown = {id for id, row in evaluations.items() if row["status"] in CHECKED and row["recorded_from"] is None}
    for row in tables[CheckRow]:
        evaluation = evaluations.get(row["evaluation_id"])
        if evaluation and not row["passed"] and evaluation["status"] in CHECKED:
            says = f"is {evaluation['status']}, although its check {row['id']} failed"
            yield Problem.of(EvaluationRow, evaluation, says)
    for row in tables[MeasurementRow]:
        of = row["evaluation_id"], row["case_id"]
        if row["evaluation_id"] in shown and row["fault"] is None and of not in passed:
            yield Problem.of(MeasurementRow, row, "has a time of a case that its evaluation has no passed check of")


def _elsewhere(tables: _Tables, known: Store | None) -> Iterator[Problem]:
    """References that may lead to another database."""

    def ids(model: type[SQLModel]) -> set[Any]:
        here = {row["id"] for row in tables[model]}
        if known is None:
            return here
        with known.session() as session:
            return here | set(session.connection().execute(select(table_of(model).c.id)).scalars())

    versions, evaluations = ids(VersionRow), ids(EvaluationRow)
    for row in tables[LineageRow]:
        if row["parent_id"] not in versions:
            yield Problem(f"Version {row['version_id']} names the parent {row['parent_id']}, which is in none here.")
    for row in tables[EvaluationRow]:
        if row["recorded_from"] is not None and row["recorded_from"] not in evaluations:
            yield Problem.of(EvaluationRow, row, f"repeats evaluation {row['recorded_from']}, which is in none here")
