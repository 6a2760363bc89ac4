"""How near honest versions come to a limit that is there for cheats, counted among what a database holds."""

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

SHIFT_NS = 400.0
"""What empty kernels take in a version's process moves its times by no more, for each launch."""


@dataclass(frozen=True)
class Margins:
    """What came nearest to the limit, of versions that passed on the site's device.

    ``shift_ns``: the furthest that empty kernels of one process were from their mean in all of a group, of ``groups``.
    """

    shift_ns: float
    groups: int


def margins(site: Site) -> Margins | None:
    """Counts anew; None where no two versions were timed together."""
    if site.device is None:
        return None
    passed = {
        one.id
        for one in site.evaluations.values()
        if (one.device_id, one.status, one.recorded_from) == (site.device.id, Status.PASSED, None)
    }
    groups = defaultdict(list)
    row = MeasurementRow
    with site.store.session() as session:
        for evaluation_id, group_id, floor_ns in session.exec(select(row.evaluation_id, row.group_id, row.floor_ns)):
            if evaluation_id in passed and _is_time(floor_ns):
                groups[group_id].append(floor_ns)
    shifts = [max(abs(floor - fmean(floors)) for floor in floors) for floors in groups.values() if len(floors) > 1]
    return Margins(max(shifts), len(shifts)) if shifts else None


def _is_time(value: object) -> TypeGuard[float]:
    """Whether it is one: columns of any database may hold anything."""
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0
