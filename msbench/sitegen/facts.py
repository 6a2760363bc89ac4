"""Everything the pages say, read from a store once: rows in stable orders, with figures beside their versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from sqlmodel import SQLModel, col, select

from msbench.figures.figures import CaseFigures, Figures, VersionFigures
from msbench.figures.ratios import Comparison, Occasion, Ratio
from msbench.model import Origin, Outcome, Status
from msbench.sitegen.entries import SHIPPED, WRITERS, Run, Version
from msbench.statistics import interval, joint_mean, round_medians
from msbench.store.samples import unpack_samples
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    MeasurementRow,
    ProfileRow,
    RecordRow,
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


class Site:
    """What a store holds, as the pages need it; times are those of one device, and ``on`` has those of the others."""

    def __init__(self, store: Store, device_id: str | None = None, *, names: Mapping[str, str] | None = None) -> None:
        """Read everything but samples.

        Args:
            store: usually ``union(…)``.
            device_id: whose times are shown; by default those of the first GPU of ``Store.recorded_devices``.
            names: what versions are called, by their ids, where that is not to follow from these times.

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
            self._records = {one.evaluation_id: one for one in rows(RecordRow)}
            self._runs = sorted(rows(RunRow), key=lambda r: (r.started_at, r.id))
            self._steps = sorted(rows(StepRow), key=lambda s: (s.run_id, s.number))
            timed = select(MeasurementRow.evaluation_id).where(col(MeasurementRow.median_ns).is_not(None)).distinct()
            self._timed = set(session.exec(timed))
        self._names = names
        self._others: dict[str, Site] = {}
        self._figures = Figures(store, device_id)
        self.ceilings = self._figures.ceilings
        self.figures = {task_id: self._figures.task(task_id) for task_id in self.tasks}
        self._reached: dict[str, tuple[Ratio | None, Ratio | None]] = {}
        self._families: dict[str, dict[str, tuple[CaseFigures, ...]]] = {}
        self._compared: dict[tuple[str, str], Comparison] = {}

    @property
    def device(self) -> DeviceRow | None:
        """Whose times are shown; None where nothing was timed."""
        return self.devices[self._figures.device.id] if self._figures.device else None

    def on(self, device_id: str | None) -> Site:
        """The same with the times of another GPU; itself where nothing was timed on that."""
        timed = {self.evaluations[one].device_id for one in self._timed}
        if (
            device_id not in timed
            or self.devices[device_id].kind != "cuda"
            or self.device in (None, self.devices[device_id])
        ):
            return self
        if device_id not in self._others:
            names = {version.id: version.name for version in self.versions.values()}
            self._others[device_id] = Site(self.store, device_id, names=names)
        return self._others[device_id]

    @cached_property
    def usual_flags(self) -> tuple[str, ...]:
        """The compiler's flags that all builds for the device have whose times are shown, in the order of the first."""
        device = self.device.id if self.device else None
        made = {one.build_id for one in self.evaluations.values() if one.device_id == device}
        found = [build.flags for build in self.builds.values() if build.flags and build.id in made]
        return tuple(flag for flag in found[0] if all(flag in flags for flags in found)) if found else ()

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
        best = {one.version.id for one in map(self._best, self.figures) if one}
        names = self._names or _names([one.version for one in everything], best)
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
                timed_on=tuple({e.device_id: self.devices[e.device_id] for e in own if e.id in self._timed}.values()),
                build=self.builds.get(judged.build_id or "") if judged else None,
                checks=tuple(checks[judged.id]) if judged else (),
                record=self._records.get(judged.id) if judged else None,
                profiles=tuple(
                    p for e in own if self.devices[e.device_id].kind == "cuda" for p in reversed(profiles[e.id])
                ),
            )
        return found

    @cached_property
    def successors(self) -> dict[str, Version]:
        """By the id of a naive kernel or a baseline whose file has changed since: what that file has become; and of what was
        shipped as the best, and came out of no run: the best now, unless that is older, as where the newer one was timed on another device."""
        newest: dict[tuple[str, str, str], Version] = {}
        baselines = [v for v in self.versions.values() if not v.ours and v.row.label]
        for v in sorted(baselines, key=lambda v: (v.row.created_at, v.id)):
            newest[v.task.id, v.row.origin, v.row.label] = v
        found = {v.id: newest[v.task.id, v.row.origin, v.row.label] for v in baselines}
        for v in self.versions.values():
            best = self.best(v.task.id)
            shipped = v.row.origin == Origin.EXPERT and v.row.label == "best" and not self.steps_of(v.id)
            if shipped and best and best.row.created_at > v.row.created_at:
                found[v.id] = best
        return {id: v for id, v in found.items() if v.id != id and v.measured}

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
        """A task's versions: naive, libraries, then ours; within each those that competed first, the fastest before others."""
        rank = {Origin.NAIVE: 0, Origin.LIBRARY: 1}

        def key(v: Version) -> tuple[int, bool, bool, float, str, str]:
            score = v.over_naive.value if v.over_naive else 0.0
            return rank.get(Origin(v.row.origin), 2), not v.ranked, not v.measured, -score, v.row.created_at, v.id

        return tuple(sorted((self.versions[one.version.id] for one in self.figures[task_id].versions), key=key))

    def naive(self, task_id: str) -> Version | None:
        """The task's naive kernel."""
        return next((v for v in self.versions_of(task_id) if v.row.origin == Origin.NAIVE), None)

    def library(self, task_id: str) -> Version | None:
        """The library version with the highest score; any where none has one."""
        return next((v for v in self.versions_of(task_id) if v.row.origin == Origin.LIBRARY), None)

    def best(self, task_id: str) -> Version | None:
        """The fastest version of ours in the session in which the task's versions competed; None where there is none.

        Of a run's versions whose intervals overlap it is the one that the run chose, by comparing them directly: so the
        run's page and the table of tasks name the same one.
        """
        best = self._best(task_id)
        return self.versions[best.version.id] if best else None

    def _best(self, task_id: str) -> VersionFigures | None:
        fastest = self.figures[task_id].best
        return (self._chosen(fastest) or fastest) if fastest else None

    def _chosen(self, version: VersionFigures) -> VersionFigures | None:
        """What the newest run that made this version chose; None where that is naive or clearly slower."""
        rivals = {one.version.id: one for one in self.figures[version.version.task_id].versions if _competes(one)}
        told = sorted(self.steps_of(version.version.id), key=lambda one: (not one[0].replayed, one[0].row.started_at))
        for run, _ in reversed(told):
            chosen = rivals.get(run.row.best_version_id or "")
            if chosen and _reaches(chosen.score, version.score):
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
    def conversations(self) -> dict[tuple[str, int], str]:
        """The page of each step's conversation, by run and step: where the same was answered before, that one."""
        pages: dict[tuple[tuple[str, str], ...], str] = {}
        found = {}
        for run in sorted(self.runs.values(), key=lambda run: run.replayed):
            for step in run.steps:
                replies = tuple((call.row.agent, call.reply.content) for call in self.calls(run.row.id, step.number))
                if replies:
                    href = f"{run.href.removesuffix('.html')}-step-{step.number}.html"
                    found[run.row.id, step.number] = pages.setdefault(replies, href)
        return found

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % interval of the median time of each shown measurement, in ns, by the measurement's id.

        It comes from the rounds' medians, and is widened to the median of all samples where that lies outside by a tick.
        """
        cases = [c for v in self.versions.values() for one in v.cases for c in (one, *one.twins)]
        shown = {c.measurement_id: c.median_ns for c in cases}
        families = [of_one for v in self.versions.values() for of_one in self.family(v).values()]
        shown |= {c.measurement_id: c.median_ns for cases in families for c in cases}
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

    def compared(self, version: Version, reference: Version) -> Comparison:
        """A version against another one of its task, in one session that has both.

        It is that of the step which made it from the other, so that all pages have the figures that the step was judged by;
        else the newest.
        """
        key = version.id, reference.id
        if key not in self._compared:
            self._compared[key] = self._compare(version, reference)
        return self._compared[key]

    def _compare(self, version: Version, reference: Version) -> Comparison:
        if version.task.id != reference.task.id or not (version.measured and reference.measured):
            return Comparison((), None, None)
        for _, step in self.steps_of(version.id):
            evaluation = self.evaluations.get(step.evaluation_id or "")
            if evaluation is not None and reference == self.predecessor(version):
                found = self.within(evaluation.recorded_from or evaluation.id, version.id, reference.id)
                if found.overall is not None:
                    return found
        return self._figures.compare(version.id, reference.id)

    def family(self, version: Version) -> dict[str, tuple[CaseFigures, ...]]:
        """A version of ours beside its predecessor and its best child, or the one of them with which a session has it.

        By id; all times are of one session, as those of a step's parent and those of its child may not be.
        """
        if version.id not in self._families:
            parent, child = self.predecessor(version), self.best_child(version)
            others = [v.id for v in (parent, child) if v is not None]
            wanted = [others, others[:1], others[1:], []] if version.measured and version.ours else []
            found = (self._figures.together([version.id, *rest]) for rest in wanted)
            self._families[version.id] = next(filter(None, found), {})
        return self._families[version.id]

    def best_child(self, version: Version) -> Version | None:
        """The version with the highest score that was made from it."""
        found = [self.versions[c] for c in version.children if self.versions[c].measured]
        return max(found, key=lambda c: (c.over_naive.value if c.over_naive else 0.0, c.id), default=None)

    def within(self, evaluation_id: str, version_id: str, reference_id: str) -> Comparison:
        """A version against another one in the session of an evaluation."""
        return self._figures.compare(version_id, reference_id, evaluation_id)

    def occasions(self, version: Version) -> list[Occasion]:
        """A version's scores in the sessions of runs, beside the figures that it is shown with."""
        return self._figures.occasions(version.figures) if version.measured else []

    def reached(self, version: Version) -> tuple[Ratio | None, Ratio | None]:
        """The fraction of the roofline that a version reaches where bytes or operations bound it, and an empty call's part
        of its time where a launch does: geometric means over these cases, with what the times' intervals make of them."""
        if version.id not in self._reached:
            parts = [self._fractions(version, launches) for launches in (False, True)]
            means = [joint_mean(part) if part else None for part in parts]
            self._reached[version.id] = (means[0] and Ratio(*means[0], None), means[1] and Ratio(*means[1], None))
        return self._reached[version.id]

    def _fractions(self, version: Version, launches: bool) -> list[tuple[float, float, float]]:
        found = []
        for case in version.cases if version.over_naive else ():
            if case.bound and case.median_ns and (case.bound.term == "launch") is launches:
                low, high = self.intervals.get(case.measurement_id or "", (case.median_ns, case.median_ns))
                bound = case.bound.time_ns
                found.append((bound / case.median_ns, bound / high, bound / low))
        return found

    def author(self, run: Run) -> str:
        """Who answered a run's prompts, in the words that every page has: a replay's are the recorded run's."""
        return (self.runs.get(run.row.replay_of or "") or run).author

    def written_by(self, version: Version) -> str:
        """Who wrote a version, in the words that every page has."""
        told = self.steps_of(version.id)
        return self.author(told[0][0]) if told else WRITERS[Origin(version.row.origin)]

    def over(self, version: Version, reference: Version) -> Ratio | None:
        """How many times as fast ``version`` is as ``reference``; None where nothing compares them."""
        return self.compared(version, reference).overall


