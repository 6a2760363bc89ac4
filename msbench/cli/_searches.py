"""The searches of one command: which tasks begin a run, which runs go on, and how they all ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from msbench import operators, report
from msbench.cli import _interruption
from msbench.cli._options import out
from msbench.errors import MsbenchError, ProviderUnavailable, WaitingForAnswer
from msbench.spec import Precision, Task

if TYPE_CHECKING:
    from pathlib import Path

    from msbench.harness.evaluate import Executor
    from msbench.optimize import Ended, Event, Settings
    from msbench.providers import Provider
    from msbench.store.store import Store
    from msbench.store.tables import RunRow

UNFINISHED = ("running", "waiting", "stopped")


@dataclass(frozen=True)
class Search:
    """One run to begin (with ``settings``), or the stored run ``resume`` to go on with. ``command``: what is typed to repeat it."""

    task: Task
    answers: Provider
    strategy: str
    settings: Settings | None
    resume: str | None
    command: str


class Watch:
    """Shows what happens in runs, and knows what to type to go on with them.

    ``wait``, ``passed_on`` to the provider, and ``options`` are what was given and is not stored with a run.
    """

    def __init__(self, wait: bool, passed_on: list[str] | None, **options: object) -> None:
        self._words = [] if wait else ["--no-wait"]
        for given in passed_on or []:
            self._words += ["--option", given]
        for name, value in options.items():
            if value is not None:
                self._words += [f"--{name.replace('_', '-')}", str(value)]
        self.board: report.Board | None = None
        self.runs: set[str] = set()

    def __call__(self, event: Event) -> None:
        which = ["--unfinished"] if self.board else ["--resume", event.run]
        _interruption.current.go_on = shlex.join(["msbench", "optimize", *which, *self._words])
        (self.runs.discard if event.kind == "ended" else self.runs.add)(event.run)
        if self.board:
            self.board.event(event)
        else:
            report.event(out, event)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Adds to what a run stops for how to go on then. It is not stored: whose machine that is is nobody's business."""
        try:
            yield
        except (ProviderUnavailable, WaitingForAnswer) as error:
            if not _interruption.current.go_on:
                raise
            raise type(error)(f"{str(error).rstrip('.')}. Then continue with: {_interruption.current.go_on}") from error


def unfinished(store: Store, tasks: Sequence[Task], executor: Executor) -> tuple[list[RunRow], list[Task]]:
    """The unfinished runs that this executor can go on with (of ``tasks``, if any are named), and the tasks without any run."""
    named = {task.id for task in tasks}
    mine = [run for run in store.runs() if run.executor == executor.name and run.device_id == executor.device().id]
    found = [run for run in mine if run.status in UNFINISHED and (not named or run.task_id in named)]
    begun = {run.task_id for run in mine}
    return found, [task for task in tasks if task.id not in begun]


def task_of(run: RunRow, ops_dir: Path | None) -> Task:
    """The task of a stored run."""
    name, _, precision = run.task_id.partition("/")
    return Task(operators.load(name, ops_dir), Precision(precision))


def go(
    searches: Sequence[Search],
    executor: Executor,
    opened: Any,
    watch: Watch,
    progress: report.Live,
    *,
    at_once: int,
    lockstep: bool,
    store: Store,
    **options: Any,
) -> list[Ended]:
    """Have all searches go on until each has ended, whatever becomes of the others.

    Args:
        opened: makes the executor that works, as a context; ``executor`` only says who that is.
        at_once: how many runs go on at a time.
        lockstep: one batch for all.
        options: of ``optimize.optimize``.
    """
    from msbench import agents
    from msbench.optimize import Summary, Together, optimize

    def session(search: Search) -> Any:
        def run(together: Together) -> Summary:
            own = {"budget": None} if search.resume and options["budget"] is None else {}
            return optimize(
                search.task,
                strategy=agents.pick(search.strategy),
                provider=search.answers,
                executor=executor,
                store=store,
                settings=search.settings,
                seed=search.settings.plan.seed if search.settings else 0,
                resume=search.resume,
                command=search.command,
                progress=None if watch.board else progress,
                watch=watch,
                evaluates=together.evaluate,
                **(options | own),
            )

        return run

    together = Together(opened, lockstep=lockstep, progress=progress)
    limit = None if lockstep else at_once
    try:
        return together.run([(search.task.id, session(search)) for search in searches], limit)
    except KeyboardInterrupt:
        for run_id in watch.runs:
            store.update_run(run_id, status="stopped", note="Interrupted.")
        raise


def device(chosen: Executor, again: Any) -> Any:
    """What opens the device for work. One that measures is let go of meanwhile: nobody needs it while a model thinks."""
    if not chosen.measures:
        return lambda: nullcontext(chosen)
    chosen.device(), chosen.ceilings()
    chosen.close()

    def opened() -> AbstractContextManager[Executor]:
        return again()  # type: ignore[no-any-return]

    return opened


def conclude(ended: Sequence[Ended]) -> None:
    """Say how many runs came to what; the exit code is 1 if one failed, 3 if one waits for an answer."""
    waiting = [one for one in ended if isinstance(one.error, WaitingForAnswer)]
    failed = [one for one in ended if one.error and one not in waiting]
    for one in failed:
        if not isinstance(one.error, MsbenchError):
            raise one.error  # type: ignore[misc]
    report.ended(out, ended)
    if failed:
        raise typer.Exit(1)
    if waiting:
        many = "One run waits" if len(waiting) == 1 else f"{len(waiting)} runs wait"
        out.print(escape(f"{many} for an answer. Then continue with: {_interruption.current.go_on}"), soft_wrap=True)
        raise typer.Exit(3)
