"""What commands print: tables for people, one JSON object for programs, a live line while work goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live as Screen
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from msbench import operators as ops
from msbench.doctor import Finding
from msbench.errors import WaitingForAnswer
from msbench.harness.build.compiler_output import named_after as renamed
from msbench.model import Evaluation, Failure, Measurement, Origin, Outcome, Status
from msbench.spec import Operator, Split

if TYPE_CHECKING:
    from msbench.harness.batch.throughput import Throughput
    from msbench.harness.evaluate import Executor
    from msbench.optimize import Ended, Event, Summary
    from msbench.optimize.sweep import Swept
    from msbench.store.store import Store

_BOARD_ROWS = 12
_COLOURS = {Status.PASSED: "green", Status.UNSUPPORTED: "yellow"}


def nanoseconds(value: float | None) -> str:
    """A time in the unit that reads best: ``4.21 µs``; a dash where there is none."""
    if value is None:
        return "–"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ns"


class Live:
    """A progress line on the error stream; silent when ``quiet`` or when nobody watches."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[now]}"),
            TimeElapsedColumn(),
            console=console,
            disable=True,  # it is shown as a part of the screen
        )
        shown = console.is_terminal and not quiet
        self._screen = Screen(console=console, transient=True, auto_refresh=shown) if shown else None
        self._below: RenderableType = ""
        self._id = self._bar.add_task("", total=None, now="")
        self._prefix = ""

    def __enter__(self) -> Self:
        if self._screen:
            self._screen.start()
            self.below("")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._screen:
            self._screen.stop()

    def below(self, what: RenderableType) -> None:
        """Show something below the line, in place of what was there."""
        self._below = what
        if self._screen:
            self._screen.update(Group(self._bar, self._below))

    def task(self, name: str) -> None:
        """Name the task that the following stages belong to."""
        self._prefix = f"{name}: "

    def started(self, text: str) -> None:
        """A stage begins."""
        self._bar.reset(self._id, description=escape(self._prefix + text), total=None, now="")

    def advanced(self, done: int, total: int | None, text: str) -> None:
        """A part of the stage is done; ``total`` is None where nobody knows how many there are."""
        self._bar.update(self._id, completed=done, total=total, now=escape(text))


def doctor(console: Console, findings: Sequence[Finding]) -> None:
    """One line for each thing, and for a missing one what it limits and how to get it."""
    for finding in findings:
        if finding.found is None:
            colour, mark = ("red", "✗") if finding.needed else ("yellow", "–")
            says = f"not found. Without it {escape(finding.limits)}.\n    {escape(finding.remedy)}"
        else:
            colour, mark, says = "green", "✓", escape(finding.found)
        console.print(f"[{colour}]{mark}[/] [bold]{finding.name}[/]: {says}", soft_wrap=True)


