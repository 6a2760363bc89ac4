"""The figures that people and agents are shown, computed from what was measured. Reads a store, changes nothing.

A ratio is only ever taken between versions that were measured interleaved, on the newest such occasion. A score is the
geometric mean of a version's ratios to the naive version over a task's cases: those that the naive version was measured
on, except held-out ones. A version that fails a case, or wasn't measured on one, has no score.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlmodel import Session, col, select

from msbench import roofline, statistics
from msbench.errors import UnknownNameError
from msbench.model import Ceilings, Device, Origin
from msbench.spec import Split
from msbench.store.store import Store
from msbench.store.tables import CaseRow, EvaluationRow, LineageRow, TaskRow, VersionRow
from msbench.store.timings import Timing, Timings, by_origin
from msbench.store.verdicts import Verdicts


@dataclass(frozen=True)
class Ratio:
    """t_reference / t_version with its 95 % interval: above 1, the version is faster.

    ``reference_id`` is None in a mean over cases that have different references (the fastest library of each).
    """

    value: float
    low: float
    high: float
    reference_id: str | None


@dataclass(frozen=True)
class CaseFigures:
    """A version on a case. Without a time, ``problem`` says why; without a measurement beside it there is no ratio.

    ``disturbed`` says what disturbed the measurement, say clocks that were held down; None if nothing is known to have.
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


@dataclass(frozen=True)
class VersionFigures:
    """A version of a task on a device.

    ``score`` is its speed-up over naive, ``library_score`` that over each case's fastest library, ``bar_score`` that over
    the faster of the two on each case: a library that is slower than the naive kernel is no bar. ``roofline_fraction`` is
    the geometric mean of the cases'. Each exists only if it does for all cases; ``problem`` says why there is no score.
    ``evaluation`` is the newest one that judged it: on this device, or, if it never ran there, elsewhere.
    """

    version: VersionRow
    parents: tuple[str, ...]
    evaluation: EvaluationRow | None
    cases: tuple[CaseFigures, ...]
    score: Ratio | None
    library_score: Ratio | None
    bar_score: Ratio | None
    roofline_fraction: float | None
    problem: str | None


