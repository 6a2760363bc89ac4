"""Commands that measure: eval, bench."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli._app import app
from msbench.cli._interruption import goes_on_with_resume
from msbench.cli._options import (
    Cases,
    Db,
    Device,
    Exec,
    Ops,
    Seed,
    Sittings,
    TimedSittings,
    added,
    amount,
    err,
    out,
    pick_executor,
    repeated,
    seeded,
    store_ceilings,
    tasks_named,
)
from msbench.cli._settings import FEW_TASKS, OF_FEW, OF_MORE, origins, settings
from msbench.errors import MsbenchError
from msbench.model import Candidate, Origin, Status
from msbench.spec import Case, Precision, Split, Task

if TYPE_CHECKING:
    from msbench.harness.batch.job import Job
    from msbench.store.store import Store

_LONGEST = 4 * 2**20  # bytes of a kernel's source
_SITTINGS, _SETTLE_S = 3, 15.0  # of one file, see ``Plan``
_UNLIMITED_S = 86_400.0


@app.command("eval")
def evaluate_file(
    file: Annotated[Path, typer.Argument(help="One .cu file with one launcher.")],
    op: Annotated[str, typer.Option("--op", help="The operator it computes.")],
    precision: Annotated[Precision, typer.Option("--precision", help="Its element type.")],
    executor: Exec = "auto",
    cases: Cases = "all",
    profile: Annotated[bool, typer.Option("--profile", help="Also profile the largest case.")] = False,
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize",
            help="Find reads and writes outside the arrays: by AddressSanitizer on the CPU, or with --executor cuda by compute-sanitizer.",
        ),
    ] = False,
    sittings: TimedSittings = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check ordinary inputs only, not the adversarial ones.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    seed: Seed = None,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Build, check and measure one kernel file, and record the result.

    It is timed against the naive kernel and the library baselines, on large cases with a second distribution of inputs, too. Exit
    code 0 only if everything passed.

    Example: `msbench eval my.cu --op rms_norm --precision fp32 --cases paper+odd`
    """
    from msbench.harness.evaluate import Checks, Plan, evaluate

    task = Task(operators.load(op, ops_dir), precision)
    source = read_kernel(file)
    candidate = Candidate(op, precision, source, Origin.EXTERNAL, label=file.name)
    known = {c.id: c for c in operators.versions(task)}
    candidate = known.get(candidate.id, candidate)
    seed, command = seeded(seed)
    plan = Plan(
        cases=operators.with_twins(task.operator, operators.select_cases(task.operator, cases, seed)),
        checks=Checks.QUICK if quick else Checks.FULL,
        profile=profile,
        seed=seed,
        sittings=sittings or _SITTINGS,
        settle_s=_UNLIMITED_S if sittings else _SETTLE_S,
        trusted=candidate.origin not in (Origin.NAIVE, Origin.LIBRARY),
    )
    store = databases.writer(db)
    with (
        pick_executor(executor, db, device, store, sanitize=sanitize) as chosen,
        report.Live(err, quiet=as_json) as live,
    ):
        rivals = [c for c in known.values() if c.origin in (Origin.NAIVE, Origin.LIBRARY)] if chosen.measures else []
        group = [candidate, *(c for c in rivals if c.id != candidate.id)]
        results = evaluate(chosen, task, group, plan, command=command, progress=live)
    store.add_evaluations(task.operator, results)
    results = [report.named_after(results[0], file.name), *results[1:]]
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(task.operator, results), indent=1) + "\n")
    else:
        report.evaluation(out, task.operator, results)
        report.repeat(out, repeated(command, db))
        out.print(f"recorded in {escape(store.where)}", soft_wrap=True)
    if results[0].status is not Status.PASSED:
        raise typer.Exit(1)


