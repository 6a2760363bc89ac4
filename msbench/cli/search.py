"""The command that lets agents search: optimize."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from msbench import databases, operators, report
from msbench.cli import _interruption
from msbench.cli._app import app
from msbench.cli._options import (
    CASES_HELP,
    SEEDS,
    Db,
    Device,
    Exec,
    Ops,
    amount,
    command_line,
    draw_seed,
    err,
    out,
    pick_executor,
    tasks_named,
)
from msbench.errors import MsbenchError, ProviderUnavailable, WaitingForAnswer
from msbench.spec import Precision, Task
from msbench.store.engine import shown

if TYPE_CHECKING:
    from msbench.optimize import Event, Settings
    from msbench.providers import Provider
    from msbench.store.store import Store


PROMPTS = Path("prompts")
_ALONE = " With --db that database alone is read: the shipped one, which has recordings, is left out."


@app.command()
def optimize(
    tasks: Annotated[list[str] | None, typer.Argument(help="Operators or tasks (rms_norm, softmax/bf16).")] = None,
    precision: Annotated[Precision | None, typer.Option("--precision", help="Only this element type.")] = None,
    strategy: Annotated[
        str, typer.Option("--strategy", help="How to search; see docs/adding_a_strategy.md.")
    ] = "cudamaster",
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
            help="The model's name at the endpoint. Default: MSBENCH_MODEL, else the endpoint's own.",
            show_default=False,
        ),
    ] = "",
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=0,
            help="Proposals to try, repairs not counted. Default: 5; for a replay those of the recording.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--resume", help="Go on with this run (its id or the beginning of it).", show_default=False),
    ] = None,
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases", help=f"{CASES_HELP} Default: all; for a replay those of the recording.", show_default=False
        ),
    ] = None,
    executor: Exec = "auto",
    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="IN,OUT",
            help="With --provider openai: dollars a million prompt tokens and a million completion tokens.",
            show_default=False,
        ),
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(callback=amount, help="Most dollars to spend; needs --price.", show_default=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=0, help="Most tokens to spend.", show_default=False)] = None,
    max_calls: Annotated[int | None, typer.Option(min=0, help="Most model calls.", show_default=False)] = None,
    max_evaluations: Annotated[int | None, typer.Option(min=0, help="Most evaluations.", show_default=False)] = None,
    max_gpu_seconds: Annotated[
        float | None, typer.Option(callback=amount, help="Most seconds of GPU time.", show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(callback=amount, help="Most seconds of wall time.", show_default=False)
    ] = None,
    prompts: Annotated[
        Path, typer.Option("--prompts", help="With --provider manual: the folder of prompts and answers.")
    ] = PROMPTS,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="With --provider manual: wait for the answer, or end with exit code 3 and go on by --resume.",
        ),
    ] = True,
    recording: Annotated[
        str,
        typer.Option(
            "--recording",
            help="With --provider replay: the run to replay. Default: the newest of the task.",
            show_default=False,
        ),
    ] = "",
    budget: Annotated[
        float, typer.Option("--budget", callback=amount, help="Seconds of measuring a case may take.")
    ] = 2.0,
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
            help="Seed of inputs, hidden cases and the search. Default: drawn, and recorded with the command; for a replay that of "
            "the recording. A resumed run keeps its own.",
            show_default=False,
        ),
    ] = None,
    ops_dir: Ops = None,
    device: Device = None,
    db: Db = None,
) -> None:
    """Let agents make kernels faster: profile, plan, code, check, measure, keep the best.

    Everything is stored as it happens; an interrupted run goes on with --resume.

    Example: `msbench optimize softmax/bf16 --rounds 6 --price 1.25,10 --max-usd 2`
    """
    if not tasks and resume is None:
        raise MsbenchError(
            "Name an operator or a task to optimize, such as `msbench optimize softmax/bf16`, or a run to --resume."
        )
    from msbench import agents, providers
    from msbench.optimize import Budget
    from msbench.optimize import optimize as run_engine

    prices = _prices(price)
    store, readers = databases.writer(db), databases.reader(db)
    watch = _Watch(
        wait, prompts=None if prompts == PROMPTS else prompts, price=price, write_best=write_best, ops_dir=ops_dir,
        device=device, db=shown(db) if db else None,
    )  # fmt: skip
    limits = Budget(max_usd, max_tokens, max_calls, max_evaluations, max_gpu_seconds, max_seconds)
    asked_for = model
    if resume is not None:
        row = store.run(resume)
        tasks, strategy, provider, executor, model = (
            [row.task_id],
            row.strategy,
            row.provider,
            row.executor,
            model or row.model,
        )
        recording = recording or row.replay_of or ""
    chosen_strategy = agents.pick(strategy)
    drawn = draw_seed()
    searches = []  # all of them, so that what can't be begun is refused before the first one takes its time
    for task in tasks_named(tasks, precision, ops_dir):
        answers = providers.pick(
            provider, model=model, price=prices, folder=prompts, wait=wait, store=readers, run=recording
        )
        if asked_for and answers.name == "replay":
            raise MsbenchError(
                f"--model {asked_for}: recorded answers are given again here, whoever gave them. Leave it out, or set "
                "OPENAI_API_KEY (or OPENAI_BASE_URL) to ask that model."
            )
        try:
            settings = None if resume else _settings(task, answers, cases, rounds, seed, drawn, budget)
        except ProviderUnavailable as error:
            raise ProviderUnavailable(f"{error}{_ALONE if db and answers.name == 'replay' else ''}") from error
        searches.append((task, answers, settings))
    with pick_executor(executor, db, device, store) as chosen, report.Live(err) as live, watch.waiting():
        report.machine(out, chosen)
        for task, answers, settings in searches:
            live.task(task.id)
            summary = run_engine(
                task,
                strategy=chosen_strategy,
                provider=answers,
                executor=chosen,
                store=store,
                readers=readers,
                plan=settings.plan if settings else None,
                rounds=settings.rounds if settings else rounds,
                seed=settings.plan.seed if settings else 0,
                budget=None if resume and limits == Budget() else limits,
                resume=resume,
                command=command_line(seed=settings.plan.seed if settings and seed is None else None),
                progress=live,
                watch=watch,
            )
            report.run(out, summary)
            if write_best is not None:
                _write_best(store, summary.run_id, write_best)


class _Watch:
    """Shows what happens in a run, and knows what to type to go on with it.

    ``wait`` and ``options`` are what was given and is not stored with the run.
    """

    def __init__(self, wait: bool, **options: object) -> None:
        self._words = [] if wait else ["--no-wait"]
        for name, value in options.items():
            if value is not None:
                self._words += [f"--{name.replace('_', '-')}", str(value)]

    def __call__(self, event: Event) -> None:
        _interruption.current.go_on = shlex.join(["msbench", "optimize", "--resume", event.run, *self._words])
        report.event(out, event)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Adds to what a run stops for how to go on then. It is not stored: whose machine that is is nobody's business."""
        try:
            yield
        except (ProviderUnavailable, WaitingForAnswer) as error:
            if not _interruption.current.go_on:
                raise
            raise type(error)(f"{str(error).rstrip('.')}. Then go on with: {_interruption.current.go_on}") from error


