"""Ranges of values beyond their types: a foreign database may hold impossible measurements under correct hashes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import JSON
from sqlmodel import SQLModel

from msbench.store.identity import Values, table_of
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CeilingsRow,
    DeviceRow,
    MeasurementRow,
    MigrationRow,
    ProfileRow,
    RecordRow,
    StepRow,
)

_LEAST, _MOST = 1e-6, 1e30
"""Of amounts that axes are drawn of: wide enough for whatever can be measured."""

_AMOUNTS: dict[type[SQLModel], tuple[str, ...]] = {
    CeilingsRow: (
        "copy_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s", "l2_copy_bytes_per_s",
        "fp32_flops", "tf32_flops", "bf16_flops", "fp64_flops",
    ),
    CaseRow: ("nbytes",),
    MeasurementRow: ("median_ns", "hot_ns", "host_ns", "floor_ns", "sittings"),
    StepRow: ("speedup", "predicted_speedup"),
}  # fmt: skip
_COUNTS: dict[type[SQLModel], tuple[str, ...]] = {
    CaseRow: ("flops",),
    DeviceRow: ("multiprocessors", "memory_bytes", "l2_bytes"),
}


def implausible(model: type[SQLModel], row: Values) -> Iterator[str]:
    """Each column that holds no such value, as the end of a sentence; types are right already."""
    for name, is_json in _written(model):
        value = row[name]
        if value is None:
            continue
        if is_json and not _is_json(value):
            yield f"has a {name} that no JSON can hold: infinity, NaN or half a character"
        if not is_json and not _is_instant(value):
            yield f"has a {name} that is no instant in UTC: {str(value)[:40]!r}"
    for name in _AMOUNTS.get(model, ()):
        if row[name] is not None and not _LEAST < row[name] < _MOST:
            yield f"has a {name} that can't be: {row[name]}"
    for name in _COUNTS.get(model, ()):
        if row[name] < 0:
            yield f"has a {name} that can't be: {row[name]}"
    for name, (form, of) in _FORMS.get(model, {}).items():
        if row[name] is not None and not form(row[name]):
            yield f"has {name} that are not of {of}"


@cache
def _written(model: type[SQLModel]) -> list[tuple[str, bool]]:
    """The columns of JSON (True) and of instants: looked up once, as a database has many rows."""
    if model is MigrationRow:
        return []
    columns = [(column.name, isinstance(column.type, JSON)) for column in table_of(model).columns]
    return [(name, is_json) for name, is_json in columns if is_json or name.endswith("_at")]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _are_sizes(dims: dict[str, Any]) -> bool:
    return all(type(size) is int and 0 <= size < 2**63 for size in dims.values())


def _are_numbers(named: dict[str, Any]) -> bool:
    return all(map(_is_number, named.values()))


def _are_objects(values: list[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _is_evidence(values: list[Any]) -> bool:
    return all(isinstance(one, list) and list(map(_is_number, one)) == [False, True, True] for one in values)


_FORMS: dict[type[SQLModel], dict[str, tuple[Callable[[Any], bool], str]]] = {
    CaseRow: {"dims": (_are_sizes, "sizes"), "scalars": (_are_numbers, "numbers")},
    BuildRow: {"kernels": (_are_objects, "objects"), "sass": (_are_numbers, "numbers")},
    ProfileRow: {
        "metrics": (_are_numbers, "numbers"),
        "kernels": (_are_objects, "objects"),
        "evidence": (_is_evidence, "names, values and limits"),
    },
    RecordRow: {"nodes": (_are_objects, "objects")},
}
"""What the pages take for granted about JSON."""


def _is_json(value: Any) -> bool:
    """Whether a value can be written again: Python reads more than JSON may hold."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:  # of which what can't be encoded is one
        return False
    return True


def _is_instant(text: str) -> bool:
    """Whether instants of this form are in order as texts: that is how the newest is found."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return False
    return instant.utcoffset() == timedelta(0) and text.startswith(instant.isoformat(timespec="seconds")[:19])
