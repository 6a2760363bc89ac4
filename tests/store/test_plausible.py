"""Values of the right type, perhaps under the right hash, that no measurement gives."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlmodel import SQLModel

from msbench.archive.plausible import implausible
from msbench.archive.union import check_files
from msbench.store.identity import content_id, table_of
from msbench.store.samples import pack_samples
from msbench.store.store import Store
from msbench.store.tables import (
    TABLES,
    BuildRow,
    CaseRow,
    CeilingsRow,
    DeviceRow,
    EvaluationRow,
    MeasurementRow,
    ProfileRow,
    RunRow,
    StepRow,
    TrialRow,
)


def rows(store: Store, model: type[SQLModel]) -> list[dict[str, Any]]:
    with store.session() as session:
        return [dict(row) for row in session.connection().execute(select(table_of(model))).mappings()]


def test_what_was_measured_is_plausible(told: Store) -> None:
    assert [problem for model in TABLES for row in rows(told, model) for problem in implausible(model, row)] == []


@pytest.mark.parametrize(
    ("model", "column", "value", "said"),
    [
        (CeilingsRow, "copy_bytes_per_s", 5e-324, "copy_bytes_per_s that can't be: 5e-324"),
        (CeilingsRow, "fp32_flops", -1.0, "fp32_flops that can't be"),
        (CaseRow, "nbytes", 0, "nbytes that can't be"),
        (CaseRow, "flops", -1, "flops that can't be"),
        (DeviceRow, "l2_bytes", -1, "l2_bytes that can't be"),
        (MeasurementRow, "hot_ns", -3.0, "hot_ns that can't be"),
        (MeasurementRow, "sittings", 0, "sittings that can't be"),
        (StepRow, "speedup", 1e308, "speedup that can't be"),
        (RunRow, "spend", {"tokens": math.inf}, "spend that no JSON can hold"),
        (ProfileRow, "metrics", {"a": math.nan}, "metrics that no JSON can hold"),
        (TrialRow, "details", {"\ud800": 1}, "details that no JSON can hold"),
        (BuildRow, "kernels", [1, 2], "kernels that are not of objects"),
        (BuildRow, "sass", {"FFMA": [[]]}, "sass that are not of numbers"),
        (ProfileRow, "metrics", {"a": None}, "metrics that are not of numbers"),
        (CaseRow, "dims", {"N": "many"}, "dims that are not of sizes"),
        (CaseRow, "dims", {"N": 1e300}, "dims that are not of sizes"),
        (CaseRow, "scalars", {"a": "b"}, "scalars that are not of numbers"),
        (ProfileRow, "evidence", [{}], "evidence that are not of names"),
        (ProfileRow, "evidence", [["a", "b", "c"]], "evidence that are not of names"),
        (EvaluationRow, "started_at", "yesterday", "no instant in UTC: 'yesterday'"),
        (EvaluationRow, "started_at", "2026-11-22T10:00:00", "no instant in UTC"),
        (EvaluationRow, "started_at", "2026-11-22T10:00:00-12:00", "no instant in UTC"),
        (EvaluationRow, "started_at", "2026-W47-7T10:00:00+00:00", "no instant in UTC"),
    ],
)
def test_what_can_not_be_is_said(told: Store, model: type[SQLModel], column: str, value: Any, said: str) -> None:
    [problem] = implausible(model, rows(told, model)[0] | {column: value})
    assert said in problem


def forge(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[str]:
    """Change the measurements of a file, give them the ids of what they are now, and check it."""
    with Store(path) as store, store.writing() as session:
        table = table_of(MeasurementRow)
        for row in [dict(one) for one in session.connection().execute(select(table)).mappings()]:
            forged = row | change(row)
            forged["id"] = content_id(MeasurementRow, forged)
            session.connection().execute(table.update().where(table.c.id == row["id"]).values(**forged))
    return check_files([path])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sittings": 2**62}, "sessions of 20 rounds"),
        ({"samples": pack_samples([[5.0, 5.0, math.inf]] * 20), "median_ns": 5.0}, "samples that are no times"),
        ({"samples": pack_samples([[-5.0]] * 20), "median_ns": -5.0}, "median_ns that can't be: -5.0"),
    ],
)
def test_forged_times_are_found_under_the_right_hash(told_file: Path, change: dict[str, Any], said: str) -> None:
    problems = forge(told_file, lambda row: change | {"evaluation_id": row["evaluation_id"]})
    assert problems and all(said in problem for problem in problems)


def test_json_in_json_without_end_is_a_problem(told_file: Path) -> None:
    with Store(told_file) as store, store.writing() as session:
        session.connection().exec_driver_sql("UPDATE run SET settings = ?", ("[" * 100_000 + "]" * 100_000,))
    [problem] = check_files([told_file])
    assert "should hold JSON" in problem