def _settings(
    task: Task, answers: Provider, cases: str | None, rounds: int | None, seed: int | None, drawn: int, budget: float
) -> Settings:
    """What a new run is started with; what is not given is that of the recording, if answers come from one.

    ``drawn``: the seed where there is neither.
    """
    from msbench.harness.evaluate import Plan
    from msbench.optimize import ROUNDS, Settings

    recorded = answers.recording(task.id)
    if recorded is None:
        known = Settings(Plan(operators.select_cases(task.operator, "all"), seed=drawn), ROUNDS, None)
    else:
        known = Settings.read(recorded.settings)
    seed = known.plan.seed if seed is None else seed
    chosen = operators.select_cases(task.operator, cases, seed) if cases else known.plan.cases
    plan = replace(known.plan, cases=chosen, profile=True, seed=seed, time_budget_s=budget)
    return replace(known, plan=plan, rounds=known.rounds if rounds is None else rounds)


def _prices(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        prompt, completion = (float(part) for part in text.split(","))
        if not (0 <= prompt < math.inf and 0 <= completion < math.inf):
            raise ValueError
    except ValueError:
        raise MsbenchError(
            f"--price {text!r}: two numbers are meant, dollars a million prompt and completion tokens, say 1.25,10."
        ) from None
    return prompt, completion


def _write_best(store: Store, run_id: str, folder: Path) -> None:
    """Nothing better than naive is no reason to stop before the next task."""
    from msbench.optimize import write_best

    try:
        out.print(f"wrote {write_best(store, run_id, folder)}")
    except MsbenchError as error:
        out.print(f"[yellow]nothing written:[/] {escape(str(error))}", soft_wrap=True)
