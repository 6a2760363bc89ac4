"""Commands on databases: db merge, db check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from msbench import databases
from msbench.cli._app import db_app
from msbench.cli._options import Db, err, out
from msbench.store.engine import shown


@db_app.command()
def merge(
    other: Annotated[Path, typer.Argument(help="A database that another machine filled; it is only read.")],
    db: Db = None,
) -> None:
    """Put into the database what another machine measured. Merging twice is the same as once.

    Example: `msbench db merge from_the_gpu_machine.sqlite --db db/published.sqlite`
    """
    from msbench.store.merge import merge as merge_into

    with databases.writer(db) as target:
        counts = merge_into(target, other)
        target.compact()
        where = target.where
    added = ", ".join(f"{count} {table}" for table, count in counts.items()) or "nothing new"
    out.print(escape(f"{other} → {where}: {added}"), soft_wrap=True)


@db_app.command()
def check(db: Db = None) -> None:
    """Verify every hash and reference. Exit code 1 if something is wrong.

    Databases that are read together may refer to each other: a version's parent may be in another file.

    Example: `msbench db check --db db/published.sqlite`
    """
    from msbench.store.integrity import check_files

    where = databases.paths(db)
    problems = check_files(where)
    for problem in problems:
        out.print(f"[red]✗[/] {escape(problem)}", soft_wrap=True)
    if problems:
        err.print(
            f"{len(problems)} problem(s): restore the database from a copy, or merge the good rows into a new one.",
            soft_wrap=True,
        )
        raise typer.Exit(1)
    for path in where:
        out.print(f"[green]✓[/] {escape(shown(path))}: every hash and reference is right", soft_wrap=True)
