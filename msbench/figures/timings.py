"""All times of one device in memory, by version and case, compared where they were measured together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session, col, select

from msbench.figures.twins import are_twins, twins
from msbench.model import Status
from msbench.statistics import Logs, interval, paired_logs, round_centres
from msbench.store.samples import unpack_samples
from msbench.store.tables import CaseRow, EvaluationRow, MeasurementRow, VersionRow

CHECKED = (Status.PASSED.value, Status.MEASURE_FAILED.value, Status.PROFILE_FAILED.value)
"""The statuses of evaluations whose checks passed: only their times are ever shown."""


@dataclass(frozen=True, eq=False)
class Timing:
    """One measurement, without the samples (see ``Timings.log_ratios``)."""

    row: MeasurementRow
    case: CaseRow
    version_id: str
    measured_at: str
    command: str
    median_ns: float


@dataclass(frozen=True, eq=False)
class TimingSession:
    """Versions of a task that were measured against each other in one command, by version and case name.

    Only times of one session are ever compared or ranked: on another day the device may have had other clocks, and
    the command other settings. ``twins``: likewise the times of large cases with other inputs (see ``figures.twins``),
    which are not among ``times``.
    """

    measured_at: str
    times: Mapping[str, Mapping[str, Timing]]
    twins: Mapping[str, Mapping[str, Timing]] = field(default_factory=dict)

    @classmethod
    def of(cls, members: Mapping[str, Mapping[str, Timing]]) -> TimingSession:
        """The session of some times, by version and case name."""
        everything = [one for times in members.values() for one in times.values()]
        second = twins(one.case for one in everything)

        def part(is_twin: bool) -> dict[str, dict[str, Timing]]:
            parts = {
                version: {name: one for name, one in times.items() if (name in second) is is_twin}
                for version, times in members.items()
            }
            return {version: times for version, times in parts.items() if times}

        return cls(max(one.measured_at for one in everything), part(False), part(True))

    def among(self, versions: Collection[str], case_name: str) -> Timing | None:
        """The fastest of some versions on a case, or on a twin; None where none of them has a time."""
        either = [times.get(one, {}).get(case_name) for one in versions for times in (self.times, self.twins)]
        found = [timing for timing in either if timing is not None]
        return min(found, key=lambda timing: (timing.median_ns, timing.version_id), default=None)

    def twins_of(self, version_id: str, case: CaseRow) -> list[Timing]:
        """A version's times on a case's twins."""
        return [one for one in self.twins.get(version_id, {}).values() if are_twins(case, one.case)]

    def has(self, evaluation_id: str | None) -> bool:
        """Whether an evaluation's times are among them."""
        return any(one.row.evaluation_id == evaluation_id for times in self.times.values() for one in times.values())

    def covers(self, version_id: str, case_names: Collection[str]) -> bool:
        """Whether a version has a time on all of some cases."""
        return all(name in self.times.get(version_id, {}) for name in case_names)


