"""The command that lets agents search: optimize."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli import _searches
from msbench.cli._app import app
from msbench.cli._options import (
    CASES_HELP,
    SEEDS,
    Db,
    Device,
    Exec,
    Ops,
    Sittings,
    amount,
    command_line,
    draw_seed,
    err,
    out,
    pick_executor,
    tasks_named,
)
from msbench.errors import MsbenchError, ProviderUnavailable
from msbench.model import DEFAULT_STRATEGY, ProfileView
from msbench.spec import Precision, Task

if TYPE_CHECKING:
    from msbench.optimize import Settings
    from msbench.providers import Provider
    from msbench.store.store import Store
    from msbench.store.tables import RunRow


PROMPTS = Path("prompts")
_ALONE = " With --db only that database is read, not the shipped one, which has recordings."


@app.command()
def optimize(
    tasks: Annotated[list[str] | None, typer.Argument(help="Operators or tasks (rms_norm, softmax/bf16).")] = None,
    precision: Annotated[Precision | None, typer.Option("--precision", help="Only this element type.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            help="Search strategy; see docs/strategies.md. Default: cudamaster, or the recording's in a replay.",
            show_default=False,
        ),
    ] = None,
    provider: Annotated[
        str,
        typer.Option(
            "--provider", help="auto (openai with a key or an endpoint, else replay), openai, manual or replay."
        ),
    ] = "auto",
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Model name at the endpoint, or planner=A,coder=B. Default: MSBENCH_MODEL, else the endpoint's default.",
            show_default=False,
        ),
    ] = "",
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=0,
            help="Proposals to try, not counting repairs. Default: 5, or the recording's in a replay.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Optimize every task.")] = False,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Continue all unfinished runs; with tasks named, only theirs, and start one for each task without a run.",
        ),
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many tasks to run at once.")] = 8,
    start: Annotated[
        str | None,
        typer.Option("--start", help="Start from this version (its id), which is measured first.", show_default=False),
    ] = None,
    profile_view: Annotated[
        ProfileView,
        typer.Option(
            "--profile-view",
            help="What agents see of profiles: only what bears on the bottleneck, everything, or nothing.",
        ),
    ] = ProfileView.FILTERED,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Continue this run (its id or a prefix of it).", show_default=False),
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option("--cases", help=f"{CASES_HELP} Default: all, or the recording's in a replay.", show_default=False),
    ] = None,
    executor: Exec = "auto",
    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="IN,OUT",
            help="With --provider openai: dollars per million prompt tokens and per million completion tokens.",
            show_default=False,
        ),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            callback=amount,
            help="With --provider openai: seconds to wait in total, per call, for an overloaded endpoint.",
        ),
    ] = 120.0,
    answer_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Longest answer to ask for, in tokens. Default: the model's own.", show_default=False),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="With --provider openai: passed on with each request, e.g. temperature=0.7 or reasoning_effort=high.",
            show_default=False,
        ),
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(callback=amount, help="Maximum dollars to spend; needs --price.", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Maximum tokens to spend.", show_default=False)] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Maximum model calls.", show_default=False)] = None,
    max_evaluations: Annotated[int | None, typer.Option(min=0, help="Maximum evaluations.", show_default=False)] = None,
    max_gpu_seconds: Annotated[
        float | None, typer.Option(callback=amount, help="Maximum GPU time, in seconds.", show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(callback=amount, help="Maximum wall time, in seconds.", show_default=False)
    ] = None,
    prompts: Annotated[
        Path, typer.Option("--prompts", help="With --provider manual: the folder for prompts and answers.")
    ] = PROMPTS,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="With --provider manual: wait for answers, or evaluate those already there in one batch, "
            "write the next prompts and exit with code 3; continue with --resume or --unfinished.",
        ),
    ] = True,
    recording: Annotated[
        str,
        typer.Option(
            "--recording",
            help="With --provider replay: the run to replay. Default: the task's newest, of the default strategy if there is one.",
            show_default=False,
        ),
    ] = "",
    budget: Annotated[float, typer.Option("--budget", callback=amount, help="Time budget per case, in seconds.")] = 2.0,
    sittings: Sittings = 4,
    write_best: Annotated[
        Path | None,
        typer.Option("--write-best", help="Also write each best version to FOLDER/OPERATOR/best/.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=SEEDS,
            help="Seed for inputs, hidden cases and the search. Default: random, and recorded with the command, or the "
            "recording's in a replay. A resumed run keeps its own.",
            show_default=False,
        ),
    ] = None,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Let agents make kernels faster: profile, plan, code, check, measure, keep the best.

    Everything is stored as it happens; continue an interrupted run with --resume.

    Several tasks run at once: the GPU measures one while models work on others. If one fails, the others continue.

    With prompt files, run repeatedly: `msbench optimize --all --unfinished --provider manual --no-wait`

    Example: `msbench optimize softmax/bf16 --rounds 6 --price 1.25,10 --max-usd 2`
    """
    if not tasks and resume is None and not every and not unfinished:
        raise MsbenchError(
            "Name an operator or a task to optimize, such as `msbench optimize softmax/bf16`, --all, or a run to --resume."
        )
    from msbench import agents, providers
    from msbench.optimize import Budget
    from msbench.store.engine import shown

    if strategy:
        agents.pick(strategy)
    prices, passed_on = _prices(price), _passed_on(option or [])
    store, readers = databases.writer(db), databases.reader(db)
    watch = _searches.Watch(
        wait, option, patience=None if patience == 120.0 else patience, prompts=None if prompts == PROMPTS else prompts,
        price=price, write_best=write_best, ops_dir=ops_dir, device=device, db=shown(db) if db else None,
    )  # fmt: skip
    limits = Budget(max_usd, max_tokens, max_calls, max_evaluations, max_gpu_seconds, max_seconds)
    drawn = draw_seed()
    replayed: dict[str | None, str] = {}  # the first task recorded on each device

    def answering(name: str, of: str, recorded: str) -> Provider:
        answers = providers.pick(
            name, model=of, price=prices, folder=prompts, wait=wait, store=readers, run=recorded, patience_s=patience,
            options=passed_on,
        )  # fmt: skip
        if model and answers.name == "replay":
            raise MsbenchError(
                f"--model {model}: a replay repeats recorded answers and asks no model. Leave it out, or set "
                "OPENAI_API_KEY (or OPENAI_BASE_URL) to ask that model."
            )
        return answers

    def going_on(row: RunRow) -> _searches.Search:
        answers = answering(row.provider, model or row.model, recording or row.replay_of or "")
        return _searches.Search(_searches.task_of(row, ops_dir), answers, row.strategy, None, row.id, command_line())

    def beginning(task: Task) -> _searches.Search:
        nonlocal executor, device
        answers = answering(provider, model, recording)
        try:
            settings = _settings(
                task, answers, cases, rounds, seed, drawn, budget, sittings, answer_tokens, profile_view, readers
            )
            recorded = answers.recording(task.id)
            settings = replace(settings, start=_of(task, readers, start) if start else settings.start)
        except ProviderUnavailable as error:
            raise ProviderUnavailable(f"{error}{_ALONE if db and answers.name == 'replay' else ''}") from error
        if recorded is not None and executor == "auto":
            executor = "cpu" if recorded.executor == "cpu" else "recorded"  # measured anew, the prompts were others
        if recorded is not None and executor == "recorded":
            device = device or recorded.device_id  # with another one's times they were others, too
            first = replayed.setdefault(recorded.device_id, task.id)
            if device in replayed and device != recorded.device_id:
                raise MsbenchError(
                    f"{first} was recorded on another device than {replayed[device]}: replay it with a command of its own."
                )
        chosen = strategy or (recorded.strategy if recorded else DEFAULT_STRATEGY)
        typed = command_line(seed=settings.plan.seed if seed is None else None)
        return _searches.Search(task, answers, chosen, settings, None, typed)

    searches = []  # all of them, so that what can't be begun is refused before the first one takes its time
    named = tasks_named(tasks, precision, ops_dir) if tasks or every else []
    if resume is not None:
        row = store.run(resume)
        searches, executor = [going_on(row)], row.executor
        device = device or (row.device_id if executor == "recorded" else None)
    elif not unfinished:
        searches = [beginning(task) for task in named]
    with pick_executor(executor, db, device, store) as chosen, report.Live(err) as live, watch.waiting():
        report.machine(out, chosen)
        if unfinished:
            rows, new = _searches.unfinished(store, named, chosen)
            searches = [*map(going_on, rows), *map(beginning, new)]
            if not searches:
                out.print("No run is unfinished.")
                return
        opened = _searches.device(chosen, lambda: pick_executor(executor, db, device, store))
        alone = len(searches) == 1 and not unfinished
        if alone:
            live.task(searches[0].task.id)
        else:
            watch.board = report.Board(out, live, len(searches))
        found = _searches.go(
            searches, chosen, opened, watch, live, at_once=jobs, lockstep=not wait, store=store, readers=readers,
            rounds=rounds, budget=None if (resume or unfinished) and limits == Budget() else limits,
        )  # fmt: skip
    for one in found:
        if one.summary and alone:
            report.run(out, one.summary)
        if one.summary and write_best is not None:
            _write_best(store, one.summary.run_id, write_best)
    if alone and found[0].error:
        with watch.waiting():
            raise found[0].error
    if not alone:
        _searches.conclude(found)


