"""Commands that inspect: doctor, ops, show, new-op."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli._app import app
from msbench.cli._options import Db, Ops, out
from msbench.errors import MsbenchError


@app.command()
def doctor() -> None:
    """Show what this machine has, what is missing, what that limits, and how to get it.

    Exit code 1 if something required is missing.

    Example: `msbench doctor`
    """
    from msbench.doctor import examine

    findings = examine()
    report.doctor(out, findings)
    if any(f.needed and f.found is None for f in findings):
        raise typer.Exit(1)


@app.command()
def ops(ops_dir: Ops = None) -> None:
    """List the operators.

    Example: `msbench ops --ops-dir ~/ops`
    """
    report.operators(out, operators.load_all(ops_dir))


@app.command()
def show(
    op: Annotated[str, typer.Argument(help="An operator; see `msbench ops`.")],
    abi: Annotated[
        str | None,
        typer.Option(
            "--abi", help="Print only its prototypes in this calling convention of `msbench audit`.", show_default=False
        ),
    ] = None,
    ops_dir: Ops = None,
    db: Db = None,
) -> None:
    """Show one operator's contract: definition, C prototype, cases, bounds and known versions.

    Example: `msbench show rms_norm`
    """
    operator = operators.load(op, ops_dir)
    if abi is None:
        report.operator(out, operator, databases.reader(db))
        return
    from msbench.audit import abi as conventions

    prototypes = conventions.load(abi).prototypes(op)
    if not prototypes:
        raise MsbenchError(f"The calling convention {abi} has no function for {op}.")
    for prototype in prototypes:
        out.print(escape(prototype), soft_wrap=True)


@app.command("new-op")
def new_op(
    name: Annotated[str, typer.Argument(help="Its name: a C identifier.")],
    ops_dir: Annotated[
        Path, typer.Option("--ops-dir", help="The folder of your operators; created if missing.")
    ] = Path("ops"),
) -> None:
    """Create an operator that runs; then edit its spec.py and naive.cu.

    Example: `msbench new-op my_op --ops-dir ~/ops`
    """
    spec, naive = operators.scaffold(name, ops_dir)
    for path in (spec, naive):
        out.print(f"wrote {escape(str(path))}", soft_wrap=True)
    argv = ["msbench", "eval", str(naive), "--op", name, "--precision", "fp32", "--ops-dir", str(ops_dir)]
    out.print(f"try it:  {escape(shlex.join(argv))}", soft_wrap=True)
