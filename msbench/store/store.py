"""The store: every measurement, trial and conversation, in one database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlmodel import Session, col, func, select

from msbench.errors import IntegrityError, StoreError, UnknownNameError
from msbench.model import Candidate, Ceilings, Device, Evaluation, Status, Study, Trial
from msbench.spec import Operator, Task
from msbench.statistics import median
from msbench.store import convert
from msbench.store.engine import sqlite_path
from msbench.store.identity import is_itself
from msbench.store.rows import put_all
from msbench.store.runs import Runs, set_columns
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CeilingsRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    LineageRow,
    MeasurementRow,
    ProfileRow,
    RecordRow,
    RunRow,
    TaskRow,
    TrialRow,
    VersionRow,
)

_OF_A_BOUND = (
    "copy_bytes_per_s",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "l2_copy_bytes_per_s",
    "fp32_flops",
    "tf32_flops",
    "bf16_flops",
    "fp64_flops",
    "launch_ns",
)
_CLOCKS_DIFFER = timedelta(minutes=5)
_Result = TypeVar("_Result", CheckRow, MeasurementRow, ProfileRow)


class Store(Runs):
    """Evaluations, devices and versions, and the runs that made them (see ``Runs``). Close it, or use ``with``."""

    @classmethod
    def snapshot(cls, where: str | Path) -> Store:
        """A database as it is now, only to be read: a file is copied to memory and brought to the newest schema there.

        Raises:
            StoreError: it can't be read.
        """
        if sqlite_path(where) is None:
            return cls(where, read_only=True)
        return cls.read_to_memory(where)

    # ------------------------------------------------------------------ writing

    def add_evaluation(self, op: Operator, evaluation: Evaluation) -> str:
        """Store an evaluation and all that belongs to it, in one transaction; return its id. Repeating it changes nothing.

        Raises:
            StoreError: the database can't be written; nothing is stored then.
        """
        (evaluation_id,) = self.add_evaluations(op, [evaluation])
        return evaluation_id

    def add_evaluations(
        self, op: Operator, evaluations: Sequence[Evaluation], run_id: str | None = None, **fields: Any
    ) -> list[str]:
        """Store evaluations that belong together, such as a measured group, in one transaction; return their ids.

        Args:
            op: what they are evaluations of.
            evaluations: all or none of them are stored.
            run_id: the run that they are for; its columns ``fields`` are set in the same transaction.

        Raises:
            StoreError: the database can't be written; nothing is stored then.
            UnknownNameError: there is no such run; nothing is stored then.
        """
        converted = [convert.evaluation_rows(op, evaluation) for evaluation in evaluations]
        with self.writing() as session:
            for _, rows in converted:
                put_all(session.connection(), rows)
            if run_id is not None:
                set_columns(session, run_id, fields)
        return [row.id for row, _ in converted]

    def add_version(self, op: Operator, candidate: Candidate) -> str:
        """Store a version that hasn't been evaluated (yet), with its task; return its id."""
        now = _now()
        task = convert.task_row(Task(op, candidate.precision), now)
        with self.writing() as session:
            put_all(session.connection(), [task, *convert.version_rows(candidate, now)])
        return candidate.id

    def add_task(self, task: Task) -> str:
        """Store a task and its cases; return its id."""
        cases = [convert.case_row(task.at(case)) for case in task.operator.cases]
        with self.writing() as session:
            put_all(session.connection(), [convert.task_row(task, _now()), *cases])
        return task.id

    def add_device(self, device: Device) -> str:
        """Store a device; return its id."""
        with self.writing() as session:
            put_all(session.connection(), [convert.device_row(device)])
        return device.id

    def add_ceilings(self, device: Device, ceilings: Ceilings) -> None:
        """Store one measurement of a device's ceilings."""
        with self.writing() as session:
            put_all(session.connection(), [convert.device_row(device), convert.ceilings_row(device, ceilings)])

    def add_trials(self, trials: Iterable[Trial]) -> None:
        """Store trials of the evaluator, all or none, on devices that are stored already (``add_device``). Twice is once.

        Raises:
            StoreError: the database can't be written, or has none of a trial's device; nothing is stored then.
        """
        rows = [convert.trial_row(trial) for trial in trials]
        with self.writing() as session:
            put_all(session.connection(), rows)

    def check_clock(self) -> None:
        """Refuse to record on a clock that was set back: what is newest would not be what was made last.

        Raises:
            StoreError: something here is later than now, by more than clocks differ.
        """
        now = datetime.now(UTC)
        instants = (col(EvaluationRow.started_at), col(RunRow.started_at), col(VersionRow.created_at))
        with self.session() as session:
            latest = max((session.exec(select(func.max(column))).one() or "" for column in instants), default="")
        if latest > (now + _CLOCKS_DIFFER).isoformat():
            raise StoreError(
                f"The clock says {now:%Y-%m-%d %H:%M} UTC, but database {self.where} holds results of "
                f"{latest[:16].replace('T', ' ')}: correct the clock, or name another database with --db."
            )

    # ------------------------------------------------------------------ reading

    def ceilings(self, device_id: str, until: str | None = None) -> Ceilings | None:
        """The newest ceilings of a device, or those that were the newest at an instant; None if there are none."""
        query = select(CeilingsRow).where(col(CeilingsRow.device_id) == device_id)
        if until is not None:
            query = query.where(col(CeilingsRow.measured_at) <= until)
        with self.session() as session:
            row = session.exec(query.order_by(col(CeilingsRow.measured_at).desc(), col(CeilingsRow.id))).first()
            return convert.to_ceilings(row) if row else None

    def usual_ceilings(self, device_id: str) -> Ceilings | None:
        """The newest ceilings of a device with the median of all its measurements of what a bound is made of; None if there are none.

        An empty call takes up to a tenth more on one day than on another, and a figure should not depend on the last day's.
        """
        newest = self.ceilings(device_id)
        if newest is None:
            return None
        with self.session() as session:
            rows = session.exec(select(CeilingsRow).where(col(CeilingsRow.device_id) == device_id)).all()
        medians = {name: median([getattr(row, name) for row in rows]) for name in _OF_A_BOUND}
        return Ceilings(**(asdict(newest) | medians))

    def tasks(self) -> list[TaskRow]:
        """All tasks, by id."""
        with self.session() as session:
            return list(session.exec(select(TaskRow).order_by(col(TaskRow.id))))

    def cases(self, task_id: str) -> list[CaseRow]:
        """All cases of a task, the smallest first."""
        query = select(CaseRow).where(col(CaseRow.task_id) == task_id)
        with self.session() as session:
            return list(session.exec(query.order_by(col(CaseRow.nbytes), col(CaseRow.name), col(CaseRow.id))))

    def versions(self, task_id: str | None = None) -> list[VersionRow]:
        """All versions (of a task), oldest first."""
        query = select(VersionRow).order_by(col(VersionRow.created_at), col(VersionRow.id))
        if task_id is not None:
            query = query.where(col(VersionRow.task_id) == task_id)
        with self.session() as session:
            return list(session.exec(query))

    def version(self, version_id: str) -> VersionRow:
        """A version by its id, or by any beginning of it that no other version has.

        Raises:
            UnknownNameError: no version, or several, begin so.
        """
        query = select(VersionRow).where(col(VersionRow.id).startswith(version_id, autoescape=True)).limit(20)
        with self.session() as session:
            found = session.exec(query).all()
        if len(found) != 1 or not version_id:
            known = [f"{row.id[:12]} ({row.task_id} {row.label or row.origin})" for row in found]
            if not found:
                raise UnknownNameError(
                    "version", version_id, (), hint="msbench show OP lists an operator's versions with their ids."
                )
            raise UnknownNameError("single version", version_id, known)
        return found[0]

    def candidate(self, version_id: str) -> Candidate:
        """A version as what was submitted, its parents included.

        Raises:
            UnknownNameError: as ``version``.
        """
        version = self.version(version_id)
        with self.session() as session:
            task = session.get_one(TaskRow, version.task_id)
            parents = session.exec(select(LineageRow.parent_id).where(col(LineageRow.version_id) == version.id)).all()
            return convert.to_candidate(task, version, parents)

    def evaluations(self, version_id: str) -> list[EvaluationRow]:
        """A version's evaluations on all devices, oldest first."""
        query = select(EvaluationRow).where(col(EvaluationRow.version_id) == version_id)
        with self.session() as session:
            return list(session.exec(query.order_by(col(EvaluationRow.started_at), col(EvaluationRow.id))))

    def evaluation(self, evaluation_id: str) -> Evaluation:
        """An evaluation with everything that belongs to it, samples included; the smallest case's results come first.

        Raises:
            UnknownNameError: there is none of that id.
            IntegrityError: its row, or one of its results, is not what was stored.
        """
        with self.session() as session:
            row = session.get(EvaluationRow, evaluation_id)
            if row is None:
                raise UnknownNameError("evaluation", evaluation_id, [])
            device = convert.to_device(session.get_one(DeviceRow, row.device_id), row.unit, row.host)
            build = session.get(BuildRow, row.build_id) if row.build_id else None
            checks = _results(session, CheckRow, row.id)
            measurements = _results(session, MeasurementRow, row.id)
            profiles = _results(session, ProfileRow, row.id)
            record = session.exec(select(RecordRow).where(RecordRow.evaluation_id == row.id)).first()
        told = [record] if record else []
        for one in (row, *told, *(result for result, _ in (*checks, *measurements, *profiles))):
            if not is_itself(one):
                raise IntegrityError(
                    f"Evaluation {evaluation_id} in {self.where} was changed: its figures are not the measured "
                    "ones. See `msbench db check`, and restore the database from a copy."
                )
        candidate = self.candidate(row.version_id)
        return convert.to_evaluation(row, candidate, device, build, checks, measurements, profiles, record)

    def seconds(self, device_kind: str) -> dict[str, float]:
        """How long each version's newest evaluation on devices of a kind took, by the version's id."""
        query = (
            select(EvaluationRow.version_id, EvaluationRow.seconds)
            .join(DeviceRow, col(DeviceRow.id) == col(EvaluationRow.device_id))
            .where(col(DeviceRow.kind) == device_kind, col(EvaluationRow.recorded_from).is_(None))
            .order_by(col(EvaluationRow.started_at), col(EvaluationRow.id))
        )
        with self.session() as session:
            return dict(session.exec(query).all())

    def recorded(self, version_id: str, device_kind: str = "cuda") -> tuple[str, Evaluation] | None:
        """What was measured for exactly this version: the passed evaluation with the most cases, the newest of equals.

        Returns:
            Its id and the evaluation; None if the version was never measured on a device of that kind.
        """
        measured = func.count(col(MeasurementRow.id))
        query = (
            select(EvaluationRow.id)
            .join(DeviceRow, col(DeviceRow.id) == col(EvaluationRow.device_id))
            .join(MeasurementRow, col(MeasurementRow.evaluation_id) == col(EvaluationRow.id))
            .where(col(EvaluationRow.version_id) == version_id, col(EvaluationRow.status) == Status.PASSED.value)
            .where(col(EvaluationRow.recorded_from).is_(None), col(MeasurementRow.median_ns).is_not(None))
            .where(col(DeviceRow.kind) == device_kind)
            .group_by(col(EvaluationRow.id), col(EvaluationRow.started_at))
            .order_by(measured.desc(), col(EvaluationRow.started_at).desc(), col(EvaluationRow.id))
        )
        with self.session() as session:
            found = session.exec(query).first()
        return (found, self.evaluation(found)) if found else None

    def recorded_device(self, wanted: str) -> Device:
        """The recorded device of this name or id, or else the first whose name holds ``wanted`` or whose id begins so.

        Raises:
            UnknownNameError: nothing was recorded on such a device.
        """
        devices, word = self.recorded_devices(), wanted.lower()
        exact = [d for d in devices if word in (d.name.lower(), d.id)]
        alike = [d for d in devices if word in d.name.lower() or d.id.startswith(word)]
        for device in exact + alike:
            return device
        raise UnknownNameError("recorded device", wanted, [d.name for d in devices])

    def recorded_devices(self) -> list[Device]:
        """The devices that something was measured on: the one with the most current versions first, of equals the one used last.

        Current is the newest version of each origin and label of a task, such as the kernel that is shipped as its best.
        """
        query = (
            select(DeviceRow, VersionRow, func.max(EvaluationRow.started_at))
            .join(EvaluationRow, col(EvaluationRow.device_id) == col(DeviceRow.id))
            .join(VersionRow, col(VersionRow.id) == col(EvaluationRow.version_id))
            .join(MeasurementRow, col(MeasurementRow.evaluation_id) == col(EvaluationRow.id))
            .where(col(EvaluationRow.recorded_from).is_(None), col(MeasurementRow.median_ns).is_not(None))
            .group_by(col(DeviceRow.id), col(VersionRow.id))
            .order_by(col(VersionRow.created_at), col(VersionRow.id), col(DeviceRow.id).desc())
        )
        with self.session() as session:
            rows = list(session.exec(query))
            current = {(v.task_id, v.origin, v.label): v.id for _, v, _ in rows}
            timed: dict[str, int] = {}
            last: dict[str, str] = {}
            for device, version, at in rows:
                is_current = current[version.task_id, version.origin, version.label] == version.id
                timed[device.id] = timed.get(device.id, 0) + is_current
                last[device.id] = max(last.get(device.id, ""), at)
            devices = {device.id: device for device, _, _ in rows}
            ordered = sorted(devices, key=lambda id: (timed[id], last[id], id), reverse=True)
            return [convert.to_device(devices[id]) for id in ordered]

    def trials(self, study: Study | None = None) -> list[Trial]:
        """All trials of the evaluator (of a study), oldest recording first; see ``figures.proofs`` for the newest."""
        query = select(TrialRow)
        if study is not None:
            query = query.where(col(TrialRow.study) == study.value)
        with self.session() as session:
            rows = session.exec(query.order_by(col(TrialRow.created_at), col(TrialRow.subject), col(TrialRow.id)))
            return [convert.to_trial(row) for row in rows]


def _results(session: Session, model: type[_Result], evaluation_id: str) -> list[tuple[_Result, CaseRow]]:
    query = select(model, CaseRow).join(CaseRow, col(CaseRow.id) == col(model.case_id))
    found = session.exec(
        query.where(col(model.evaluation_id) == evaluation_id).order_by(
            col(CaseRow.nbytes), col(CaseRow.id), col(model.id)
        )
    )
    return list(found.all())


def _now() -> str:
    return datetime.now(UTC).isoformat()
