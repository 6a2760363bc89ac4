"""Compares a spec's bytes and FLOPs with the profiler's counts: whether rooflines are based on the right figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlmodel import col, select

from msbench.figures.timings import CHECKED
from msbench.spec import Split
from msbench.store.store import Store
from msbench.store.tables import CaseRow, DeviceRow, EvaluationRow, ProfileRow, VersionRow

SECTOR = 32
"""Bytes of a sector of L2."""

OPERATIONS = {
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
}


@dataclass(frozen=True)
class Counted:
    """One task's large case: what its spec says, and what the version that moved the fewest bytes did.

    ``least_bytes`` went through DRAM; ``most_bytes`` has what may still have been in L2 at the end too. ``flops`` are fp32
    additions, multiplications and fused ones outside the matrix units; None where they were not counted.
    """

    task_id: str
    case_name: str
    version: str
    spec_bytes: int
    least_bytes: float
    most_bytes: float
    spec_flops: int
    flops: float | None
    measured_at: str

    @property
    def bytes_ratio(self) -> float:
        """Bytes moved over bytes of the spec, of what the counters leave open the nearest to 1."""
        return min(max(1.0, self.least_bytes / self.spec_bytes), self.most_bytes / self.spec_bytes)

    def bytes_agree(self, tolerance: float) -> bool:
        """Whether the bytes are within this share of the spec's."""
        return abs(self.bytes_ratio - 1) <= tolerance

    def flops_agree(self, tolerance: float) -> bool:
        """Whether the operations are, where they were counted."""
        return self.flops is None or abs(self.flops - self.spec_flops) <= tolerance * self.spec_flops


def moved_bytes(metrics: Mapping[str, Any], l2_bytes: int) -> tuple[float, float] | None:
    """The least and the most bytes that a call moved; None where they were not counted.

    All three counters are needed: written lines may stay in L2, at most all that were written and as many as it holds. (L2's own count of writes is no
    better: where L2 has two partitions, half of them pass through both and are counted twice.)
    """
    read = metrics.get("dram__bytes_read.sum")
    written = metrics.get("dram__bytes_write.sum")
    through_l2 = metrics.get("lts__t_sectors_op_write.sum")
    if read is None or written is None or through_l2 is None or read + written == 0:
        return None
    left = SECTOR * float(through_l2) - float(written)
    least = float(read) + float(written)
    return least, least + min(max(left, 0.0), l2_bytes)


def operations(metrics: Mapping[str, Any]) -> float | None:
    """fp32 operations outside the matrix units; None where not counted."""
    if not OPERATIONS.keys() <= metrics.keys():
        return None
    return sum(weight * float(metrics[name]) for name, weight in OPERATIONS.items())


def counted(store: Store) -> list[Counted]:
    """By task, the profile of the large case that moved the fewest bytes; a task without counters is absent."""
    query = (
        select(ProfileRow, CaseRow, VersionRow, EvaluationRow)
        .join(EvaluationRow, col(EvaluationRow.id) == col(ProfileRow.evaluation_id))
        .join(VersionRow, col(VersionRow.id) == col(EvaluationRow.version_id))
        .join(CaseRow, col(CaseRow.id) == col(ProfileRow.case_id))
        .where(col(ProfileRow.source) == "ncu", col(ProfileRow.fault).is_(None))
        .where(col(CaseRow.split) == Split.LARGE.value, col(EvaluationRow.status).in_(CHECKED))
    )
    found: dict[str, Counted] = {}
    with store.session() as session:
        l2_bytes = {device.id: device.l2_bytes for device in session.exec(select(DeviceRow))}
        for profile, case, version, evaluation in session.exec(query):
            moved = moved_bytes(profile.metrics, l2_bytes[evaluation.device_id])
            if moved is None:
                continue
            one = Counted(
                case.task_id,
                case.name,
                version.label or version.id[:12],
                case.nbytes,
                *moved,
                case.flops,
                operations(profile.metrics),
                evaluation.started_at,
            )
            known = found.get(case.task_id)
            if known is None or (one.least_bytes, one.measured_at) < (known.least_bytes, known.measured_at):
                found[case.task_id] = one
    return [found[task] for task in sorted(found)]