class Timings:
    """What was measured on one device: newest first, failed measurements and mere repetitions of records left out."""

    def __init__(self, session: Session, device_id: str, task_id: str | None = None) -> None:
        """Load all of a device's times (of one task)."""
        query = (
            select(MeasurementRow, CaseRow, EvaluationRow)
            .join(EvaluationRow, col(EvaluationRow.id) == col(MeasurementRow.evaluation_id))
            .join(CaseRow, col(CaseRow.id) == col(MeasurementRow.case_id))
            .where(col(EvaluationRow.device_id) == device_id, col(EvaluationRow.status).in_(CHECKED))
            .where(col(EvaluationRow.recorded_from).is_(None), col(MeasurementRow.fault).is_(None))
            .order_by(col(EvaluationRow.started_at).desc(), col(MeasurementRow.id))
        )
        if task_id is not None:
            query = query.where(col(CaseRow.task_id) == task_id)
        self._centres: dict[str, NDArray[np.float64]] = {}
        self._ratios: dict[tuple[str, str], tuple[Logs, tuple[float, float]] | None] = {}
        self._of: dict[tuple[str, str], list[Timing]] = {}
        self._groups: dict[tuple[str, str], dict[str, Timing]] = {}
        for row, case, evaluation in session.exec(query):
            if row.median_ns is not None:
                version = evaluation.version_id
                timing = Timing(row, case, version, evaluation.started_at, evaluation.command, row.median_ns)
                self._of.setdefault((version, case.name), []).append(timing)
                self._groups.setdefault((row.group_id, row.case_id), {}).setdefault(version, timing)

    def cases(self, version_ids: Collection[str]) -> list[CaseRow]:
        """The cases that any of the versions was measured on but twins, one row a name (the newest), the smallest case first."""
        found: dict[str, Timing] = {}
        for (version_id, name), timings in self._of.items():
            if version_id in version_ids and (name not in found or timings[0].measured_at > found[name].measured_at):
                found[name] = timings[0]
        cases = [timing.case for timing in found.values()]
        second = twins(cases)
        return sorted((case for case in cases if case.name not in second), key=lambda case: (case.nbytes, case.name))

    def sessions(self, task_id: str) -> list[TimingSession]:
        """A task's sessions, the newest first. Evaluations belong to one that have a group of measurements in common."""
        leader: dict[str, str] = {}

        def find(evaluation: str) -> str:
            while leader.setdefault(evaluation, evaluation) != evaluation:
                evaluation = leader[evaluation]
            return evaluation

        of_task = [
            list(group.values())
            for group in self._groups.values()
            if next(iter(group.values())).case.task_id == task_id
        ]
        for group in of_task:
            first = find(group[0].row.evaluation_id)
            for timing in group[1:]:
                leader[find(timing.row.evaluation_id)] = first
        found: dict[str, dict[str, dict[str, Timing]]] = defaultdict(lambda: defaultdict(dict))
        for group in of_task:
            for timing in group:
                found[find(timing.row.evaluation_id)][timing.version_id].setdefault(timing.case.name, timing)
        sessions = [TimingSession.of(members) for members in found.values()]
        return sorted(sessions, key=lambda session: session.measured_at, reverse=True)

    def log_ratios(self, timing: Timing, reference: Timing) -> tuple[Logs, tuple[float, float]] | None:
        """ln(reference / time) of each pair of rounds, and its interval; None where they have no rounds in common."""
        pair = timing.row.id, reference.row.id
        if pair not in self._ratios:
            try:
                logs = paired_logs(self._centres_of(reference), self._centres_of(timing), timing.row.sittings)
            except ValueError:
                self._ratios[pair] = None
            else:
                self._ratios[pair] = logs, interval(logs)
        return self._ratios[pair]

    def _centres_of(self, timing: Timing) -> NDArray[np.float64]:
        """Each round's centre, in ns."""
        known = self._centres.get(timing.row.id)
        if known is None:
            known = self._centres[timing.row.id] = round_centres(unpack_samples(timing.row.samples))
        return known


def by_origin(versions: Collection[VersionRow], origin: str) -> list[str]:
    """The ids of the versions of an origin."""
    return [version.id for version in versions if version.origin == origin]


def ranking_of(
    sessions: Sequence[TimingSession],
    case_names: Collection[str],
    naive: Collection[str],
    libraries: Collection[str],
    ours: Collection[str],
) -> TimingSession | None:
    """The newest session that has the naive kernel on every case and, as far as there is such a session, ours and a library.

    ``ours`` on every case, too; a library need not take all sizes.
    """

    def whole(session: TimingSession, versions: Collection[str]) -> bool:
        return any(session.covers(one, case_names) for one in versions)

    found = [session for session in sessions if whole(session, naive)]
    preferences: tuple[Callable[[TimingSession], bool], ...] = (
        lambda session: whole(session, ours) and not session.times.keys().isdisjoint(libraries),
        lambda session: whole(session, ours),
        lambda session: not session.times.keys().isdisjoint(libraries),
        lambda session: True,
    )
    for wanted in preferences:
        if chosen := next(filter(wanted, found), None):
            return chosen
    return None


def own_session(
    sessions: Sequence[TimingSession], ranking: TimingSession | None, version_id: str, naive: Collection[str]
) -> TimingSession | None:
    """Whose times a version is shown with: the ranking session's, else its newest beside a naive version, else its newest."""
    if ranking and version_id in ranking.times:
        return ranking
    own = [session for session in sessions if version_id in session.times]
    return next((session for session in own if any(one in session.times for one in naive)), own[0] if own else None)
