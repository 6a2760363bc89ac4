"""Commands that start from one version: sweep, fork."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.main import get_command

from msbench import databases, operators, report
from msbench.cli._app import app
from msbench.cli._options import Cases, Db, Device, Exec, Ops, Seed, err, out, pick_executor, seeded
from msbench.cli.measure import read_kernel
from msbench.errors import MsbenchError
from msbench.model import Candidate, Origin
from msbench.spec import Operator, Precision, Task

_WHOLE = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command()
def sweep(
    what: Annotated[str, typer.Argument(metavar="FILE|VERSION", help="A .cu file, or a stored version's id.")],
    op: Annotated[str, typer.Option("--op", help="The operator the file computes.")] = "",
    precision: Annotated[Precision | None, typer.Option("--precision", help="The file's element type.")] = None,
    points: Annotated[int, typer.Option("--points", min=1, help="Measure at most this many points.")] = 64,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the winner's source to this file.", show_default=False)
    ] = None,
    cases: Cases = "all",
    executor: Exec = "auto",
    seed: Seed = None,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Tune the constants that a kernel declares (`// tune: TILE = 64 | 128 | 256`), by measuring.

    All points are recorded. The fastest must pass every check and win over all cases. Exit code 1 if none beats the source.

    Example: `msbench sweep my.cu --op softmax --precision bf16 --write tuned.cu`
    """
    from msbench.harness.evaluate import Plan
    from msbench.optimize.sweep import sweep as run

    store = databases.writer(db)
    operator, candidate = _candidate(what, op, precision, ops_dir, db)
    seed, command = seeded(seed)
    plan = Plan(operators.select_cases(operator, cases, seed), seed=seed)
    with pick_executor(executor, db, device, store) as chosen, report.Live(err) as live:
        swept = run(
            chosen, Task(operator, candidate.precision), candidate, plan, number=points, command=command, progress=live,
            store=lambda results: store.add_evaluations(operator, results),
        )  # fmt: skip
    report.swept(out, swept)
    report.repeat(out, command)
    if swept.winner is None:
        raise typer.Exit(1)
    if write is not None:
        write.write_text(swept.winner.source, "utf-8")
        out.print(f"wrote {escape(str(write))}")


def _candidate(
    what: str, op: str, precision: Precision | None, ops_dir: Path | None, db: str | None
) -> tuple[Operator, Candidate]:
    if Path(what).is_file():
        if not op or precision is None:
            raise MsbenchError(f"{what} is a file: give --op and --precision.")
        return operators.load(op, ops_dir), Candidate(
            op, precision, read_kernel(Path(what)), Origin.EXTERNAL, Path(what).name
        )
    candidate = databases.reader(db).candidate(what)
    return operators.load(candidate.operator, ops_dir), candidate


@app.command(context_settings=_WHOLE)
def fork(
    ctx: typer.Context,
    version: Annotated[str, typer.Argument(help="A stored version's id or a prefix of it.")],
    db: Db = None,
) -> None:
    """Start a run from any stored version, its first step. All options of `msbench optimize` apply.

    Example: `msbench fork 0487f8 --strategy cudamaster --rounds 3`
    """
    candidate = databases.reader(db).candidate(version)
    command: Any = get_command(app).commands["optimize"]  # type: ignore[attr-defined]
    given = [
        f"{candidate.operator}/{candidate.precision}",
        "--start",
        candidate.id,
        *(["--db", db] if db else []),
        *ctx.args,
    ]
    raise typer.Exit(command.main(given, standalone_mode=False) or 0)
