"""Everything the pages say, read from a store once: rows in stable orders, with figures beside their versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sqlmodel import SQLModel, select

from msbench.model import Origin, Outcome, Status
from msbench.sitegen.entries import Run, Version
from msbench.statistics import interval, round_medians
from msbench.store.figures import Figures, Ratio
from msbench.store.samples import unpack_samples
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    MeasurementRow,
    ProfileRow,
    RunRow,
    StepRow,
    TaskRow,
    VersionRow,
)

if TYPE_CHECKING:
    from msbench.store.runs import Call
    from msbench.store.store import Store

_Row = TypeVar("_Row", bound=SQLModel)

_NOTHING_NEW = (Outcome.BASELINE, Outcome.DUPLICATE, Outcome.UNCHANGED, Outcome.NO_KERNEL)


@dataclass(frozen=True)
class Compared:
    """How many times as fast a version is as another: over all cases, and by a case's name."""

    overall: Ratio | None
    cases: dict[str, Ratio]
    direct: bool


class Site:
    """What a store holds, as the pages need it; times are those of one device."""

    def __init__(self, store: Store, device_id: str | None = None) -> None:
        """Read everything but samples.

        Args:
            store: usually ``Store.union(…)``.
            device_id: whose times are shown; by default the GPU's with the most measurements.

        Raises:
            UnknownNameError: nothing was measured on that device.
        """
        self.store = store
        with store.session() as session:

            def rows(model: type[_Row]) -> list[_Row]:
                return list(session.exec(select(model)))

            self.devices = {d.id: d for d in sorted(rows(DeviceRow), key=lambda d: (d.kind != "cuda", d.name, d.id))}
            self.tasks = {
                t.id: t
                for t in sorted(
                    rows(TaskRow), key=lambda t: (t.scenario, t.operator, t.precision != "fp32", t.precision)
                )
            }
            self.cases = {c.id: c for c in sorted(rows(CaseRow), key=lambda c: (c.task_id, c.nbytes, c.name, c.id))}
            self.builds = {b.id: b for b in sorted(rows(BuildRow), key=lambda b: b.id)}
            self.evaluations = {e.id: e for e in sorted(rows(EvaluationRow), key=lambda e: (e.started_at, e.id))}
            place = {case: i for i, case in enumerate(self.cases)}
            self.checks = sorted(rows(CheckRow), key=lambda c: (place[c.case_id], c.variant, c.seed, c.id))
            self._profiles = sorted(rows(ProfileRow), key=lambda p: (place[p.case_id], p.source != "static", p.id))
            self._runs = sorted(rows(RunRow), key=lambda r: (r.started_at, r.id))
            self._steps = sorted(rows(StepRow), key=lambda s: (s.run_id, s.number))
        self._figures = Figures(store, device_id)
        self.ceilings = self._figures.ceilings
        self.figures = {task_id: self._figures.task(task_id) for task_id in self.tasks}
        self._compared: dict[tuple[str, str], Compared] = {}

    @property
    def device(self) -> DeviceRow | None:
        """Whose times are shown; None where nothing was timed."""
        return self.devices[self._figures.device.id] if self._figures.device else None

    @cached_property
    def versions(self) -> dict[str, Version]:
        """All versions by id: by task, the naive ones first, then libraries, then the others by age."""
        everything = [one for task in self.figures.values() for one in task.versions]
        children: dict[str, list[str]] = defaultdict(list)
        evaluations: dict[str, list[EvaluationRow]] = defaultdict(list)
        checks: dict[str, list[CheckRow]] = defaultdict(list)
        profiles: dict[str, list[ProfileRow]] = defaultdict(list)
        for one in everything:
            for parent in one.parents:
                children[parent].append(one.version.id)
        for evaluation in self.evaluations.values():
            evaluations[evaluation.version_id].insert(0, evaluation)
        for check in self.checks:
            checks[check.evaluation_id].append(check)
        for profile in self._profiles:
            if profile.fault is None:
                profiles[profile.evaluation_id].append(profile)
        names = _names([one.version for one in everything])
        found = {}
        for one in everything:
            own, judged = evaluations[one.version.id], one.evaluation
            if judged is not None and judged.status == Status.PASSED:
                judged = self.evaluations.get(judged.recorded_from or "", judged)
            found[one.version.id] = Version(
                name=names[one.version.id],
                task=self.tasks[one.version.task_id],
                figures=one,
                evaluation=judged,
                children=tuple(children[one.version.id]),
                evaluations=tuple(own),
                device=self.devices[judged.device_id] if judged else None,
                build=self.builds.get(judged.build_id or "") if judged else None,
                checks=tuple(checks[judged.id]) if judged else (),
                profiles=tuple(
                    p for e in own if self.devices[e.device_id].kind == "cuda" for p in reversed(profiles[e.id])
                ),
            )
        return found

    @cached_property
    def runs(self) -> dict[str, Run]:
        """All runs by id, oldest first."""
        steps = defaultdict(list)
        for step in self._steps:
            steps[step.run_id].append(step)
        return {r.id: Run(r, self.tasks[r.task_id], tuple(steps[r.id])) for r in self._runs}

    @cached_property
    def operators(self) -> dict[str, tuple[TaskRow, ...]]:
        """The tasks of each operator, by scenario and name."""
        found: dict[str, list[TaskRow]] = defaultdict(list)
        for task in self.tasks.values():
            found[task.operator].append(task)
        return {name: tuple(tasks) for name, tasks in found.items()}

    def versions_of(self, task_id: str) -> tuple[Version, ...]:
        """A task's versions: naive, libraries, then ours; within each the fastest first, what has no score last."""
        rank = {Origin.NAIVE: 0, Origin.LIBRARY: 1}

        def key(v: Version) -> tuple[int, bool, float, str, str]:
            score = v.over_naive.value if v.over_naive else 0.0
            return rank.get(Origin(v.row.origin), 2), not v.measured, -score, v.row.created_at, v.id

        return tuple(sorted((self.versions[one.version.id] for one in self.figures[task_id].versions), key=key))

    def naive(self, task_id: str) -> Version | None:
        """The task's naive kernel."""
        return next((v for v in self.versions_of(task_id) if v.row.origin == Origin.NAIVE), None)

    def library(self, task_id: str) -> Version | None:
        """The library version with the highest score; any where none has one."""
        return next((v for v in self.versions_of(task_id) if v.row.origin == Origin.LIBRARY), None)

    def best(self, task_id: str) -> Version | None:
        """The fastest version of ours that has a score; None where there is none.

        Of a run's versions whose intervals overlap it is the one that the run chose, by comparing them directly: so the
        run's page and the table of tasks name the same one.
        """
        fastest = next((v for v in self.versions_of(task_id) if v.ours and v.over_naive), None)
        return (self._chosen(fastest) or fastest) if fastest else None

    def _chosen(self, version: Version) -> Version | None:
        """What the newest run that made this version chose; None where that is naive or clearly slower."""
        told = sorted(self.steps_of(version.id), key=lambda one: (not one[0].replayed, one[0].row.started_at))
        for run, _ in reversed(told):
            chosen = self.versions.get(run.row.best_version_id or "")
            if chosen and chosen.ours and _reaches(chosen.over_naive, version.over_naive):
                return chosen
        return None

    def fastest(self, task_id: str) -> Version | None:
        """Whatever is the fastest, ours or not; None where nothing was timed."""
        rivals = (self.best(task_id), self.library(task_id), self.naive(task_id))
        timed = [v for v in rivals if v and v.measured]
        return max(timed, key=lambda v: v.over_naive.value if v.over_naive else 0.0, default=None)

    def runs_of(self, task_id: str) -> tuple[Run, ...]:
        """A task's runs, oldest first."""
        return tuple(r for r in self.runs.values() if r.row.task_id == task_id)

    def steps_of(self, version_id: str) -> tuple[tuple[Run, StepRow], ...]:
        """The steps that made a version: recorded conversations before their replays."""
        found = [
            (run, step)
            for run in self.runs.values()
            for step in run.steps
            if step.version_id == version_id and step.outcome not in _NOTHING_NEW
        ]
        return tuple(sorted(found, key=lambda pair: pair[0].replayed))

    def parent(self, version: Version) -> Version | None:
        """What a version was made from: as its step says; else the first of its parents."""
        told = self.steps_of(version.id)
        named = told[0][1].parent_version_id if told else None
        return self.versions.get(named or "", self.versions[version.parents[0]] if version.parents else None)

    def ancestors(self, version: Version) -> tuple[Version, ...]:
        """Its parent, its parent's parent, and so on."""
        found: list[Version] = []
        above = self.parent(version)
        while above is not None and above is not version and above not in found:
            found.append(above)
            above = self.parent(above)
        return tuple(found)

    def predecessor(self, version: Version) -> Version | None:
        """The nearest ancestor with times: what a version's progress is measured against."""
        return next((v for v in self.ancestors(version) if v.measured), None)

    def calls(self, run_id: str, step_number: int) -> list[Call]:
        """The conversation behind a step."""
        return self.store.calls(run_id, step_number)

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of the median time of each shown measurement, in ns, by the measurement's id.

        It comes from the rounds' medians, and is widened to the median of all samples where that lies outside by a tick.
        """
        shown = {c.measurement_id: c.median_ns for v in self.versions.values() for c in v.cases}
        found = {}
        with self.store.session() as session:
            columns = MeasurementRow.id, MeasurementRow.samples, MeasurementRow.sittings
            for id, samples, sittings in session.exec(select(*columns)):
                median = shown.get(id)
                if median is not None:
                    parts = np.array_split(round_medians(unpack_samples(samples)), sittings)
                    low, high = interval(tuple(part[~np.isnan(part)] for part in parts))
                    found[id] = min(low, median), max(high, median)
        return found

    def compared(self, version: Version, reference: Version) -> Compared:
        """A version against another one of its task.

        They were measured interleaved, or both beside the naive kernel on different occasions: then the ratio of their
        speed-ups is taken, with an interval that holds whatever the two intervals allow.
        """
        key = version.id, reference.id
        if key not in self._compared:
            self._compared[key] = self._compare(version, reference)
        return self._compared[key]

    def _compare(self, version: Version, reference: Version) -> Compared:
        if version.task.id != reference.task.id or not (version.measured and reference.measured):
            return Compared(None, {}, direct=True)
        pairs = self._figures.compare(version.id, reference.id)
        theirs = {c.case.name: c.speedup for c in reference.cases}
        if len(pairs.cases) == len(version.cases) or not (version.over_naive and reference.over_naive):
            return Compared(pairs.overall, {case.name: ratio for case, ratio in pairs.cases}, direct=True)
        both = [(c.case.name, c.speedup, theirs.get(c.case.name)) for c in version.cases]
        cases = {name: _quotient(own, other) for name, own, other in both if own and other}
        return Compared(_quotient(version.over_naive, reference.over_naive), cases, direct=False)

    def over(self, version: Version, reference: Version) -> Ratio | None:
        """How many times as fast ``version`` is as ``reference``; None where nothing compares them."""
        return self.compared(version, reference).overall


def _reaches(lower: Ratio | None, higher: Ratio | None) -> bool:
    """Whether two ratios' intervals overlap."""
    return lower is not None and higher is not None and lower.high >= higher.low


def _quotient(own: Ratio, other: Ratio) -> Ratio:
    return Ratio(own.value / other.value, own.low / other.high, own.high / other.low, None)


def _names(versions: Iterable[VersionRow]) -> dict[str, str]:
    """Each version's label; with the beginning of its id where several of the task are labelled so.

    Of naive kernels and baselines the newest is the one that is meant by their label.
    """
    labelled: dict[tuple[str, str], list[VersionRow]] = defaultdict(list)
    for version in versions:
        labelled[version.task_id, version.label].append(version)
    names = {}
    for (_, label), same in labelled.items():
        newest = max(same, key=lambda version: (version.created_at, version.id))
        known = newest if len(same) == 1 or newest.origin in (Origin.NAIVE, Origin.LIBRARY) else None
        for version in same:
            short = version.id[:6]
            names[version.id] = label if version is known and label else f"{label} ({short})" if label else short
    return names
