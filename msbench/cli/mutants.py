"""The command that tests the check: mutants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli._app import app
from msbench.cli._files import see_that_writable, write
from msbench.cli._options import CASES_HELP, Db, Device, Exec, FixedSeed, Ops, command_line, err, out, tasks_named
from msbench.errors import MsbenchError
from msbench.model import Study, Trial
from msbench.spec import Case, Precision, Task

if TYPE_CHECKING:
    from msbench.study.mutation import Verdict


@app.command()
def mutants(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(help="Operators or tasks (rms_norm, softmax/bf16). Default: all that have mutants."),
    ] = None,
    precision: Annotated[Precision | None, typer.Option("--precision", help="Only this element type.")] = None,
    executor: Exec = "auto",
    cases: Annotated[
        str, typer.Option("--cases", help=f"{CASES_HELP} Each mutant names its inputs.")
    ] = "all+heldout+near",
    markdown: Annotated[
        Path | None, typer.Option("--markdown", help="Also write the table to this file.", show_default=False)
    ] = None,
    record: Annotated[
        bool,
        typer.Option(
            "--record", help="Record each task's verdicts once it is finished, for the site's page “How we know”."
        ),
    ] = False,
    seed: FixedSeed = 0,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Check deliberately wrong edits of the naive kernels: each must be rejected on every case where it is wrong.

    Nothing is timed. Exit code 1 if one passed or crashed.

    Example: `msbench mutants rms_norm softmax/bf16 --executor cpu --cases odd+heldout`
    """
    from msbench import executors
    from msbench.harness.protocols import Remembers
    from msbench.study.mutation import Survey, affordable
    from msbench.study.surveys import surveys

    wanted = [(task, operators.mutants(task.operator)) for task in tasks_named(tasks, precision, ops_dir)]
    lacking = sorted({task.operator.name for task, found in wanted if not found})
    if tasks and lacking:
        raise MsbenchError(f"{', '.join(lacking)}: no mutants.py next to spec.py.")
    if markdown:
        see_that_writable(markdown)
    by_task: dict[int, list[Verdict]] = {}
    with (
        databases.writer(db) if record else nullcontext() as store,
        executors.pick(executor, store=databases.reader(db), device=device) as chosen,
        report.Live(err) as live,
    ):
        checker = chosen.checked_on() if isinstance(chosen, Remembers) else chosen.device()
        where, began = checker.name, datetime.now(UTC).isoformat(timespec="seconds")
        if store:
            store.add_device(checker)
        every = []
        for task, wrong in wanted:
            public = affordable(chosen, task.operator, operators.select_cases(task.operator, cases, seed))
            plan = {mutant: mutant.wrong_on(public) for mutant in wrong}
            every.append(Survey(task, plan))
        for number, verdicts in surveys(chosen, every, seed, progress=live):
            by_task[number], (task, _) = verdicts, wanted[number]
            for verdict in verdicts:
                _print(task, verdict)
            if store:
                store.add_trials(_trials(task, verdicts, checker.id, began))
    found = [(wanted[number][0], verdict) for number in sorted(by_task) for verdict in by_task[number]]
    tried = [verdict for _, verdict in found if verdict.decided]
    good = sum(verdict.good for verdict in tried)
    out.print(
        f"{good} of {len(tried)} mutants rejected wherever they are wrong [dim]{escape(where)}[/]", soft_wrap=True
    )
    if lacking:
        err.print(f"no mutants: {', '.join(lacking)}", soft_wrap=True)
    if markdown:
        write(markdown, _table(found, where))
    if store:
        out.print(f"recorded in {escape(store.where)}", soft_wrap=True)
    if good < len(tried):
        raise typer.Exit(1)


def _row(task: Task, verdict: Verdict) -> tuple[str, ...]:
    ratio = "–" if verdict.narrowest is None else f"{verdict.narrowest:.3g}"
    counts = str(verdict.tried), str(len(verdict.rejected))
    return (task.operator.name, str(task.precision), verdict.mutant.name, *counts, ratio)


def _print(task: Task, verdict: Verdict) -> None:
    name, precision, mutant, tried, rejected, ratio = _row(task, verdict)
    mark = "[yellow]–[/]" if not verdict.decided else "[green]✓[/]" if verdict.good else "[red]✗[/]"
    closest = "" if verdict.narrowest is None else f", error ≥ {ratio} × bound"
    again = f", {verdict.crashes} tried again after a crash" if verdict.crashes else ""
    out.print(
        f"{mark} {name}/{precision} {escape(mutant)}: {rejected} of {tried} cases rejected{closest}{again}",
        soft_wrap=True,
    )
    if verdict.survived and verdict.mutant.everywhere:
        out.print(f"    [red]passed[/] {escape('; '.join(_names(verdict.survived)))}", soft_wrap=True)
    for failure in verdict.failures.values():
        out.print(f"    [red]{failure.fault}[/] {escape(failure.message)}", soft_wrap=True)


def _names(cases: Sequence[Case]) -> list[str]:
    return [case.id for case in cases]


def _trials(task: Task, verdicts: Sequence[Verdict], device_id: str, created_at: str) -> Iterator[Trial]:
    from msbench.harness.digest import harness_digest

    harness = harness_digest()
    for verdict in verdicts:
        if verdict.decided:
            passed = "; ".join([*_names(verdict.survived), *verdict.failures])
            yield Trial(
                study=Study.MUTANTS,
                subject=f"{task.id}: {verdict.mutant.name}",
                expected=f"rejected on {'every' if verdict.mutant.everywhere else 'at least one'} case where it is wrong",
                outcome=f"rejected on {len(verdict.rejected)} of {verdict.tried} cases",
                held=verdict.good,
                details={
                    "mutant": verdict.mutant.name,
                    "task": task.id,
                    "cases": verdict.tried,
                    "rejected": len(verdict.rejected),
                    "narrowest": verdict.narrowest,
                    "crashes": verdict.crashes,
                    "message": f"Not rejected: {passed}" if passed else "",
                },
                device_id=device_id,
                harness=harness,
                command=command_line(),
                created_at=created_at,
            )


def _rows(found: Sequence[tuple[Task, Verdict]]) -> Iterator[tuple[str, ...]]:
    """One for each operator's mutant, with two cells a precision."""
    cells: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for task, verdict in found:
        operator, precision, mutant, tried, rejected, ratio = _row(task, verdict)
        cells.setdefault((operator, mutant), {})[precision] = f"{rejected} of {tried}", ratio
    for names, by_precision in cells.items():
        yield *names, *(cell for one in Precision for cell in by_precision.get(one, ("", "")))


def _table(found: Sequence[tuple[Task, Verdict]], where: str) -> str:
    """The table for docs/mutants.md."""
    lines = [
        "# Wrong kernels that the check rejects",
        "",
        "Each operator's `mutants.py` holds small edits of its naive kernel that make it wrong. Each is checked like any version, "
        "with inputs that expose it (mostly uniform), and must be rejected on every case where it is wrong; one that "
        "inspects samples of its input first, on at least one of four or more. For each precision: on how many of these cases it was rejected, and the "
        "smallest ratio over them of the largest error to the operator's bound, of which 1 is the limit. There is none of outputs that were "
        "not written or that have to be exact.",
        "",
        f"Made by `{command_line()}` on {where}, {datetime.now(UTC):%Y-%m-%d}.",
        "",
        f"| operator | mutant | {' | '.join(f'{one} | error / bound' for one in Precision)} |",
        f"|---|---|{'---:|---:|' * len(Precision)}",
        *(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |" for cells in _rows(found)),
    ]
    return "\n".join(lines) + "\n"
