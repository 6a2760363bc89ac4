"""All times of one device in memory, found by version and case, and compared where they were measured together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlmodel import Session, col, select

from msbench.model import Status
from msbench.statistics import Logs, paired_logs, round_centres
from msbench.store.samples import unpack_samples
from msbench.store.tables import CaseRow, EvaluationRow, MeasurementRow, VersionRow

CHECKED = (Status.PASSED.value, Status.MEASURE_FAILED.value, Status.PROFILE_FAILED.value)
"""The statuses of evaluations whose checks passed: only their times are ever shown."""


@dataclass(frozen=True, eq=False)
class Timing:
    """One measurement, without the samples (see ``Timings.medians``)."""

    row: MeasurementRow
    case: CaseRow
    version_id: str
    measured_at: str
    command: str
    median_ns: float


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
        self._of: dict[tuple[str, str], list[Timing]] = {}
        self._groups: dict[tuple[str, str], dict[str, Timing]] = {}
        for row, case, evaluation in session.exec(query):
            if row.median_ns is not None:
                version = evaluation.version_id
                timing = Timing(row, case, version, evaluation.started_at, evaluation.command, row.median_ns)
                self._of.setdefault((version, case.name), []).append(timing)
                self._groups.setdefault((row.group_id, row.case_id), {}).setdefault(version, timing)

    def newest(self, version_id: str, case_name: str) -> Timing | None:
        """A version's newest time on a case."""
        return next(iter(self._of.get((version_id, case_name), ())), None)

    def cases(self, version_ids: Collection[str]) -> list[CaseRow]:
        """The cases that any of the versions was measured on, one row a name (the newest), the smallest case first."""
        found: dict[str, Timing] = {}
        for (version_id, name), timings in self._of.items():
            if version_id in version_ids and (name not in found or timings[0].measured_at > found[name].measured_at):
                found[name] = timings[0]
        return sorted((timing.case for timing in found.values()), key=lambda case: (case.nbytes, case.name))

    def together(self, version_id: str, references: Collection[str], case_name: str) -> tuple[Timing, Timing] | None:
        """The newest measurement of a version beside one of the references, and the fastest of those references."""
        for timing in self._of.get((version_id, case_name), ()):
            group = self._groups[timing.row.group_id, timing.row.case_id]
            beside = [group[reference] for reference in references if reference in group]
            if beside:
                return timing, min(beside, key=lambda one: (one.median_ns, one.version_id))
        return None

    def log_ratios(self, timing: Timing, reference: Timing) -> Logs | None:
        """ln(reference / time) of each pair of rounds; None where they have no rounds in common."""
        try:
            return paired_logs(self._centres_of(reference), self._centres_of(timing), timing.row.sittings)
        except ValueError:
            return None

    def _centres_of(self, timing: Timing) -> NDArray[np.float64]:
        """Each round's centre, in ns."""
        known = self._centres.get(timing.row.id)
        if known is None:
            known = self._centres[timing.row.id] = round_centres(unpack_samples(timing.row.samples))
        return known


def by_origin(versions: Collection[VersionRow], origin: str) -> list[str]:
    """The ids of the versions of an origin."""
    return [version.id for version in versions if version.origin == origin]