def operators(console: Console, known: Mapping[str, Operator]) -> None:
    """The operators by scenario."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("operator", "title", "cases", "baselines"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "operator")
    for scenario, members in groupby(sorted(known.values(), key=lambda o: (o.scenario, o.name)), lambda o: o.scenario):
        table.add_row(f"[bold]{escape(scenario)}[/]")
        for op in members:
            libraries = {c.label for task in op.tasks for c in ops.versions(task) if c.origin is Origin.LIBRARY}
            table.add_row(op.name, escape(op.title), str(len(op.cases)), ", ".join(sorted(libraries)))
    console.print(table)
    console.print("\n`msbench show OPERATOR` prints one's formula, prototype, cases and versions.")


def operator(console: Console, op: Operator, store: Store) -> None:
    """One operator's contract, and the versions in kernels/ and in the database."""
    console.print(f"[bold]{op.name}[/]  {escape(op.title)}  [dim]({op.scenario})[/]\n  {escape(op.definition)}\n")
    console.print(Syntax(ops.prototype(op), "cpp", background_color="default", word_wrap=True))
    console.print(f"\nThe launcher is compiled with msbench's generated header; {op.name}_workspace is optional:")
    console.print(Syntax(ops.workspace_prototype(op), "cpp", background_color="default", word_wrap=True))
    console.print(f"\n[bold]files[/]\n  {escape(op.folder)}", soft_wrap=True)
    console.print("[bold]dimensions[/]")
    for dim in op.dims:
        console.print(f"  {dim.name}: {dim.low} … {dim.high}  [dim]{escape(dim.meaning)}[/]")
    console.print("[bold]arrays[/]")
    for array in op.arrays:
        way = "output" if array.output else "input"
        console.print(f"  {array.name}: {way} of {array.dtype}, shape ({escape(', '.join(array.shape))})")
    if op.scalars:
        console.print("[bold]scalars[/]")
    for scalar in op.scalars:
        hidden = "" if scalar.low is None else f"; heldout cases have others, from {scalar.low} to {scalar.high}"
        console.print(f"  {scalar.name}: {scalar.value}{hidden}")
    console.print("[bold]cases[/]")
    for split in Split:
        names = [c.id for c in op.cases if c.split is split]
        if names:
            console.print(f"  {split}: {escape('  '.join(names))}")
    console.print("  heldout: drawn from the ranges above by --seed")
    console.print(f"[bold]error bound[/]\n  {escape(op.bound_note)}")
    if op.library_note:
        console.print(f"[bold]library[/]\n  {escape(op.library_note)}")
    console.print("[bold]versions[/]")
    for task in op.tasks:
        shipped = {c.id: (c.origin.value, c.label) for c in ops.versions(task)}
        stored = {v.id: (v.origin, v.label) for v in store.versions(task.id)}
        for version_id, (origin, label) in (stored | shipped).items():
            latest = next(reversed(store.evaluations(version_id)), None)
            seen = (
                f"{latest.status}, {latest.executor} executor, {latest.started_at[:10]}" if latest else "not evaluated"
            )
            console.print(f"  {version_id[:12]}  {task.precision}  {origin:8}  {escape(label)}  [dim]{seen}[/]")


def named_after(result: Evaluation, file: str) -> Evaluation:
    """The evaluation for the user who gave ``file``: what was compiled under the launcher's name has that of the file."""

    def named(failure: Failure | None) -> Failure | None:
        return failure and replace(failure, message=renamed(failure.message, result.candidate.operator, file))

    return replace(
        result,
        failure=named(result.failure),
        checks=tuple(replace(check, failure=named(check.failure)) for check in result.checks),
        measurements=tuple(replace(m, failure=named(m.failure)) for m in result.measurements),
    )


def _ratio(reference: Measurement | None, own: Measurement) -> str:
    if reference is None or reference.failure or own.failure or reference is own or reference.group != own.group:
        return ""
    from msbench.statistics import bootstrap_ratio

    estimate, low, high = bootstrap_ratio(reference.samples_ns, own.samples_ns, own.seed, own.sittings)
    places = 2 if estimate < 100 else 0
    return f"{estimate:.{places}f}× [dim]{low:.{places}f}–{high:.{places}f}[/]"


def _cold(measurement: Measurement) -> float | None:
    from msbench.statistics import median

    samples = [s for rnd in measurement.samples_ns for s in rnd]
    return None if measurement.failure or not samples else median(samples)


