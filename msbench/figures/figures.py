"""The figures shown to people and agents, computed from measurements. Reads a store, changes nothing.

A ratio is only ever taken between versions that were measured against each other in one session. A task has a *ranking
session*: the newest in which its versions competed on all cases, odd ones aside; its cases are those that count. Versions that
were not in it have the figures of their own session and no rank. A score is the geometric mean of a version's ratios to the
naive version over these cases. A version that fails one, or wasn't measured on it, has no score.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlmodel import Session, col, select

from msbench import roofline, statistics
from msbench.errors import UnknownNameError
from msbench.figures.gathered import gathered
from msbench.figures.ratios import Comparison, Occasion, Ratio, compare, mean, occasions, paired
from msbench.figures.timings import Timing, Timings, TimingSession, by_origin, own_session, ranking_of
from msbench.figures.twins import differ
from msbench.figures.verdicts import Verdicts
from msbench.model import Ceilings, Device, Origin
from msbench.spec import Split
from msbench.store.store import Store
from msbench.store.tables import CaseRow, EvaluationRow, LineageRow, RunRow, StepRow, TaskRow, VersionRow


@dataclass(frozen=True)
class CaseFigures:
    """A version on a case. Without a time, ``problem`` says why; without a measurement beside it there is no ratio.

    ``disturbed`` says what disturbed the measurement, say clocks that were held down; None if nothing is known to have.
    ``twins``: it on the same sizes with other inputs, where that was timed beside it. ``alone``, of a twin: its time differs
    (``twins.differ``), and that of no library does that was timed on both.
    """

    case: CaseRow
    problem: str | None = None
    median_ns: float | None = None
    hot_ns: float | None = None
    host_ns: float | None = None
    noisy: bool = False
    disturbed: str | None = None
    rounds: int = 0
    speedup: Ratio | None = None
    library: Ratio | None = None
    bound: roofline.Bound | None = None
    roofline_fraction: float | None = None
    measurement_id: str | None = None
    evaluation_id: str | None = None
    measured_at: str | None = None
    twins: tuple[CaseFigures, ...] = ()
    alone: bool = False

    @property
    def slower(self) -> CaseFigures:
        """The slowest of it and the twins on which the version's time alone differs: speed that it owes to its inputs does not count."""
        return max((self, *(one for one in self.twins if one.alone)), key=lambda one: one.median_ns or 0.0)


@dataclass(frozen=True)
class VersionFigures:
    """A version of a task on a device.

    ``score`` is its speed-up over naive, ``library_score`` that over each case's fastest library, ``bar_score`` that over
    the faster of the two on each case: a library that is slower than the naive kernel is no bar. Each exists only if it
    does for all cases; ``problem`` says why there is no score. ``roofline_fraction`` is the geometric mean over the cases
    that bytes or operations bound, ``launch_fraction`` over those that are bounded by a launch: what an empty call takes of
    the version's time. Either is None where there is no such case.
    ``evaluation`` is the newest one that judged it: on this device, or, if it never ran there, elsewhere.
    ``session``: the session's ``measured_at``, which is a newer instant than the version's own where others were timed later.
    ``ranked``: whether its times are of the task's ranking session, so that they compare with those of other versions.
    """

    version: VersionRow
    parents: tuple[str, ...]
    evaluation: EvaluationRow | None
    cases: tuple[CaseFigures, ...]
    score: Ratio | None
    library_score: Ratio | None
    bar_score: Ratio | None
    roofline_fraction: float | None
    launch_fraction: float | None
    problem: str | None
    ranked: bool
    session: str | None
    measured_at: str | None


@dataclass(frozen=True)
class TaskFigures:
    """A task on a device: versions are the naive ones first, then libraries, then the others by age.

    ``best`` is the ranked version with the highest score that is no library's; ``library`` the library with the highest
    score. ``measured_at`` is the newest time's instant in the ranking session, and ``commands`` are those that made it.
    """

    task: TaskRow
    device: Device | None
    ceilings: Ceilings | None
    cases: tuple[CaseRow, ...]
    versions: tuple[VersionFigures, ...]
    naive: VersionFigures | None
    library: VersionFigures | None
    best: VersionFigures | None
    measured_at: str | None
    commands: tuple[str, ...]