def read_kernel(file: Path) -> str:
    """A kernel's text, from a file or a pipe."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LONGEST + 1)
    except (OSError, ValueError) as error:
        raise MsbenchError(f"{file} can't be read: {getattr(error, 'strerror', None) or error}.") from error
    if len(raw) > _LONGEST:
        raise MsbenchError(f"{file} is not a kernel: it is larger than {_LONGEST // 2**20} MiB.")
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
            help="naive, library, best, or all; several joined by ','. The naive kernel is included unless excluded with --without.",
        ),
    ] = "all",
    without: Annotated[
        str,
        typer.Option("--without", help="Exclude these: naive, for example, if it takes a hundred times as long."),
    ] = "",
    cases: Cases = "all",
    executor: Exec = "auto",
    profile: Annotated[
        bool, typer.Option("--profile", help="Profile every version, on the largest paper case and the largest of all.")
    ] = False,
    profile_fastest: Annotated[
        bool, typer.Option("--profile-fastest", help="Profile only each task's fastest version.")
    ] = False,
    hot: Annotated[
        bool | None,
        typer.Option(
            "--hot/--no-hot",
            help="Time calls in a row, too: no ratio uses them, and they take a third of the time."
            f" Default: for up to {FEW_TASKS} tasks.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            callback=amount,
            help=f"Time budget per case, in seconds. Default: {OF_FEW['budget']}, for more than {FEW_TASKS} tasks {OF_MORE['budget']}.",
            show_default=False,
        ),
    ] = None,
    sittings: Sittings = 1,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            help="How many tasks to check at once. Default: as many as fit on the device, which is fastest overall;"
            " 1 gives each verdict soonest.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Check ordinary inputs only, not the adversarial ones.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Skip tasks already finished with the same settings on this device.",
        ),
    ] = False,
    profile_harness: Annotated[
        bool, typer.Option("--profile-harness", help="Show where msbench spends its own time, and record it.")
    ] = False,
    seed: Seed = None,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Measure the versions in kernels/ against each other, task by task, and record the results.

    Large cases are timed on a second distribution of inputs, too. Each task is stored as soon as it is finished; continue
    an interrupted bench with --resume. Exit code 1 if a version failed.

    Example: `msbench bench softmax rms_norm/fp32 --versions naive,library --cases paper`
    """
    from msbench.harness.batch.ahead import Divisible
    from msbench.harness.batch.coordinator import evaluate_all
    from msbench.harness.batch.job import Job
    from msbench.harness.batch.throughput import Passage, Throughput, trials
    from msbench.harness.digest import harness_digest
    from msbench.harness.evaluate import Checks, Plan
    from msbench.harness.protocols import Remembers
    from msbench.harness.spans import Spans, span

    wanted, any_seed = origins(versions, without), seed is None
    seed, command = seeded(seed, without="--resume")
    named = tasks_named(tasks, precision, ops_dir)
    many = len(named) > FEW_TASKS
    if budget is None:
        budget = (OF_MORE if many else OF_FEW)["budget"]
        command = added(command, "--budget", str(budget)) if many else command
    if hot is None:
        hot = (OF_MORE if many else OF_FEW)["hot"]
        command = added(command, "--no-hot") if many else command
    store = databases.writer(db)
    goes_on_with_resume(db)
    failed, lost = 0, []
    passages: list[Passage] = []
    with (
        pick_executor(executor, db, device, store, ceilings=False) as chosen,
        report.Live(err) as live,
        ExitStack() as last,
    ):
        jobs = [
            Job(
                task,
                tuple(c for c in operators.versions(task) if c.origin in wanted),
                Plan(
                    cases=operators.with_twins(
                        task.operator, selected := operators.select_cases(task.operator, cases, seed)
                    ),
                    checks=Checks.QUICK if quick else Checks.FULL,
                    profile=profile or profile_fastest,
                    profile_fastest=profile_fastest,
                    profile_cases=_to_profile(task, selected),
                    hot=hot,
                    seed=seed,
                    time_budget_s=budget,
                    sittings=sittings,
                    trusted=True,
                ),
                Spans() if profile_harness else None,
            )
            for task in named
        ]
        if not (jobs := [job for job in jobs if job.candidates]):
            raise MsbenchError("None of these tasks has a version to measure; see --versions and --without.")
        if resume:
            left = [job for job in jobs if not _is_done(store, chosen.device().id, job, command, any_seed)]
            out.print(f"{len(jobs) - len(left)} of {len(jobs)} tasks are done already.")
            jobs = left
        kind = chosen.device().kind
        if batch is None and len(jobs) > 1 and isinstance(chosen, Divisible):
            known = databases.seconds(db, kind)
            jobs = [replace(job, took_s=_took(job, known)) for job in jobs]
        stream = evaluate_all(chosen, jobs, command=command, progress=live, batch=batch)
        last.enter_context(closing(stream))  # an error below ends its threads before the executor
        try:
            for number, (job, results) in enumerate(stream, 1):
                if number == 1:  # they were measured while compilers were at work
                    store_ceilings(chosen, store)
                if isinstance(results, MsbenchError):
                    err.print(f"[red]{job.task.id}[/]: {escape(str(results))}", soft_wrap=True)
                    lost.append(job.task.id)
                    continue
                with job.spans.recording() if job.spans else nullcontext(), span("store"):
                    store.add_evaluations(job.task.operator, results)
                if job.spans:
                    passages.append(Passage.of(job))
                failed += sum(r.status not in (Status.PASSED, Status.UNSUPPORTED) for r in results)
                report.evaluation(out, job.task.operator, results)
                live.task(f"{number} of {len(jobs)} tasks done")
        finally:  # of an interrupted one, too, it tells where the time went
            if passages:
                report.throughput(out, Throughput(tuple(passages)))
        if passages:
            passed, now = Throughput(tuple(passages)), datetime.now(UTC).isoformat(timespec="milliseconds")
            worked = chosen.checked_on() if isinstance(chosen, Remembers) else chosen.device()
            store.add_device(worked)
            place = {"device_id": worked.id, "harness": harness_digest(), "command": command}
            store.add_trials(trials(passed, **place, created_at=now))
    report.repeat(out, repeated(command, db))
    if lost:
        err.print(
            f"No verdict on {', '.join(lost)}: see above. With --resume the same command tries again.", soft_wrap=True
        )
    if failed:
        err.print(f"{failed} version(s) did not pass; the tables above say why.")
    if lost or failed:
        raise typer.Exit(1)


def _to_profile(task: Task, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The largest paper case and the largest of all, as far as there are any: small cases are bound otherwise than large ones."""
    ordered = sorted(cases, key=lambda case: task.at(case).nbytes)
    paper = [case for case in ordered if case.split is Split.PAPER]
    return tuple(dict.fromkeys((*paper[-1:], *ordered[-1:])))


def _took(job: Job, known: Mapping[str, float]) -> float | None:
    """What a job's versions took together, by their ``known`` seconds; a version that was never evaluated counts like the others."""
    took = [known[c.id] for c in job.candidates if c.id in known]
    return sum(took) * len(job.candidates) / len(took) if took else None


def _is_done(store: Store, device_id: str, job: Job, command: str, any_seed: bool) -> bool:
    """Whether the database has an evaluation of every version, by these settings and this harness on this device.

    ``any_seed``: the command's seed was drawn, as another one was when it was begun.
    """
    from msbench.harness.digest import harness_digest

    wanted = device_id, harness_digest(job.task.operator), settings(command, any_seed)
    known = {version.id for version in store.versions(job.task.id)}
    return all(
        c.id in known
        and wanted in {(e.device_id, e.harness, settings(e.command, any_seed)) for e in store.evaluations(c.id)}
        for c in job.candidates
    )
