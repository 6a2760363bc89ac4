"""Different strategies on one task: what each one's runs came to, round by round, and what that took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from msbench.figures.ratios import Ratio
from msbench.model import Outcome
from msbench.sitegen import format as fmt
from msbench.sitegen import sources
from msbench.sitegen.entries import Run
from msbench.sitegen.facts import Site
from msbench.sitegen.plots import summary_charts
from msbench.sitegen.plots.plot import Chart
from msbench.sitegen.told import Told, told
from msbench.store.tables import StepRow, TaskRow

ASTRA = "astra"
_COMPLETE = ("finished", "waiting")
_REPAIR = "debug"
"""The action of a step that repairs a failed draft: it is no round."""
_ROLES = ("best", "parent", "roof")
"""The strategies' colours."""
_SYMBOLS = ("circle", "diamond", "square-open", "triangle-up-open", "circle-open", "diamond-open")
"""The runs' marks."""


@dataclass(frozen=True)
class Entrant:
    """A run with its steps' figures, and its name in the chart's legend."""

    run: Run
    judged: tuple[Told, ...]
    name: str

    @property
    def timed(self) -> list[Told]:
        """The steps with marks: those with times, but for the baseline."""
        return [one for one in self.judged if one.over_naive and one.row.outcome != Outcome.BASELINE]

    @property
    def answered_by(self) -> str:
        """The name that was given for whoever answered; the provider where none was."""
        return _answered_by(self.run)

    @property
    def best(self) -> Ratio | None:
        """The best speed-up over the naive kernel; None where nothing passed with times."""
        return summary_charts.best_so_far(steps(self.judged))[-1]

    @property
    def rounds(self) -> int:
        """What its limit counts: proposals, repairs not."""
        return len(self._tried) - self.repairs

    @property
    def repairs(self) -> int:
        """Steps that repaired a failed draft."""
        return sum(step.action == _REPAIR for step in self._tried)

    @property
    def limit(self) -> int | None:
        """How many rounds it might have; None where that is not stored."""
        limit = self.run.row.settings.get("rounds")
        return limit if isinstance(limit, int) else None

    @property
    def evaluations(self) -> float | None:
        """How many evaluations it was charged with."""
        return self._spent("evaluations")

    @property
    def gpu_seconds(self) -> float | None:
        """How long it had the GPU."""
        return self._spent("gpu_seconds")

    @property
    def _tried(self) -> list[StepRow]:
        return [step for step in self.run.steps if step.outcome != Outcome.BASELINE]

    def _spent(self, what: str) -> float | None:
        amount = self.run.row.spend.get(what)
        return amount if isinstance(amount, int | float) else None


@dataclass(frozen=True)
class Rivalry:
    """A task's runs by at least two strategies. ``chart`` is drawn of them; ``label`` is its caption's end."""

    chart: Chart
    label: str
    entrants: tuple[Entrant, ...]
    rival: tuple[str, float] | None

    @property
    def with_astra(self) -> bool:
        """Whether one of the strategies is Astra's."""
        return any(one.run.row.strategy == ASTRA for one in self.entrants)

    @property
    def limit(self) -> int | None:
        """How many rounds each run might have; None where they differ or are not stored."""
        limits = {one.limit for one in self.entrants}
        return limits.pop() if len(limits) == 1 else None


def steps(judged: Sequence[Told]) -> list[summary_charts.Step]:
    """Steps as charts show them."""
    return [
        summary_charts.Step(one.row.number, one.row.outcome, one.over_naive, fmt.day(one.measured_at)) for one in judged
    ]


def of_task(site: Site, task: TaskRow) -> Rivalry | None:
    """A task's strategies side by side; None unless runs by two of them can be compared, and one got beyond the baseline."""
    found = entrants(site, task.id)
    strategies = list(dict.fromkeys(one.run.row.strategy for one in found))
    if len(strategies) < 2 or not any(one.timed for one in found):
        return None
    roles = dict(zip(strategies, cycle(_ROLES), strict=False))
    courses = [
        summary_charts.Course(one.name, roles[one.run.row.strategy], symbol, tuple(steps(one.judged)))
        for one, symbol in zip(found, cycle(_SYMBOLS), strict=False)
    ]
    rival = _rival(site, task.id)
    title = "Against Astra" if ASTRA in strategies else "Strategies compared"
    chart = summary_charts.courses(f"strategies-{task.precision}", title, courses, rival)
    label = sources.measured(site, (step.measured_at for one in found for step in one.timed))
    return Rivalry(chart, label, tuple(found), rival) if chart else None


def of_run(site: Site, run: Run) -> Rivalry | None:
    """What a run stands in beside those of other strategies."""
    found = of_task(site, run.task)
    return found if found and any(one.run is run for one in found.entrants) else None


def entrants(site: Site, task_id: str) -> list[Entrant]:
    """The runs that can be compared, by strategy, Astra's last: complete ones from the naive kernel that were timed here.

    A replay does not count beside what it repeats, nor beside another replay of that.
    """
    found: dict[str, tuple[Run, tuple[Told, ...]]] = {}
    for run in site.runs_of(task_id):
        row = run.row
        if row.status not in _COMPLETE or row.replay_of in site.runs or row.settings.get("start"):
            continue
        judged = tuple(told(site, run, step) for step in run.steps)
        if any(one.over_naive for one in judged):
            found.setdefault(row.replay_of or row.id, (run, judged))
    ordered = sorted(found.values(), key=lambda one: (one[0].row.strategy == ASTRA, one[0].row.strategy))
    known = Counter(_name(run) for run, _ in ordered)
    return [
        Entrant(run, judged, f"{_name(run)}, run {run.row.id[:8]}" if known[_name(run)] > 1 else _name(run))
        for run, judged in ordered
    ]


def _name(run: Run) -> str:
    return f"{run.row.strategy}, answered by {_answered_by(run)}"


def _answered_by(run: Run) -> str:
    return run.row.model.removeprefix("answered by ") or run.row.provider


def _rival(site: Site, task_id: str) -> tuple[str, float] | None:
    """The fastest library with its speed-up over the naive kernel, as the table of versions has it."""
    library = site.library(task_id)
    if library is None or library.over_naive is None or not library.ranked:
        return None
    what = "the reference implementation" if library.is_reference else "the fastest library"
    return f"{library.name}, {what}", library.over_naive.value
