"""Recovers the good rows of a database that was damaged or changed, and lists the rest."""

from __future__ import annotations

from sqlalchemy import JSON
from sqlmodel import SQLModel

from msbench.archive import integrity
from msbench.archive.merge import merge
from msbench.errors import StoreError
from msbench.store.identity import table_of
from msbench.store.store import Store
from msbench.store.tables import TABLES


def repair(damaged: Store, target: Store) -> list[str]:
    """Copy every good row of one database into another; returns one sentence per row left out, saying why.

    A row is left that contradicts itself or others, and then whatever refers to it.

    Args:
        damaged: a copy in memory (``Store.snapshot``): rows are deleted from it.
        target: is written as by ``merge``.

    Raises:
        IntegrityError: the good rows contradict what ``target`` holds.
        StoreError: something is wrong that is no row's fault, say a view in a table's place; ``target`` is unchanged.
    """
    left = _unreadable(damaged)
    while problems := integrity.check(damaged, alone=True):
        blamed = {problem.blamed: str(problem) for problem in problems if problem.blamed is not None}
        dangling = _dangling(damaged)
        if not blamed and not dangling:
            raise StoreError(f"Database {damaged.where} can't be repaired row by row. {problems[0]}")
        for (model, key), says in blamed.items():
            left.append(says)
            _delete(damaged, model, key)
        left += dangling
    merge(target, damaged)
    return left


def _unreadable(store: Store) -> list[str]:
    """Delete rows with a column of JSON that is none: no table that holds one can be read."""
    left = []
    with store.changing() as raw:
        for model in TABLES:
            table = table_of(model)
            for column in table.columns:
                if isinstance(column.type, JSON):
                    wrong = f'"{column.name}" IS NOT NULL AND NOT json_valid("{column.name}")'
                    query = f'DELETE FROM "{table.name}" WHERE {wrong} RETURNING id'
                    gone = raw.execute(query).fetchall()
                    left += [f"{table.name.capitalize()} {id} has a {column.name} that is no JSON." for (id,) in gone]
    return left


def _dangling(store: Store) -> list[str]:
    """Delete rows that name one which is not there."""
    left = []
    with store.changing() as raw:
        while broken := raw.execute("PRAGMA foreign_key_check").fetchall():
            for table, rowid, parent, _ in broken:
                query = f'DELETE FROM "{table}" WHERE rowid = ? RETURNING *'
                for row in raw.execute(query, (rowid,)).fetchall():
                    left.append(f"{table.capitalize()} {row[0]} goes with a row of table {parent} that was left.")
    return left


def _delete(store: Store, model: type[SQLModel], key: tuple[object, ...]) -> None:
    table = table_of(model)
    same = " AND ".join(f'"{column.name}" = ?' for column in table.primary_key.columns)
    with store.changing() as raw:
        raw.execute(f'DELETE FROM "{table.name}" WHERE {same}', key)
