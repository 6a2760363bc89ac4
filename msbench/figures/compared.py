"""Compares two recordings version by version and case by case: has anything become slower?

A baseline that became slower between two recordings was measured badly, which flatters whatever is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import col, select

from msbench.figures.timings import CHECKED
from msbench.model import Origin
from msbench.store.store import Store
from msbench.store.tables import CaseRow, DeviceRow, EvaluationRow, MeasurementRow, VersionRow

_Key = tuple[str, str, str, str, str]
"""Device, task, origin, version and case, by their names: another unit of the same device is as good."""


@dataclass(frozen=True)
class Compared:
    """One version's newest time on one case in either database, in ns. ``same_source``: whether its file is the same."""

    task_id: str
    version: str
    library: bool
    case_name: str
    before_ns: float
    after_ns: float
    same_source: bool

    @property
    def ratio(self) -> float:
        """How many times as long it takes now."""
        return self.after_ns / self.before_ns


def compared(before: Store, after: Store) -> list[Compared]:
    """What both have, by task, version and case.

    A version goes by its label, so that a changed file is compared with what it was; one without a label is the same
    only if its file is.
    """
    old, new = _newest(before), _newest(after)
    return [
        Compared(task, version, origin == Origin.LIBRARY, case, old[key][0], new[key][0], old[key][1] == new[key][1])
        for key in sorted(old.keys() & new.keys())
        for _, task, origin, version, case in (key,)
    ]


def _newest(store: Store) -> dict[_Key, tuple[float, str]]:
    """Each version's newest time on each case, and its id."""
    query = (
        select(MeasurementRow, CaseRow, VersionRow, DeviceRow)
        .join(EvaluationRow, col(EvaluationRow.id) == col(MeasurementRow.evaluation_id))
        .join(CaseRow, col(CaseRow.id) == col(MeasurementRow.case_id))
        .join(VersionRow, col(VersionRow.id) == col(EvaluationRow.version_id))
        .join(DeviceRow, col(DeviceRow.id) == col(EvaluationRow.device_id))
        .where(col(EvaluationRow.status).in_(CHECKED), col(EvaluationRow.recorded_from).is_(None))
        .where(col(MeasurementRow.fault).is_(None))
        .order_by(col(EvaluationRow.started_at), col(MeasurementRow.id))
    )
    with store.session() as session:
        return {
            (device.name, case.task_id, version.origin, version.label or version.id, case.name): (
                one.median_ns,
                version.id,
            )
            for one, case, version, device in session.exec(query)
            if one.median_ns
        }
