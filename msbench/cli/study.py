"""The command that tests the statistics: study."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from msbench import databases, report
from msbench.cli._app import app
from msbench.cli._interruption import goes_on_with_resume
from msbench.cli._options import Db, Device, FixedSeed, SettledSittings, amount, command_line, err, out, pick_executor
from msbench.commands import without_budget
from msbench.errors import DeviceError, MsbenchError
from msbench.model import Study, Trial

if TYPE_CHECKING:
    from msbench.store.store import Store


@app.command()
def study(
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="How many tasks; a fixed rule chooses them.")] = 20,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Pairs of each kind on each task.")] = 4,
    kind: Annotated[
        str, typer.Option("--kind", help="same (a kernel against itself), slowdown (against a slower copy), or both.")
    ] = "same,slowdown",
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", callback=amount, help="Start no new task after this many seconds.", show_default=False
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Skip tasks that the same command, with any --budget, has recorded on this device.",
        ),
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Measure nothing; write the newest recording and its plots to DIR/study.md.",
            show_default=False,
        ),
    ] = None,
    sittings: SettledSittings = 7,
    seed: FixedSeed = 0,
    device: Device = None,
    db: Db = None,
) -> None:
    """Measure, on a GPU, how far figures can be trusted: with identical kernels, and kernels slowed down by 3 %.

    Each task is stored as soon as it is measured; continue an interrupted study with --resume. Exit code 1 if fewer
    than 93 % of the identical pairs have a 95 % interval that contains 1, one of their medians is off by more than 1 %,
    or fewer than 95 % of the slowdowns are found.

    Example: `msbench study --tasks 20 --budget 600`
    """
    if write is not None:
        from msbench.study import page

        for path in page.write(databases.reader(db), write):
            out.print(f"wrote {escape(str(path))}", soft_wrap=True)
        return
    from msbench.harness.digest import harness_digest
    from msbench.study.record import Settings, record
    from msbench.study.subjects import choose

    settings = Settings(_kinds(kind), pairs, sittings, seed)
    subjects = choose(tasks)
    command = command_line(without="--resume")
    store = databases.writer(db)
    goes_on_with_resume(db)
    with _on_a_gpu(db, device, store) as executor, report.Live(err) as live:
        store.add_device(executor.device())
        known = _recorded(store, executor.device().id, harness_digest(), command) if resume else []
        done = {one.subject.rpartition(" #")[0] for one in known}
        left = [subject for subject in subjects if subject.name not in done]
        created_at = known[0].created_at if known else datetime.now(UTC).isoformat(timespec="seconds")
        if resume:
            out.print(f"{len(subjects) - len(left)} of {len(subjects)} tasks are recorded already.")
        started = time.monotonic()
        found = record(executor, left, settings, command=command, created_at=created_at, progress=live)
        with closing(found):
            for number, (subject, trials) in enumerate(found, 1):
                store.add_trials(trials)
                known += trials
                _print(subject.name, trials)
                live.task(f"{number} of {len(left)} tasks done")
                if budget is not None and time.monotonic() - started > budget and number < len(left):
                    err.print(f"The budget is spent; {len(left) - number} tasks are left for --resume.")
                    break
    if not _summary(known, settings.kinds):
        raise typer.Exit(1)


def _on_a_gpu(db: str | None, device: str | None, store: Store) -> Any:
    """The executor that measures. Where there is no GPU the others are no way out: they have nothing to time."""
    from msbench.gpu.devices import gpus

    try:
        return pick_executor("cuda", db, device, store)
    except DeviceError as error:
        if gpus():
            raise
        raise DeviceError("A study times kernels, which needs an NVIDIA GPU with a working driver.") from error


def _kinds(text: str) -> tuple[Study, ...]:
    known = {kind.value: kind for kind in (Study.SAME, Study.SLOWDOWN)}
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words or not set(words) <= set(known):
        raise MsbenchError(f"--kind {text!r}: choose from {' and '.join(known)}, joined by ','.")
    return tuple(kind for word, kind in known.items() if word in words)


def _recorded(store: Store, device_id: str, harness: str, command: str) -> list[Trial]:
    """The trials of the newest recording by this command, whatever its time limit, on this device and harness."""
    found = [
        one
        for kind in (Study.SAME, Study.SLOWDOWN)
        for one in store.trials(kind)
        if (one.device_id, one.harness) == (device_id, harness)
        and without_budget(one.command) == without_budget(command)
    ]
    newest = max((one.created_at for one in found), default="")
    return [one for one in found if one.created_at == newest]


def _print(name: str, trials: list[Trial]) -> None:
    parts = []
    for kind in dict.fromkeys(one.study for one in trials):
        own = [one for one in trials if one.study is kind]
        ratios = [one.details["median"] for one in own if "median" in one.details]
        middle = f", ratio {median(ratios):.4f}" if ratios else ""
        parts.append(f"{kind} {sum(one.held for one in own)} of {len(own)}{middle}")
    duration = next((one.details["duration_ns"] for one in trials if "duration_ns" in one.details), None)
    out.print(f"{escape(name)}  {report.nanoseconds(duration)}: {'; '.join(parts)}", soft_wrap=True)
    for one in trials:
        if "median" not in one.details:
            err.print(f"[red]{escape(one.subject)}[/]: {escape(one.outcome)}", soft_wrap=True)


def _summary(trials: list[Trial], kinds: tuple[Study, ...]) -> bool:
    """Print what each study comes to; whether all criteria are met."""
    from msbench.study.record import judge

    held = True
    for kind in kinds:
        own = [one for one in trials if one.study is kind]
        if own:
            judgement = judge(kind, own)
            out.print(f"[{'green' if judgement.held else 'red'}]{kind}[/]: {judgement.sentence}", soft_wrap=True)
            held = held and judgement.held
    return held