class Figures:
    """The figures of one device, from one state of a store."""

    def __init__(self, store: Store, device_id: str | None = None, task_id: str | None = None) -> None:
        """Load what is needed.

        Args:
            store: usually ``union(…)``.
            device_id: whose figures; by default those of the first GPU of ``Store.recorded_devices``, if there is one.
            task_id: load this task alone, which is quicker.

        Raises:
            UnknownNameError: there is no such device or task.
        """
        self.device = _device(store, device_id)
        self.ceilings = store.usual_ceilings(self.device.id) if self.device else None
        self._tasks = {task.id: task for task in store.tasks()}
        if task_id is not None and task_id not in self._tasks:
            raise UnknownNameError("task", task_id, sorted(self._tasks))
        wanted = self._tasks if task_id is None else {task_id: self._tasks[task_id]}
        self._versions: dict[str, list[VersionRow]] = {task: [] for task in wanted}
        for version in store.versions(task_id):
            self._versions[version.task_id].append(version)
        self._task_of = {one.id: task for task, rows in self._versions.items() for one in rows}
        self._known_sessions: dict[str, list[TimingSession]] = {}
        with store.session() as session:
            self._parents = _parents(session)
            self._verdicts = Verdicts(session, self.device.id if self.device else None, task_id)
            self._timings = Timings(session, self.device.id if self.device else "", task_id)
            self._stepped = set(session.exec(select(StepRow.evaluation_id)))
            self._chosen = set(session.exec(select(RunRow.best_version_id)))

    def tasks(self) -> list[TaskFigures]:
        """Every task, by id."""
        return [self.task(task_id) for task_id in self._versions]

    def task(self, task_id: str) -> TaskFigures:
        """One task.

        Raises:
            UnknownNameError: it was not loaded.
        """
        if task_id not in self._versions:
            raise UnknownNameError("task", task_id, list(self._versions))
        task, rows = self._tasks[task_id], sorted(self._versions[task_id], key=_reading_order)
        naive, libraries = by_origin(rows, Origin.NAIVE), by_origin(rows, Origin.LIBRARY)
        cases = [case for case in self._timings.cases(naive) if case.split != Split.HELDOUT]
        sessions = self._sessions(task_id)
        ours = {row.id for row in rows} - {*naive, *libraries}
        names = [case.name for case in cases if case.split != Split.ODD] or [case.name for case in cases]
        benched = [session for session in sessions if not self._is_of_a_run(session)]
        chosen = [session for session in sessions if not self._chosen.isdisjoint(session.times)]
        ranking = ranking_of(benched, names, naive, libraries, ours)
        if ranking is None or (ours and ours.isdisjoint(ranking.times)):
            ranking = ranking_of(chosen, names, naive, libraries, ours) or ranking
        if ranking:
            cases = [case for case in cases if ranking.among(naive, case.name)]
        versions = [
            self._version(task, row, cases, naive, libraries, own_session(sessions, ranking, row.id, naive), ranking)
            for row in rows
        ]
        ranked = [one for one in versions if one.ranked]
        shown = ranking.times.values() if ranking else ()
        return TaskFigures(
            task=task,
            device=self.device,
            ceilings=self.ceilings,
            cases=tuple(cases),
            versions=tuple(versions),
            naive=next((one for one in reversed(ranked) if one.version.id in naive and one.score), None),
            library=_highest(one for one in ranked if one.version.id in libraries),
            best=_highest(one for one in ranked if one.version.id in ours),
            measured_at=ranking.measured_at if ranking else None,
            commands=tuple(sorted({timing.command for times in shown for timing in times.values()})),
        )

    def _is_of_a_run(self, session: TimingSession) -> bool:
        """Whether it is a step's: a step is timed beside its parent alone, so what it says ranks no other version."""
        return any(one.row.evaluation_id in self._stepped for times in session.times.values() for one in times.values())

    def compare(self, version_id: str, reference_id: str, evaluation_id: str | None = None) -> Comparison:
        """A version against another one, say its parent: in the newest session that has both, or in an evaluation's."""
        return compare(self._timings, self._session(version_id, reference_id, evaluation_id), version_id, reference_id)

    def _session(self, version_id: str, reference_id: str, evaluation_id: str | None) -> TimingSession | None:
        both = [one for one in self._sessions_of(version_id) if reference_id in one.times]
        return next((one for one in both if evaluation_id is None or one.has(evaluation_id)), None)

    def together(self, version_ids: Sequence[str]) -> dict[str, tuple[CaseFigures, ...]]:
        """The times of some versions of a task, by their ids: those of the newest session that has all of them."""
        sessions = [one for one in self._sessions_of(version_ids[0]) if one.times.keys() >= set(version_ids)]
        task = self._tasks[self._task_of[version_ids[0]]]
        return {
            row.id: tuple(
                self._case(task, row, one.case, one, None, None) for one in sessions[0].times[row.id].values()
            )
            for row in self._versions[task.id]
            if sessions and row.id in version_ids
        }

    def occasions(self, figures: VersionFigures) -> list[Occasion]:
        """A version's scores in sessions of runs, beside the one that it is shown with; the newest first.

        Of other sessions nothing is shown, and a publication may drop them.
        """
        sessions = self._sessions_of(figures.version.id)
        shown = next((one for one in sessions if any(one.has(c.evaluation_id) for c in figures.cases)), None)
        if shown is None:
            return []
        sessions = [one for one in sessions if self._is_of_a_run(one)]
        naive = by_origin(self._versions[figures.version.task_id], Origin.NAIVE)
        return occasions(self._timings, sessions, shown, figures.version.id, naive)

    def _sessions_of(self, version_id: str) -> list[TimingSession]:
        return [one for one in self._sessions(self._task_of.get(version_id, "")) if version_id in one.times]

    def _sessions(self, task_id: str) -> list[TimingSession]:
        if task_id not in self._known_sessions:
            self._known_sessions[task_id] = self._timings.sessions(task_id)
        return self._known_sessions[task_id]

    def _version(
        self,
        task: TaskRow,
        row: VersionRow,
        cases: Sequence[CaseRow],
        naive: Collection[str],
        libraries: Collection[str],
        session: TimingSession | None,
        ranking: TimingSession | None,
    ) -> VersionFigures:
        figures: list[CaseFigures] = []
        speedups: list[statistics.Logs] = []
        ratios: list[statistics.Logs] = []
        bars: list[statistics.Logs] = []
        references: set[str | None] = set()
        times = session.times[row.id] if session else {}
        for case in cases:
            timing = times.get(case.name)
            against_naive = self._against(timing, session, naive)
            against_library = self._against(timing, session, libraries)
            if against_naive is not None:
                speedups.append(against_naive[1])
                references.add(against_naive[0].reference_id)
            if against_library is not None:
                ratios.append(against_library[1])
            if against_naive is not None and against_library is not None:
                bars.append(min(against_naive, against_library, key=lambda one: one[0].value)[1])
            speedup, library = against_naive and against_naive[0], against_library and against_library[0]
            found = self._case(task, row, case, timing, speedup, library)
            if timing is not None and session is not None and found.problem is None:
                found = replace(found, twins=self._twins(task, row, timing, session, naive, libraries))
            figures.append(found)
        problem = self._problem(row, figures)
        whole = problem is None
        return VersionFigures(
            version=row,
            parents=self._parents.get(row.id, ()),
            evaluation=self._verdicts.newest(row.id),
            cases=tuple(figures),
            score=mean(speedups, references.pop() if len(references) == 1 else None) if whole else None,
            library_score=mean(ratios, None) if whole and len(ratios) == len(cases) else None,
            bar_score=mean(bars, None) if whole and len(bars) == len(cases) else None,
            roofline_fraction=_reached(figures, launches=False) if whole else None,
            launch_fraction=_reached(figures, launches=True) if whole else None,
            problem=problem,
            ranked=session is not None and session is ranking,
            session=session.measured_at if session else None,
            measured_at=max((timing.measured_at for timing in times.values()), default=None),
        )

    def _twins(
        self,
        task: TaskRow,
        row: VersionRow,
        timing: Timing,
        session: TimingSession,
        naive: Collection[str],
        libraries: Collection[str],
    ) -> tuple[CaseFigures, ...]:
        """A version on the twins of a case that it was timed on."""

        def differs(version_id: str, twin: Timing) -> bool:
            one, other = (session.among([version_id], name) for name in (timing.case.name, twin.case.name))
            return one is not None and other is not None and differ(one.median_ns, other.median_ns)

        found = []
        for twin in session.twins_of(row.id, timing.case):
            speedup, library = (self._against(twin, session, references) for references in (naive, libraries))
            figures = self._case(task, row, twin.case, twin, speedup and speedup[0], library and library[0])
            alone = differs(row.id, twin) and not any(differs(one, twin) for one in libraries)
            found.append(replace(figures, alone=alone))
        return tuple(found)

    def _case(
        self,
        task: TaskRow,
        row: VersionRow,
        case: CaseRow,
        timing: Timing | None,
        speedup: Ratio | None,
        library: Ratio | None,
    ) -> CaseFigures:
        failure = self._verdicts.failure(row.id, case.name)
        if failure is not None or timing is None:
            return CaseFigures(case, problem=failure or "not measured")
        bound = None
        if self.ceilings is not None:
            sectors = gathered(task, timing.case)
            bound = roofline.bound_ns(timing.case.nbytes, timing.case.flops, task.compute, self.ceilings, sectors)
        return CaseFigures(
            case=timing.case,
            median_ns=timing.median_ns,
            hot_ns=timing.row.hot_ns,
            host_ns=timing.row.host_ns,
            noisy=timing.row.noisy,
            disturbed=timing.row.throttle or None,
            rounds=timing.row.rounds,
            speedup=speedup,
            library=library,
            bound=bound,
            roofline_fraction=roofline.fraction(timing.median_ns, bound) if bound else None,
            measurement_id=timing.row.id,
            evaluation_id=timing.row.evaluation_id,
            measured_at=timing.measured_at,
        )

    def _against(
        self, timing: Timing | None, session: TimingSession | None, references: Collection[str]
    ) -> tuple[Ratio, statistics.Logs] | None:
        """A time's ratio to the fastest of some versions on the same case of its session."""
        reference = session.among(references, timing.case.name) if session and timing else None
        return paired(self._timings, timing, reference) if timing and reference else None

    def _problem(self, row: VersionRow, cases: Sequence[CaseFigures]) -> str | None:
        """Why a version has no score, as a sentence; None if it has one."""
        verdict = self._verdicts.problem(row.id)
        if verdict is not None:
            return verdict
        if not cases:
            return "The naive version was not measured on this device." if self.device else "There are no times."
        missing = [one.case.name for one in cases if one.speedup is None]
        if not missing:
            return None
        if len(missing) == len(cases):
            return "It was not measured beside the naive version on this device."
        few = "; ".join(missing[:3])
        return f"{len(missing)} of {len(cases)} cases were not measured beside the naive version: {few}."


