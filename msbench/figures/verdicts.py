"""Which versions are right: the newest evaluations decide, case by case."""

from __future__ import annotations

from sqlmodel import Session, col, func, select

from msbench.model import Status
from msbench.store.tables import CaseRow, CheckRow, EvaluationRow, MeasurementRow, VersionRow


class Verdicts:
    """What evaluations say about versions.

    A failure stands until the same case is passed later, or until another version of the harness has judged the source:
    what once failed a held-out case is not saved by a later evaluation that leaves that case out. ``unsupported`` is no
    verdict, and an evaluation on another device counts only for a version that was never evaluated on this one.
    """

    def __init__(self, session: Session, device_id: str | None, task_id: str | None = None) -> None:
        """Load the verdicts of a device (on one task)."""
        query = select(EvaluationRow).order_by(col(EvaluationRow.started_at), col(EvaluationRow.id))
        if task_id is not None:
            query = query.join(VersionRow, col(VersionRow.id) == col(EvaluationRow.version_id))
            query = query.where(col(VersionRow.task_id) == task_id)
        here: dict[str, list[EvaluationRow]] = {}
        elsewhere: dict[str, list[EvaluationRow]] = {}
        for row in session.exec(query):
            by_version = here if row.device_id == device_id else elsewhere
            by_version.setdefault(row.version_id, []).append(row)
        self._evaluations = elsewhere | here
        self._cases: dict[str, dict[str, str | None]] = {}
        for model in (CheckRow, MeasurementRow):
            found = session.exec(
                select(model.evaluation_id, CaseRow.name, func.min(model.message))
                .join(CaseRow, col(CaseRow.id) == col(model.case_id))
                .group_by(col(model.evaluation_id), col(CaseRow.name))
            )
            for evaluation_id, name, message in found:
                cases = self._cases.setdefault(evaluation_id, {})
                cases[name] = cases.get(name) or message

    def newest(self, version_id: str) -> EvaluationRow | None:
        """The newest evaluation that gave a verdict; if none did, the newest."""
        evaluations = self._evaluations.get(version_id, [])
        judged = [row for row in evaluations if row.status != Status.UNSUPPORTED]
        return next(reversed(judged or evaluations), None)

    def failures(self, version_id: str) -> dict[str, str]:
        """The cases that a version fails, and why."""
        newest = self.newest(version_id)
        verdicts: dict[str, str | None] = {}
        for row in self._evaluations.get(version_id, []):
            if newest is not None and row.harness == newest.harness:
                verdicts.update(self._cases.get(row.id, {}))
        return {name: message for name, message in verdicts.items() if message is not None}

    def failure(self, version_id: str, case_name: str) -> str | None:
        """Why a version fails a case; None if it doesn't, as far as anyone knows."""
        return self.failures(version_id).get(case_name)

    def problem(self, version_id: str) -> str | None:
        """Why a version is not to be trusted with a score, as a sentence; None if nothing speaks against it."""
        newest = self.newest(version_id)
        if newest is None:
            return "It was never evaluated."
        if newest.status not in (Status.PASSED, Status.PROFILE_FAILED):
            return newest.message or f"Its newest evaluation is {newest.status}."
        return next(iter(self.failures(version_id).values()), None)