def evaluation(console: Console, op: Operator, results: Sequence[Evaluation]) -> None:
    """One block for each version: its verdict, then its cases."""
    naive = next((r for r in results if r.candidate.origin is Origin.NAIVE), None)
    reference = {m.case.id: m for m in naive.measurements} if naive else {}
    for result in results:
        candidate, colour = result.candidate, _COLOURS.get(result.status, "red")
        where = (
            result.device.name
            if result.device.kind == "cuda"
            else f"{result.device.name} (cpu executor: checked, not timed)"
        )
        console.print(
            f"[bold]{op.name}/{candidate.precision}[/] {escape(candidate.label or candidate.origin)} "
            f"[dim]{candidate.id[:12]}[/]  [{colour}]{result.status}[/]  [dim]{escape(where)}[/]",
            soft_wrap=True,
        )
        if result.failure:
            fault = result.failure.fault.replace("_", " ")
            console.print(f"  [{colour}]{fault}[/]: {escape(result.failure.message)}", soft_wrap=True)
        if result.note:
            console.print(f"  [dim]{escape(result.note)}[/]", soft_wrap=True)
        if result.checks:
            passed = sum(c.passed for c in result.checks)
            worst = max((c.worst for c in result.checks if c.worst is not None), default=None)
            closest = "" if worst is None else f"; largest error is {worst:#.3g} of its bound"
            console.print(f"  {passed} of {len(result.checks)} checks passed{closest}")
        if result.measurements:
            console.print(_times(result, reference))
        for profile in result.profiles:
            console.print(f"  bound by {profile.bottleneck} on {profile.case.id} [dim]({profile.source})[/]")


def repeat(console: Console, command: str) -> None:
    """The command that repeats the same inputs and hidden cases."""
    console.print(f"[dim]repeat it:[/]  {escape(command)}", soft_wrap=True)


def _times(result: Evaluation, reference: Mapping[str, Measurement]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2))
    table.add_column("  case")
    for heading in ("cold", "hot", "host", "vs naive (95 %)", ""):
        table.add_column(heading, justify="right")
    for m in result.measurements:
        remarks = [m.failure.message] if m.failure else ["noisy" if m.noisy else "", m.throttle or ""]
        table.add_row(
            "  " + m.case.id,
            nanoseconds(_cold(m)),
            nanoseconds(m.hot_ns),
            nanoseconds(m.host_ns),
            _ratio(reference.get(m.case.id), m),
            escape("; ".join(filter(None, remarks))),
        )
    return table


def as_json(op: Operator, results: Sequence[Evaluation]) -> dict[str, Any]:
    """The evaluation for programs; the first result is the one that was asked for."""
    from msbench.statistics import bootstrap_ratio, geometric_mean

    naive = next((r for r in results if r.candidate.origin is Origin.NAIVE), None)
    reference = {m.case.id: m for m in naive.measurements} if naive else {}

    def one(result: Evaluation) -> dict[str, Any]:
        ratios = {
            m.case.id: bootstrap_ratio(reference[m.case.id].samples_ns, m.samples_ns, m.seed, m.sittings)
            for m in result.measurements
            if m.failure is None and m.case.id in reference and reference[m.case.id].group == m.group
        }
        complete = result.status is Status.PASSED and len(ratios) == len(result.measurements) > 0
        return {
            "version": result.candidate.id,
            "label": result.candidate.label,
            "origin": result.candidate.origin,
            "status": result.status,
            "failure": result.failure
            and {"fault": result.failure.fault, "message": result.failure.message, "log": result.failure.log},
            "device": {"kind": result.device.kind, "name": result.device.name, "driver": result.device.driver},
            "executor": result.executor,
            "recorded_from": result.recorded_from,
            "note": result.note,
            "started_at": result.started_at,
            "checks": [
                {
                    "case": c.case.id,
                    "variant": c.variant,
                    "passed": c.passed,
                    "error_over_bound": c.worst,
                    "message": c.failure.message if c.failure else None,
                }
                for c in result.checks
            ],
            "cases": [
                {
                    "case": m.case.id,
                    "cold_ns": _cold(m),
                    "hot_ns": m.hot_ns,
                    "host_ns": m.host_ns,
                    "noisy": m.noisy,
                    "disturbed": m.throttle or None,
                    "speedup": ratios.get(m.case.id),
                    "message": m.failure.message if m.failure else None,
                }
                for m in result.measurements
            ],
            "speedup": geometric_mean([r[0] for r in ratios.values()]) if complete else None,
        }

    first = results[0]
    return {
        "operator": op.name,
        "precision": first.candidate.precision,
        "seed": first.seed,
        "command": first.command,
        "versions": [one(r) for r in results],
    }


