"""Merges databases by content: repeating a merge changes nothing, and the direction does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlmodel import SQLModel

from msbench.archive import integrity
from msbench.errors import IntegrityError
from msbench.model import digest
from msbench.store.identity import Values, content, table_of
from msbench.store.rows import put
from msbench.store.store import Store
from msbench.store.tables import TABLES, CallRow, LedgerRow, MessageRow, MigrationRow, RunRow, StepRow

_PARTS: tuple[type[SQLModel], ...] = (StepRow, CallRow, LedgerRow)
_BY_ROW = tuple(model for model in TABLES if model not in (MigrationRow, RunRow, *_PARTS))


def merge(target: Store, other: Store | str | Path, *, verify: bool = True) -> dict[str, int]:
    """Add to ``target`` everything in ``other`` that it lacks, in one transaction.

    A run that both have continued is taken from where it went further: steps, calls and all.

    Args:
        target: is written.
        other: is only read.
        verify: first check ``other`` by ``integrity.check``; what it refers to may be in ``target``.

    Returns:
        How many rows were stored, by table; tables without any are left out.

    Raises:
        IntegrityError: ``other`` contradicts itself; the message has the first problem.
        StoreError: one of them can't be read or written; ``target`` is unchanged then.
    """
    if not isinstance(other, Store):
        with Store.snapshot(other) as opened:
            return merge(target, opened, verify=verify)
    problems = integrity.check(other, target) if verify else []
    if problems:
        raise IntegrityError(
            f"Database {other.where} is not merged, because of {len(problems)} problem(s). The first: {problems[0]}"
        )
    counts: dict[str, int] = {}
    with other.session() as source, target.writing() as session:
        theirs, ours = source.connection(), session.connection()
        for model in _BY_ROW:
            rows = _all(theirs, model)
            counts[table_of(model).name] = put(ours, model, _predecessors_first(rows) if model is MessageRow else rows)
        counts.update(_merge_runs(ours, theirs))
    return {name: count for name, count in counts.items() if count}


def _all(connection: Connection, model: type[SQLModel]) -> list[Values]:
    return [dict(row) for row in connection.execute(select(table_of(model))).mappings()]


def _predecessors_first(messages: Iterable[Values]) -> list[Values]:
    """Messages in an order in which each follows the one that it names."""
    followers: dict[str | None, list[Values]] = {}
    for message in messages:
        followers.setdefault(message["previous_id"], []).append(message)
    ordered = list(followers.get(None, ()))
    for message in ordered:  # grows while it is walked
        ordered.extend(followers.get(message["id"], ()))
    return ordered


def _merge_runs(ours: Connection, theirs: Connection) -> dict[str, int]:
    run = table_of(RunRow)
    mine = _bundles(ours)
    stored: dict[type[SQLModel], int] = dict.fromkeys((RunRow, *_PARTS), 0)
    for run_id, bundle in _bundles(theirs).items():
        if run_id in mine and _progress(mine[run_id]) >= _progress(bundle):
            continue
        if run_id in mine:
            for model in _PARTS:
                ours.execute(delete(table_of(model)).where(table_of(model).c.run_id == run_id))
            ours.execute(update(run).where(run.c.id == run_id).values(**bundle[RunRow][0]))
        else:
            ours.execute(insert(run), bundle[RunRow])
        stored[RunRow] += 1
        for model in _PARTS:
            if bundle[model]:
                ours.execute(insert(table_of(model)), bundle[model])
            before = {row["id"] for row in mine[run_id][model]} if run_id in mine else set()
            stored[model] += sum(row["id"] not in before for row in bundle[model])
    return {table_of(model).name: count for model, count in stored.items()}


_Bundle = dict[type[SQLModel], list[dict[str, Any]]]


def _bundles(connection: Connection) -> dict[str, _Bundle]:
    """Every run with its steps and calls."""
    bundles: dict[str, _Bundle] = {}
    for row in _all(connection, RunRow):
        bundles[row["id"]] = {RunRow: [dict(row)], **{part: [] for part in _PARTS}}
    for model in _PARTS:
        for row in sorted(_all(connection, model), key=lambda row: int(row["number"])):
            bundles[row["run_id"]][model].append(dict(row))
    return bundles


def _progress(bundle: _Bundle) -> tuple[int, bool, int, str]:
    """How far a run has come; between equals its content decides, so that both ways of merging agree."""
    texts: Sequence[str] = [content(model, row, ()) for model, rows in bundle.items() for row in rows]
    return len(bundle[StepRow]), bundle[RunRow][0]["finished_at"] is not None, len(bundle[CallRow]), digest(*texts)
