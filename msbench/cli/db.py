"""Commands on databases: db merge, db publish, db check, db repair, db compare, db counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from msbench import databases
from msbench.cli._app import db_app
from msbench.cli._options import Db, Ops, amount, err, out


@db_app.command()
def merge(
    other: Annotated[
        str,
        typer.Argument(help="A database from another machine, a file or an SQLAlchemy URL; it is only read."),
    ],
    db: Db = None,
) -> None:
    """Add what another machine measured. Merging twice is the same as merging once.

    Example: `msbench db merge from_the_gpu_machine.sqlite`
    """
    from msbench.archive.merge import merge as merge_into
    from msbench.store.engine import shown

    with databases.writer(db) as target:
        counts = merge_into(target, other)
        target.compact()
        where = target.where
    added = ", ".join(f"{count} {table}" for table, count in counts.items()) or "nothing new"
    out.print(escape(f"{shown(other)} → {where}: {added}"), soft_wrap=True)


@db_app.command()
def publish(
    others: Annotated[
        list[str] | None,
        typer.Argument(
            help="Databases whose results to add, files or SQLAlchemy URLs; they are only read.", show_default=False
        ),
    ] = None,
    target: Annotated[
        Path, typer.Option("--db", help="The published database; created if missing.")
    ] = databases.PUBLISHED,
) -> None:
    """Write the database to commit: small, without results that newer ones supersede.

    It keeps each version's newest complete session per device, each trial's newest recording, whatever a run's story
    refers to, and raw samples. A new run's best version must have passed hidden cases that the run never used.
    The site built from it stays the same. Other commands only read a published database.

    Example: `msbench db publish db/local.sqlite from_the_gpu_machine.sqlite`
    """
    from msbench.archive.publish import publish as publish_into

    done = publish_into(target, others or [], proved=True)
    for verb, counts in (("added", done.added), ("dropped as superseded", done.dropped)):
        listed = ", ".join(f"{count} {table}" for table, count in counts.items()) or "nothing"
        out.print(escape(f"{verb}: {listed}"), soft_wrap=True)
    for sentence in done.lost:
        err.print(escape(f"{sentence}."), soft_wrap=True)
    was = f", it was {done.before / 2**20:.1f} MiB" if done.before else ""
    out.print(escape(f"{target}: {done.after / 2**20:.1f} MiB{was}"), soft_wrap=True)


@db_app.command()
def check(db: Db = None) -> None:
    """Verify every hash and reference. Exit code 1 if something is wrong.

    Databases that are read together may refer to each other: a version's parent may be in another file.

    Example: `msbench db check --db db/published.sqlite`
    """
    from msbench.archive.union import Unopened, check_files
    from msbench.store.engine import shown

    where = databases.paths(db)
    problems = check_files(where)
    for problem in problems:
        # One line each, whatever a damaged text holds: what is not printable would also reach the terminal as a command.
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in problem)
        out.print(f"[red]✗[/] {escape(line)}", soft_wrap=True)
    damages = sum(not isinstance(problem, Unopened) for problem in problems)
    if damages:
        err.print(
            f"{damages} problem(s): restore the database from a copy, or recover its good rows with msbench db repair.",
            soft_wrap=True,
        )
    if problems:
        raise typer.Exit(1)
    for path in where:
        out.print(f"[green]✓[/] {escape(shown(path))}: every hash and reference is right", soft_wrap=True)


@db_app.command()
def repair(
    damaged: Annotated[
        str, typer.Argument(help="A database in which `msbench db check` finds problems; it is only read.")
    ],
    db: Annotated[str, typer.Option("--db", help="Where the good rows go: a new database, or a sound one.")],
) -> None:
    """Copy every good row of a damaged database, and list the rest. Exit code 1 if any are left.

    Example: `msbench db repair db/local.sqlite --db db/repaired.sqlite`
    """
    from msbench.archive.repair import repair as take_good_rows
    from msbench.archive.union import union
    from msbench.store.engine import shown

    with union([damaged]) as read, databases.writer(db) as target:
        left = take_good_rows(read, target)
        where = target.where
    for says in left:
        line = "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in says)
        out.print(f"[red]✗[/] {escape(line)}", soft_wrap=True)
    out.print(
        escape(f"{shown(damaged)} → {where}: {f'all but {len(left)} rows' if left else 'every row'}"), soft_wrap=True
    )
    if left:
        raise typer.Exit(1)


@db_app.command()
def compare(
    before: Annotated[
        str, typer.Argument(help="A database with the earlier times, a file or an SQLAlchemy URL; it is only read.")
    ],
    factor: Annotated[float, typer.Option("--factor", min=1.0, help="List changes by at least this factor.")] = 1.1,
    db: Db = None,
) -> None:
    """Compare the times of two recordings on the same kind of device, version by version and case by case.

    Lists what became slower, then what became faster. Exit code 1 if a vendor library became slower: most
    often it was just measured badly, which makes everything compared with it look too good.

    Example: `msbench db compare db/published.sqlite --db db/local.sqlite`
    """
    from statistics import median

    from msbench.figures.compared import compared
    from msbench.report import nanoseconds

    refusal = "No times are compared with those of"
    with databases.sound(before, refusal) as old, databases.sound(db, refusal) as new:
        found = compared(old, new)
    if not found:
        out.print("The two have no version in common that was timed on the same case and kind of device.")
        return
    slower = sorted((one for one in found if one.ratio > factor), key=lambda one: -one.ratio)
    faster = sorted((one for one in found if one.ratio < 1 / factor), key=lambda one: one.ratio)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("task", "version", "case", "before", "now", "ratio", ""):
        table.add_column(heading, justify="right" if heading in ("before", "now", "ratio") else "left")
    for one in (*slower, *faster):
        colour = "red" if one.ratio > 1 else "green"
        table.add_row(
            escape(one.task_id), escape(one.version), escape(one.case_name), nanoseconds(one.before_ns), nanoseconds(one.after_ns),
            f"[{colour}]{one.ratio:.2f}[/]", "" if one.same_source else "its file has changed",
        )  # fmt: skip
    if slower or faster:
        out.print(table)
    middle = median(one.ratio for one in found)
    out.print(
        f"{len(found)} times compared, median ratio {middle:.3f}; {len(slower)} slower, {len(faster)} faster "
        f"by more than {factor:g}."
    )
    if libraries := sum(one.library for one in slower):
        err.print(
            f"{libraries} times of vendor libraries are slower than before: check that they were measured as well as then."
        )
        raise typer.Exit(1)


@db_app.command()
def counts(
    tolerance: Annotated[
        float, typer.Option("--tolerance", callback=amount, help="The largest relative difference allowed.")
    ] = 0.05,
    ops_dir: Ops = None,
    db: Db = None,
) -> None:
    """Compare the bytes and FLOPs of the specs with what Nsight Compute counted on the large cases.

    Uses each task's version that moved the fewest bytes. Exit code 1 if a spec is off by more than the tolerance
    and does not say why (`bytes_note`, `flops_note`). Profiles come from `msbench bench --profile`.

    Example: `msbench db counts --db db/published.sqlite`
    """
    from msbench import operators
    from msbench.figures.counted import counted

    with databases.sound(db, "No counts are compared from") as store:
        found = counted(store)
    if not found:
        out.print(
            "No counters of a large case are recorded: `msbench bench --cases large --profile` on a GPU records them."
        )
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("task", "version", "bytes", "moved", "ratio", "FLOPs", "counted", "ratio"):
        is_name = heading in ("task", "version")  # one that is folded can still be read, a number that is cut can't
        table.add_column(heading, justify="left" if is_name else "right", no_wrap=not is_name, overflow="fold")
    notes: dict[str, str] = {}
    unexplained = 0
    for one in found:
        bytes_agree, flops_agree = one.bytes_agree(tolerance), one.flops_agree(tolerance)
        colour = {True: "green", False: "red"}
        flops = ratio = "–"
        if one.flops is not None:
            flops = f"{one.flops:.3g}"
            ratio = f"{one.flops / one.spec_flops:.3f}" if one.spec_flops else ratio
        table.add_row(
            escape(one.task_id), escape(one.version), f"{one.spec_bytes:.3g}", f"{one.least_bytes:.3g}",
            f"[{colour[bytes_agree]}]{one.bytes_ratio:.3f}[/]", f"{one.spec_flops:.3g}", flops,
            f"[{colour[flops_agree]}]{ratio}[/]",
        )  # fmt: skip
        name, _, _ = one.task_id.partition("/")
        for what, agree in (("bytes", bytes_agree), ("FLOPs", flops_agree)):
            if agree:
                continue
            known = operators.load(name, ops_dir) if name in operators.names(ops_dir) else None
            note = getattr(known, f"{what.lower()}_note", "")
            notes[f"{escape(name)}, {what}"] = escape(note) or "[red]not explained in its spec.[/]"
            unexplained += not note
    out.print(table)
    if notes:
        out.print(f"\nFurther apart than {tolerance:.0%}:")
        for name, note in notes.items():
            out.print(f"  [bold]{name}[/]: {note}")
    if unexplained:
        err.print(
            f"{unexplained} counts of {len(found)} tasks are further apart than {tolerance:.0%} without an explanation."
        )
        raise typer.Exit(1)