def _settings(
    task: Task, answers: Provider, cases: str | None, rounds: int | None, seed: int | None, drawn: int, budget: float,
    sittings: int, answer_tokens: int | None, profile_view: ProfileView, readers: Store,
) -> Settings:  # fmt: skip
    """What a new run is started with; what is not given is that of the recording, if answers come from one.

    ``drawn``: the seed where there is neither.
    """
    from msbench.harness.evaluate import Plan
    from msbench.optimize import ROUNDS, Settings
    from msbench.optimize.knowledge import gather

    recorded = answers.recording(task.id)
    if recorded is None:
        plan = Plan(
            operators.with_twins(task.operator, operators.select_cases(task.operator, "all")), seed=drawn, trusted=True
        )
        known = Settings(plan, ROUNDS, None, profile_view=profile_view, knowledge=gather(readers, task))
    else:
        known = Settings.read(recorded.settings)
    seed = known.plan.seed if seed is None else seed
    selected = operators.select_cases(task.operator, cases, seed) if cases else ()
    chosen = operators.with_twins(task.operator, selected) or known.plan.cases
    seen = known.profile_view is not ProfileView.NONE
    plan = replace(known.plan, cases=chosen, profile=seen, seed=seed, time_budget_s=budget, sittings=sittings)
    longest = known.max_tokens if answer_tokens is None else answer_tokens
    return replace(known, plan=plan, rounds=known.rounds if rounds is None else rounds, max_tokens=longest)