def tasks(store: Store, device_id: str | None = None) -> list[TaskFigures]:
    """Every task's figures on a device: by default the first GPU of ``Store.recorded_devices``.

    Raises:
        UnknownNameError: there is no such device.
    """
    return Figures(store, device_id).tasks()


def task(store: Store, task_id: str, device_id: str | None = None) -> TaskFigures:
    """One task's figures on a device: by default the first GPU of ``Store.recorded_devices``.

    Raises:
        UnknownNameError: there is no such task or device.
    """
    return Figures(store, device_id, task_id).task(task_id)


def _device(store: Store, device_id: str | None) -> Device | None:
    devices = store.recorded_devices()
    if device_id is None:
        return next((device for device in devices if device.kind == "cuda"), None)
    found = [device for device in devices if device.id == device_id]
    if not found:
        raise UnknownNameError("measured device", device_id, [f"{device.id} ({device.name})" for device in devices])
    return found[0]


def _parents(session: Session) -> dict[str, tuple[str, ...]]:
    parents: dict[str, tuple[str, ...]] = {}
    for row in session.exec(select(LineageRow).order_by(col(LineageRow.version_id), col(LineageRow.parent_id))):
        parents[row.version_id] = (*parents.get(row.version_id, ()), row.parent_id)
    return parents


def _reading_order(version: VersionRow) -> tuple[int, str, str]:
    first = {Origin.NAIVE.value: 0, Origin.LIBRARY.value: 1}
    return first.get(version.origin, 2), version.created_at, version.id


def _reached(cases: Iterable[CaseFigures], *, launches: bool) -> float | None:
    fractions = [
        one.roofline_fraction
        for one in cases
        if one.bound and one.roofline_fraction and (one.bound.term == "launch") is launches
    ]
    return statistics.geometric_mean(fractions) if fractions else None


def _highest(versions: Iterable[VersionFigures]) -> VersionFigures | None:
    scored = [(one.score.value, one.version.id, one) for one in versions if one.score is not None]
    return max(scored)[2] if scored else None
