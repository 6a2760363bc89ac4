"""Commands that measure: eval, bench."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli._app import app
from msbench.cli._options import (
    Cases,
    Db,
    Device,
    Exec,
    Ops,
    Seed,
    Sittings,
    amount,
    command_line,
    err,
    out,
    pick_executor,
    tasks_named,
)
from msbench.errors import MsbenchError
from msbench.model import Candidate, Origin, Status
from msbench.spec import Precision
from msbench.store.store import Store

if TYPE_CHECKING:
    from msbench.harness.batch import Job

_LONGEST = 4 * 2**20  # bytes of a kernel's source


@app.command("eval")
def evaluate_file(
    file: Annotated[Path, typer.Argument(help="One .cu file with one launcher.")],
    op: Annotated[str, typer.Option("--op", help="The operator that it computes.")],
    precision: Annotated[Precision, typer.Option("--precision", help="Its element type.")],
    executor: Exec = "auto",
    cases: Cases = "all",
    profile: Annotated[bool, typer.Option("--profile", help="Profile the largest case too.")] = False,
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="With the cpu executor: run under AddressSanitizer.")
    ] = False,
    sittings: Sittings = 4,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check ordinary inputs only, not the adversarial ones.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    seed: Seed = 0,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Build, check and measure one kernel file, and record the result.

    It is timed against the naive kernel and the library baselines. Exit code 0 only if everything passed.

    Example: `msbench eval my.cu --op rms_norm --precision fp32 --cases paper+odd`
    """
    from msbench.harness.evaluate import Checks, Plan, evaluate

    operator = operators.load(op, ops_dir)
    source = _read(file)
    candidate = Candidate(op, precision, source, Origin.EXTERNAL, label=file.name)
    known = {c.id: c for c in operators.versions(operator, precision)}
    candidate = known.get(candidate.id, candidate)
    plan = Plan(
        cases=operators.select_cases(operator, cases, seed),
        checks=Checks.QUICK if quick else Checks.FULL,
        profile=profile,
        seed=seed,
        sittings=sittings,
    )
    store = databases.writer(db)
    with (
        pick_executor(executor, db, device, store, sanitize=sanitize) as chosen,
        report.Live(err, quiet=as_json) as live,
    ):
        rivals = [c for c in known.values() if c.origin in (Origin.NAIVE, Origin.LIBRARY)] if chosen.measures else []
        group = [candidate, *(c for c in rivals if c.id != candidate.id)]
        results = evaluate(chosen, operator, precision, group, plan, command=command_line(), progress=live)
    store.add_evaluations(operator, results)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(operator, results), indent=1) + "\n")
    else:
        report.evaluation(out, operator, results)
    if results[0].status is not Status.PASSED:
        raise typer.Exit(1)


def _read(file: Path) -> str:
    """A kernel's text, from a file or a pipe."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        raise MsbenchError(f"{file} can't be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(raw) > _LONGEST:
        raise MsbenchError(f"{file} is no kernel: it has more than {_LONGEST // 2**20} MiB.")
    return raw.decode("utf-8", errors="replace")


@app.command()
def bench(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Operators or tasks (rms_norm, softmax/bf16); all of them by default.")
    ] = None,
    precision: Annotated[Precision | None, typer.Option("--precision", help="Only this element type.")] = None,
    versions: Annotated[
        str,
        typer.Option(
            "--versions",
            help="naive, library, best, or all; several joined by ','. The naive kernel always takes part.",
        ),
    ] = "all",
    cases: Cases = "all",
    executor: Exec = "auto",
    profile: Annotated[bool, typer.Option("--profile", help="Profile the largest case of every version.")] = False,
    budget: Annotated[
        float, typer.Option("--budget", callback=amount, help="Seconds of measuring a case may take.")
    ] = 0.5,
    sittings: Sittings = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check ordinary inputs only, not the adversarial ones.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out the tasks that the same command has finished on this device.")
    ] = False,
    seed: Seed = 0,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Measure what is in kernels/ against each other, task by task, and record it.

    Each task is stored as soon as it is finished: an interrupted bench goes on with --resume. Exit code 1 if a version
    failed.

    Example: `msbench bench softmax rms_norm/fp32 --versions naive,library --cases paper`
    """
    from msbench.harness.batch import Job, evaluate_all
    from msbench.harness.evaluate import Checks, Plan

    wanted, command = _origins(versions), command_line(without="--resume")
    store = databases.writer(db)
    failed = 0
    with pick_executor(executor, db, device, store) as chosen, report.Live(err) as live:
        jobs = [
            Job(
                task.operator,
                task.precision,
                tuple(c for c in operators.versions(task.operator, task.precision) if c.origin in wanted),
                Plan(
                    cases=operators.select_cases(task.operator, cases, seed),
                    checks=Checks.QUICK if quick else Checks.FULL,
                    profile=profile,
                    seed=seed,
                    time_budget_s=budget,
                    sittings=sittings,
                ),
            )
            for task in tasks_named(tasks, precision, ops_dir)
        ]
        if resume:
            left = [job for job in jobs if not _is_done(store, chosen.device().id, job, command)]
            out.print(f"{len(jobs) - len(left)} of {len(jobs)} tasks are done already.")
            jobs = left
        for number, (job, results) in enumerate(evaluate_all(chosen, jobs, command=command, progress=live), 1):
            if isinstance(results, MsbenchError):
                err.print(f"[red]{job.task}[/]: {escape(str(results))}", soft_wrap=True)
                failed += len(job.candidates)
                continue
            store.add_evaluations(job.operator, results)
            failed += sum(r.status not in (Status.PASSED, Status.UNSUPPORTED) for r in results)
            report.evaluation(out, job.operator, results)
            live.task(f"{number} of {len(jobs)} tasks done")
    if failed:
        err.print(f"{failed} version(s) did not pass; the tables above say why.")
        raise typer.Exit(1)


def _is_done(store: Store, device_id: str, job: Job, command: str) -> bool:
    """Whether the database has an evaluation of every version, by this command and harness on this device."""
    from msbench.harness.evaluate import harness_digest

    wanted = device_id, harness_digest(), command
    known = {version.id for version in store.versions(job.task)}
    return all(
        c.id in known and wanted in {(e.device_id, e.harness, e.command) for e in store.evaluations(c.id)}
        for c in job.candidates
    )


def _origins(text: str) -> tuple[Origin, ...]:
    words = {"naive": Origin.NAIVE, "library": Origin.LIBRARY, "best": Origin.EXPERT}
    chosen = list(words) if text == "all" else [w.strip() for w in text.split(",") if w.strip()]
    for word in chosen:
        if word not in words:
            raise MsbenchError(f"--versions {word!r}: choose from {', '.join(words)} and all.")
    return tuple({Origin.NAIVE: None} | {words[w]: None for w in chosen})