def _passed_on(options: list[str]) -> dict[str, object]:
    """``NAME=VALUE`` as a mapping; values are JSON where they can be, else text."""
    found: dict[str, object] = {}
    for option in options:
        name, given, value = option.partition("=")
        if not given or not name.strip():
            raise MsbenchError(f"--option {option!r}: expected NAME=VALUE, such as temperature=0.7.")
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value
    return found


def _of(task: Task, readers: Store, version: str) -> str:
    """The version's whole id, if it is one of the task."""
    candidate = readers.candidate(version)
    if (candidate.operator, candidate.precision) != (task.operator.name, task.precision):
        raise MsbenchError(
            f"--start {version}: that is a version of {candidate.operator}/{candidate.precision}, not of {task.id}."
        )
    return candidate.id


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        prompt, completion = (float(part) for part in text.split(","))
        if not (0 <= prompt < math.inf and 0 <= completion < math.inf):
            raise ValueError
    except ValueError:
        raise MsbenchError(
            f"--price {text!r}: expected two numbers, dollars per million prompt and completion tokens, such as 1.25,10."
        ) from None
    return prompt, completion


def _write_best(store: Store, run_id: str, folder: Path) -> None:
    """Nothing better than naive is no reason to stop before the next task."""
    from msbench.optimize import write_best

    try:
        out.print(f"wrote {write_best(store, run_id, folder)}")
    except MsbenchError as error:
        out.print(f"[yellow]nothing written:[/] {escape(str(error))}", soft_wrap=True)
