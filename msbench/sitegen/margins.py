"""How near honest versions come to two limits that are there for cheats, counted among what a database holds."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import fmean
from typing import TypeGuard

from sqlmodel import select

from msbench.model import Status
from msbench.sitegen.facts import Site
from msbench.store.tables import MeasurementRow

COLD_SHARE = 0.4
"""A version whose cold time is a smaller part of its hot time is refused."""

SHIFT_NS = 400.0
"""What empty kernels take in a version's process moves its times by no more, for each launch."""


@dataclass(frozen=True)
class Margins:
    """What came nearest to the limits, of versions that passed on the site's device.

    ``cold_share``: the least part of its hot time that a call took cold, of ``measurements``; it was ``subject``.
    ``shift_ns``: the furthest that empty kernels of one process were from their mean in all of a group, of ``groups``.
    """

    cold_share: float
    subject: str
    measurements: int
    shift_ns: float
    groups: int


def margins(site: Site) -> Margins | None:
    """Counts anew; None where nothing was timed hot, or no two versions together."""
    if site.device is None:
        return None
    passed = {
        one.id: one.version_id
        for one in site.evaluations.values()
        if (one.device_id, one.status, one.recorded_from) == (site.device.id, Status.PASSED, None)
    }
    shares, groups = [], defaultdict(list)
    row = MeasurementRow
    with site.store.session() as session:
        for evaluation_id, case_id, cold_ns, hot_ns in session.exec(
            select(row.evaluation_id, row.case_id, row.median_ns, row.hot_ns)
        ):
            if evaluation_id in passed and _is_time(cold_ns) and _is_time(hot_ns):
                shares.append((cold_ns / hot_ns, passed[evaluation_id], case_id))
        for evaluation_id, group_id, floor_ns in session.exec(select(row.evaluation_id, row.group_id, row.floor_ns)):
            if evaluation_id in passed and _is_time(floor_ns):
                groups[group_id].append(floor_ns)
    shifts = [max(abs(floor - fmean(floors)) for floor in floors) for floors in groups.values() if len(floors) > 1]
    if not shares or not shifts:
        return None
    share, version_id, case_id = min(shares)
    version = site.versions[version_id]
    subject = f"{version.task.operator}/{version.task.precision}, {version.name}, {site.cases[case_id].name}"
    return Margins(share, subject, len(shares), max(shifts), len(shifts))


def _is_time(value: object) -> TypeGuard[float]:
    """Whether it is one: columns of any database may hold anything."""
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0
