"""Computes rows' ids. Rows with the same content have the same id, on any machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Float, Integer, LargeBinary, Table
from sqlmodel import SQLModel

from msbench.model import digest
from msbench.store import samples
from msbench.store.tables import (
    CaseRow,
    CeilingsRow,
    CheckRow,
    EvaluationRow,
    MeasurementRow,
    MessageRow,
    NotesRow,
    ProfileRow,
    RecordRow,
    TrialRow,
)

Values = Mapping[str, Any]


def table_of(model: type[SQLModel]) -> Table:
    """The SQLAlchemy table of a row class."""
    table = vars(model)["__table__"]
    assert isinstance(table, Table)
    return table


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks: equal values give equal text."""
    return _CANONICAL.encode(value)


def content(
    model: type[SQLModel],
    values: Values,
    without: tuple[str, ...] = ("id",),
    counts: Callable[[bytes], bytes] = samples.plain,
) -> str:
    """The canonical text of a row. Numbers get their column's type first: a float column gives 3 back as 3.0.

    ``counts``: what of samples does.
    """
    plain: dict[str, Any] = {}
    for name, typed in _typed(model, without, counts):
        value = values[name]
        plain[name] = value if value is None or typed is None else typed(value)
    return canonical(plain)


@cache
def _typed(
    model: type[SQLModel], without: tuple[str, ...], counts: Callable[[bytes], bytes]
) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """A table's columns, and what gives their values their type: looked up once, as a database has many rows."""

    def fingerprint(value: Any) -> str:
        return digest(counts(bytes(value)))

    def of(kind: object) -> Callable[[Any], Any] | None:
        types = ((Float, float), (Boolean, bool), (Integer, int), (LargeBinary, fingerprint))
        return next((typed for one, typed in types if isinstance(kind, one)), None)

    return [(column.name, of(column.type)) for column in table_of(model).columns if column.name not in without]


def content_id(model: type[SQLModel], values: Values) -> str:
    """The id of a row that is nothing but its content: all columns except ``id``."""
    return digest(table_of(model).name, content(model, values))


def renamed(values: Values) -> str:
    """The id of a measurement that may have one from when the compression of its samples counted; that of a changed row stays wrong."""
    before = digest(table_of(MeasurementRow).name, content(MeasurementRow, values, counts=bytes))
    return content_id(MeasurementRow, values) if before == values["id"] else str(values["id"])


def is_itself(row: SQLModel) -> bool:
    """Whether a row that is nothing but its content still has the id of it."""
    values = {column.name: getattr(row, column.name) for column in table_of(type(row)).columns}
    try:
        return content_id(type(row), values) == str(values["id"])
    except (ValueError, TypeError):  # a text in a number's place has no content
        return False


CONTENT_ADDRESSED: tuple[type[SQLModel], ...] = (
    CeilingsRow,
    CaseRow,
    EvaluationRow,
    CheckRow,
    MeasurementRow,
    ProfileRow,
    RecordRow,
    MessageRow,
    NotesRow,
    TrialRow,
)


def device_id(values: Values) -> str:
    """``Device.id`` from a row of the device table."""
    return digest(*(values[name] for name in ("kind", "name", "arch", "driver", "runtime")))


def version_id(operator: str, precision: str, source: str) -> str:
    """``Candidate.id`` from the columns of a version and its task."""
    return digest(operator, precision, source)


def step_id(run_id: str, number: int) -> str:
    """The id of a run's step."""
    return digest("step", run_id, str(number))


def call_id(run_id: str, number: int) -> str:
    """The id of a run's call of a provider."""
    return digest("call", run_id, str(number))


def ledger_id(run_id: str, number: int) -> str:
    """The id of a row of a run's ledger."""
    return digest("ledger", run_id, str(number))
