"""Compares runs of the same tasks that differ only in what agents saw of profiles.

Each draft is one sample: what it is worth is its speed-up over the naive kernel, the geometric mean over the task's cases; a draft
that failed is worth 1, since the naive kernel stays. Two views are compared by the logarithms of these, averaged within each task:
tasks are what the interval is about, so that many drafts of few tasks make it no narrower than it should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any

from msbench.model import Outcome, ProfileView
from msbench.store.store import Store
from msbench.store.tables import DeviceRow, RunRow

VIEWS = tuple(view.value for view in ProfileView)
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Arm:
    """A run: what its drafts are worth, None for one that failed, in their order; ``device`` is the name of the GPU, ``day`` when it began."""

    task_id: str
    view: str
    run_id: str
    device: str
    day: str
    drafts: tuple[float | None, ...]

    @property
    def mean(self) -> float:
        """The geometric mean of what they are worth."""
        return exp(fmean(log(one or 1.0) for one in self.drafts))

    @property
    def best(self) -> float:
        """What the best is worth."""
        return max(one or 1.0 for one in self.drafts)


@dataclass(frozen=True)
class Contrast:
    """How many times as fast drafts are with one view as with another, the mean over ``tasks``, with its 95 % interval."""

    view: str
    other: str
    tasks: int
    ratio: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out 1."""
        return not self.low <= 1 <= self.high


def arms(store: Store) -> list[Arm]:
    """Runs that finished, timed their drafts, and are alike but for their view: of each task the newest such set that has two views."""
    sets: dict[tuple[str, ...], dict[str, RunRow]] = {}
    for run in sorted(store.runs(), key=lambda run: run.started_at):
        if run.status == "finished" and run.replay_of is None and run.executor == "cuda":
            view = run.settings.get("profile_view", ProfileView.FILTERED.value)
            sets.setdefault((run.task_id, *_alike(run)), {})[view] = run
    newest: dict[str, dict[str, RunRow]] = {}
    for (task_id, *_), found in sorted(sets.items(), key=lambda item: max(run.started_at for run in item[1].values())):
        if len(found) > 1:
            newest[task_id] = found
    every = [_arm(store, found[view], view) for found in newest.values() for view in VIEWS if view in found]
    return sorted((arm for arm in every if arm.drafts), key=lambda arm: (arm.task_id, VIEWS.index(arm.view)))


def contrasts(found: Iterable[Arm]) -> list[Contrast]:
    """Each two views, over the tasks that have both; none where they share fewer than two."""
    by_view: dict[str, dict[str, Arm]] = {}
    for arm in found:
        by_view.setdefault(arm.view, {})[arm.task_id] = arm
    result = []
    for view, other in combinations([one for one in VIEWS if one in by_view], 2):
        mine, theirs = by_view[view], by_view[other]
        logs = [log(mine[task].mean / theirs[task].mean) for task in mine if task in theirs]
        if len(logs) > 1:
            half = _students_t(len(logs) - 1) * stdev(logs) / sqrt(len(logs))
            middle = fmean(logs)
            result.append(Contrast(view, other, len(logs), exp(middle), exp(middle - half), exp(middle + half)))
    return result


def _alike(run: RunRow) -> tuple[str, ...]:
    plan: Mapping[str, Any] = run.settings["plan"]
    return (
        run.strategy,
        run.provider,
        run.model,
        str(run.device_id),
        str(run.settings["rounds"]),
        str(run.settings.get("start")),
        str([case["dims"] for case in plan["cases"]]),
        str(plan.get("time_budget_s")),
    )


def _arm(store: Store, run: RunRow, view: str) -> Arm:
    steps = [step for step in store.steps(run.id) if step.outcome != Outcome.BASELINE]
    drafts = tuple(None if step.outcome == Outcome.FAILED else step.speedup for step in steps)
    with store.session() as session:
        device = session.get(DeviceRow, run.device_id) if run.device_id else None
    return Arm(run.task_id, view, run.id, device.name if device else "", run.started_at[:10], drafts)


def _students_t(freedom: int) -> float:
    from scipy.stats import t  # takes a while to load

    return float(t.ppf((1 + CONFIDENCE) / 2, freedom))