def throughput(console: Console, stream: Throughput) -> None:
    """Where the time of a stream of groups went, and how many candidates it brought to a verdict."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    table.add_column("stage")
    for heading in ("seconds per task", "share"):
        table.add_column(heading, justify="right")
    stages = stream.by_stage()
    whole, groups = sum(stages.values()), len(stream.steady)
    for stage, seconds in stages.items():
        table.add_row(stage, f"{seconds / groups:.3f}", f"{100 * seconds / whole:.1f} %")
    table.add_row("[bold]from source to stored verdicts[/]", f"[bold]{whole / groups:.3f}[/]", "")
    overlapped = sum(passage.overlapped_s for passage in stream.steady)
    table.add_row("[dim]compilers, alongside[/]", f"[dim]{overlapped / groups:.3f}[/]", "")
    console.print(table)
    count = sum(passage.candidates for passage in stream.steady)
    console.print(
        f"From source to stored verdict: median {stream.median_s:.2f} s, nine of ten within {stream.p90_s:.2f} s.\n"
        f"{count} {'candidate' if count == 1 else 'candidates'} in {stream.wall_s:.1f} s: {stream.candidates_per_hour:.0f} per hour on one device.",
        soft_wrap=True,
    )
    if len(stream.passages) > groups:
        console.print(f"[dim]Without the first task, which took {stream.first_s:.2f} s.[/]")


_OUTCOMES = {"improved": "green", "failed": "red", "slower": "yellow", "equal": "yellow"}


class Board:
    """Many runs at once: a line a step, and below, where somebody watches, how many tasks are at what, and the latest of each."""

    def __init__(self, console: Console, live: Live, total: int) -> None:
        self._console = console
        self._live = live
        self._total = total
        self._states: dict[str, str] = {}
        self._best: dict[str, float] = {}
        self._lock = Lock()

    def event(self, seen: Event) -> None:
        """What just happened in a run; called from any thread."""
        with self._lock:
            self._states.pop(seen.task, None)  # the latest comes last
            self._states[seen.task] = f"{seen.kind} {seen.text}" if seen.kind in ("asked", "ended") else seen.kind
            if seen.speedup and seen.outcome in (Outcome.IMPROVED, Outcome.BASELINE):
                self._best[seen.task] = seen.speedup
            if seen.kind in ("step", "invited"):
                colour = _OUTCOMES.get(seen.outcome or "", "default")
                what = f" [{colour}]{seen.outcome}[/]," if seen.outcome else ""
                self._console.print(f"{seen.task} step {seen.step}:{what} {escape(seen.text)}", soft_wrap=True)
            self._live.below(self._table())

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        ended = sum(state.startswith("ended") for state in self._states.values())
        table.add_column(f"{ended} of {self._total} tasks ended")
        table.add_column("state")
        table.add_column("best")
        for task, state in list(self._states.items())[-_BOARD_ROWS:]:
            best = f"{self._best[task]:.2f}×" if task in self._best else "–"
            table.add_row(escape(task), escape(state), best)
        return table


def swept(console: Console, found: Swept) -> None:
    """The points of a sweep, the fastest first, and who won."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("constants", "over the original source", "version"):
        table.add_column(heading, no_wrap=True)
    for one in found.measured:
        constants = ", ".join(f"{name} = {value}" for name, value in one.point.items())
        table.add_row(
            escape(constants), str(one.ratio or escape(one.problem) or "–").replace("[", r"\["), one.version[:12]
        )
    console.print(table)
    if found.winner is None:
        why = f"the fastest reaches {found.confirmed} over all cases" if found.confirmed else "no interval excludes 1"
        console.print(escape(f"None beats the original source: {why}."), soft_wrap=True)
    else:
        console.print(
            escape(f"Version {found.winner.id[:12]} reaches {found.confirmed} over all cases."), soft_wrap=True
        )