@dataclass(frozen=True)
class TaskFigures:
    """A task on a device: versions are the naive ones first, then libraries, then the others by age.

    ``best`` is the version with the highest score that is no library's; ``library`` the library with the highest score.
    ``measured_at`` is the newest time's instant, and ``commands`` are those that made the times shown.
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


@dataclass(frozen=True)
class Comparison:
    """A version against another on every case that they were measured on together; ``overall``: geometric mean."""

    cases: tuple[tuple[CaseRow, Ratio], ...]
    overall: Ratio | None


class Figures:
    """The figures of one device, from one state of a store."""

    def __init__(self, store: Store, device_id: str | None = None, task_id: str | None = None) -> None:
        """Load what is needed.

        Args:
            store: usually ``Store.union(…)``.
            device_id: whose figures; by default the GPU's with the most measurements, if there is one.
            task_id: load this task alone, which is quicker.

        Raises:
            UnknownNameError: there is no such device or task.
        """
        self.device = _device(store, device_id)
        self.ceilings = store.ceilings(self.device.id) if self.device else None
        self._tasks = {task.id: task for task in store.tasks()}
        if task_id is not None and task_id not in self._tasks:
            raise UnknownNameError("task", task_id, sorted(self._tasks))
        wanted = self._tasks if task_id is None else {task_id: self._tasks[task_id]}
        self._versions: dict[str, list[VersionRow]] = {task: [] for task in wanted}
        for version in store.versions(task_id):
            self._versions[version.task_id].append(version)
        with store.session() as session:
            self._parents = _parents(session)
            self._verdicts = Verdicts(session, self.device.id if self.device else None, task_id)
            self._timings = Timings(session, self.device.id if self.device else "", task_id)

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
        versions = [self._version(task, row, cases, naive, libraries) for row in rows]
        shown = [timing for row in rows for case in cases if (timing := self._shown(row.id, naive, case.name))]
        return TaskFigures(
            task=task,
            device=self.device,
            ceilings=self.ceilings,
            cases=tuple(cases),
            versions=tuple(versions),
            naive=next((one for one in reversed(versions) if one.version.id in naive and one.score), None),
            library=_highest(one for one in versions if one.version.id in libraries),
            best=_highest(one for one in versions if one.version.id not in libraries),
            measured_at=max((timing.measured_at for timing in shown), default=None),
            commands=tuple(sorted({timing.command for timing in shown})),
        )

    def compare(self, version_id: str, reference_id: str) -> Comparison:
        """A version against another one, say its parent."""
        cases: list[tuple[CaseRow, Ratio]] = []
        logs: list[statistics.Logs] = []
        for case in self._timings.cases([version_id]):
            pair = self._paired(version_id, [reference_id], case.name)
            if pair is not None:
                cases.append((case, pair[0]))
                logs.append(pair[1])
        return Comparison(tuple(cases), _mean(logs, reference_id))

    def _version(
        self,
        task: TaskRow,
        row: VersionRow,
        cases: Sequence[CaseRow],
        naive: Collection[str],
        libraries: Collection[str],
    ) -> VersionFigures:
        figures: list[CaseFigures] = []
        speedups: list[statistics.Logs] = []
        ratios: list[statistics.Logs] = []
        bars: list[statistics.Logs] = []
        references: set[str | None] = set()
        for case in cases:
            against_naive = self._paired(row.id, naive, case.name)
            against_library = self._paired(row.id, libraries, case.name)
            if against_naive is not None:
                speedups.append(against_naive[1])
                references.add(against_naive[0].reference_id)
            if against_library is not None:
                ratios.append(against_library[1])
            if against_naive is not None and against_library is not None:
                bars.append(min(against_naive, against_library, key=lambda one: one[0].value)[1])
            speedup, library = against_naive and against_naive[0], against_library and against_library[0]
            figures.append(self._case(task, row, case, naive, speedup, library))
        problem = self._problem(row, figures)
        whole = problem is None
        fractions = [one.roofline_fraction for one in figures if one.roofline_fraction is not None]
        return VersionFigures(
            version=row,
            parents=self._parents.get(row.id, ()),
            evaluation=self._verdicts.newest(row.id),
            cases=tuple(figures),
            score=_mean(speedups, references.pop() if len(references) == 1 else None) if whole else None,
            library_score=_mean(ratios, None) if whole and len(ratios) == len(cases) else None,
            bar_score=_mean(bars, None) if whole and len(bars) == len(cases) else None,
            roofline_fraction=statistics.geometric_mean(fractions) if whole and len(fractions) == len(cases) else None,
            problem=problem,
        )

    def _case(
        self,
        task: TaskRow,
        row: VersionRow,
        case: CaseRow,
        naive: Collection[str],
        speedup: Ratio | None,
        library: Ratio | None,
    ) -> CaseFigures:
        failure = self._verdicts.failure(row.id, case.name)
        timing = self._shown(row.id, naive, case.name)
        if failure is not None or timing is None:
            return CaseFigures(case, problem=failure or "not measured")
        bound = None
        if self.ceilings is not None:
            bound = roofline.bound_ns(timing.case.nbytes, timing.case.flops, task.compute, self.ceilings)
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

    def _shown(self, version_id: str, naive: Collection[str], case_name: str) -> Timing | None:
        """The time that goes with the speed-up; the newest one if it was never measured beside a naive version."""
        pair = self._timings.together(version_id, naive, case_name)
        return pair[0] if pair else self._timings.newest(version_id, case_name)

    def _paired(
        self, version_id: str, references: Collection[str], case_name: str
    ) -> tuple[Ratio, statistics.Logs] | None:
        pair = self._timings.together(version_id, references, case_name)
        logs = self._timings.log_ratios(*pair) if pair else None
        if pair is None or logs is None:
            return None
        low, high = statistics.interval(logs)
        return Ratio(math.exp(statistics.estimate(logs)), math.exp(low), math.exp(high), pair[1].version_id), logs

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
    """Every task's figures on a device: by default the GPU with the most measurements.

    Raises:
        UnknownNameError: there is no such device.
    """
    return Figures(store, device_id).tasks()


def task(store: Store, task_id: str, device_id: str | None = None) -> TaskFigures:
    """One task's figures on a device: by default the GPU with the most measurements.

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


def _mean(logs: Sequence[statistics.Logs], reference_id: str | None) -> Ratio | None:
    return Ratio(*statistics.bootstrap_geometric_mean(logs), reference_id) if logs else None


def _highest(versions: Iterable[VersionFigures]) -> VersionFigures | None:
    scored = [(one.score.value, one.version.id, one) for one in versions if one.score is not None]
    return max(scored)[2] if scored else None