def _reaches(lower: Ratio | None, higher: Ratio | None) -> bool:
    """Whether two ratios' intervals overlap."""
    return lower is not None and higher is not None and lower.high >= higher.low


def _competes(figures: VersionFigures) -> bool:
    return figures.ranked and figures.score is not None and figures.version.origin not in (Origin.NAIVE, Origin.LIBRARY)


def _names(versions: Iterable[VersionRow], best: Collection[str]) -> dict[str, str]:
    """Each version's label; with the beginning of its id where several of the task are labelled so.

    Of naive kernels and baselines the newest is the one that is meant by their label. Only the best is called best: what
    msbench once shipped as the best, from ``best.cu``, is labelled so, too.
    """
    labelled: dict[tuple[str, str], list[VersionRow]] = defaultdict(list)
    for version in versions:
        label = SHIPPED if version.label == "best" and version.id not in best else version.label
        labelled[version.task_id, label].append(version)
    names = {}
    for (_, label), same in labelled.items():
        newest = max(same, key=lambda version: (version.created_at, version.id))
        known = newest if len(same) == 1 or newest.origin in (Origin.NAIVE, Origin.LIBRARY) else None
        for version in same:
            short = version.id[:6]
            names[version.id] = label if version is known and label else f"{label} ({short})" if label else short
    return names