def ended(console: Console, runs: Sequence[Ended]) -> None:
    """How each of many runs ended, in one table; what went wrong in full."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("task", "run", "state", "steps", "best"):
        table.add_column(heading, no_wrap=True)
    for one in runs:
        if one.summary:
            best = f"{one.summary.speedup:.3f}×" if one.summary.speedup is not None else "–"
            table.add_row(one.task, one.summary.run_id[:12], one.summary.status, str(one.summary.steps), best)
        else:
            state = "waiting" if isinstance(one.error, WaitingForAnswer) else "[red]failed[/]"
            table.add_row(one.task, "", state, "", "")
    console.print(table)
    for one in runs:
        if one.error:
            console.print(f"{one.task}: {escape(str(one.error))}", soft_wrap=True)


def event(console: Console, seen: Event) -> None:
    """One line for what just happened in a run."""
    if seen.kind in ("asked", "evaluated"):  # their outcome follows
        return
    if seen.kind == "answered":
        console.print(f"step {seen.step}: [dim]the {escape(seen.text)} answered[/]")
        return
    colour = _OUTCOMES.get(seen.outcome or "", "default")
    what = f"step {seen.step}: [{colour}]{seen.outcome}[/], " if seen.outcome else ""
    console.print(f"{what}{escape(seen.text)}", soft_wrap=True)


def machine(console: Console, executor: Executor) -> None:
    """Where a run's checks and times come from, if it is not one GPU for both."""
    from msbench.harness.evaluate import Remembers

    if executor.measures:
        return
    if isinstance(executor, Remembers):
        checks, times = executor.checked_on().name, executor.device()
        recorded = f"times are those recorded on {times.name}, if any"
        remembered = recorded if times.kind == "cuda" else "no times are recorded"
        where = f"on the CPU ({escape(checks)}), except cases that are too large for it"
        console.print(f"Kernels are checked {where}; {escape(remembered)}.", soft_wrap=True)
    else:
        console.print(f"Kernels are checked on {escape(executor.device().name)} and not timed.", soft_wrap=True)


def run(console: Console, summary: Summary) -> None:
    """How a run ended, and where its story is."""
    speed = f": {summary.speedup:.2f}× over the naive kernel" if summary.speedup is not None else ""
    best = f", best version {summary.best_version_id[:12]}" if summary.best_version_id else ""
    steps = "one step" if summary.steps == 1 else f"{summary.steps} steps"
    head = f"[bold]run {summary.run_id[:12]}[/] {summary.status} after {steps}"
    console.print(f"{head}{speed}{best}", soft_wrap=True)
    if summary.spend:
        console.print(f"  spent: {_spent(summary.spend)}", soft_wrap=True)
    if summary.note:
        console.print(f"  {escape(summary.note)}", soft_wrap=True)


def _spent(spend: Mapping[str, Any]) -> str:
    """A run's bill in a line."""
    calls, tokens, unknown = spend.get("calls", 0), spend.get("tokens", 0), spend.get("unknown", 0)
    kinds = ", ".join(
        f"{spend[f'{kind}_tokens']:,} {kind}"
        for kind in ("uncached", "cached", "reasoning", "output")
        if spend.get(f"{kind}_tokens")
    )
    parts = [f"{calls} model call{'' if calls == 1 else 's'}"]
    if tokens:
        parts.append(f"{tokens:,} tokens" + (f" ({kinds})" if kinds else ""))
    if spend.get("cost_usd"):
        parts.append(f"${spend['cost_usd']:.4f}")
    parts.append(f"{spend.get('evaluations', 0)} evaluations")
    if spend.get("gpu_seconds"):
        parts.append(f"{spend['gpu_seconds']:.0f} s on the GPU")
    parts.append(f"{spend.get('wall_seconds', 0.0):.0f} s total")
    said = "; ".join(parts)
    return f"{said}; the cost of {unknown} of the calls is unknown; the reserved amount counts" if unknown else said
