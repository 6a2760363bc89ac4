"""Dataclasses to rows and back: the only place where one becomes the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sqlmodel import SQLModel

from msbench.model import (
    BuildResult,
    Candidate,
    Ceilings,
    CheckResult,
    Device,
    Evaluation,
    Failure,
    Fault,
    Measurement,
    Origin,
    Profile,
    Status,
    Study,
    Trial,
)
from msbench.operators.header import prototype
from msbench.spec import Case, Operator, Precision, Problem, Split, Task
from msbench.store.identity import content_id
from msbench.store.samples import median_ns, pack_samples, unpack_samples
from msbench.store.tables import (
    BuildRow,
    CaseRow,
    CeilingsRow,
    CheckRow,
    DeviceRow,
    EvaluationRow,
    LineageRow,
    MeasurementRow,
    MessageRow,
    ProfileRow,
    RecordRow,
    TaskRow,
    TrialRow,
    VersionRow,
)

_Row = TypeVar("_Row", bound=SQLModel)


def _identified(row: _Row) -> _Row:
    """The row with the id of its content."""
    vars(row)["id"] = ""
    setattr(row, "id", content_id(type(row), row.model_dump()))  # noqa: B010  (SQLModel has no common type with an id)
    return row


def plain(value: Any) -> Any:
    """What JSON can hold: numpy numbers become Python's, and numbers that aren't finite become None."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    number = value.item() if hasattr(value, "item") else value
    return number if not isinstance(number, float) or math.isfinite(number) else None


def _real(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _failure(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return {"fault": None, "message": None}
    return {"fault": failure.fault.value, "message": failure.message}


# ------------------------------------------------------------------ to rows


def task_row(task: Task, described_at: str) -> TaskRow:
    """A task, with its operator's texts."""
    op = task.operator
    return TaskRow(
        id=task.id,
        operator=op.name,
        precision=task.precision.value,
        title=op.title,
        scenario=op.scenario,
        definition=op.definition,
        compute=op.compute_in(task.precision),
        bound_note=op.bound_note,
        library_note=op.library_note,
        prototype=prototype(op),
        described_at=described_at,
    )


def case_row(problem: Problem) -> CaseRow:
    """A task's case, with the bytes it must move and the operations it must do."""
    case = problem.case
    return _identified(
        CaseRow(
            id="",
            task_id=problem.task.id,
            name=case.id,
            split=case.split.value,
            distribution=case.distribution,
            dims=plain(problem.dims),
            scalars=plain(dict(case.scalars)),
            nbytes=int(problem.nbytes),
            flops=int(problem.flops),
        )
    )


def version_rows(candidate: Candidate, created_at: str) -> list[SQLModel]:
    """A version and its lineage."""
    version = VersionRow(
        id=candidate.id,
        task_id=f"{candidate.operator}/{candidate.precision}",
        origin=candidate.origin.value,
        label=candidate.label,
        source=candidate.source,
        created_at=created_at,
    )
    parents = [LineageRow(version_id=candidate.id, parent_id=parent) for parent in dict.fromkeys(candidate.parents)]
    return [version, *(row for row in parents if row.parent_id != candidate.id)]


def device_row(device: Device) -> DeviceRow:
    """A device, without what tells its units apart."""
    shared = {name: value for name, value in asdict(device).items() if name not in ("uuid", "host")}
    return DeviceRow(id=device.id, **shared)


def ceilings_row(device: Device, ceilings: Ceilings) -> CeilingsRow:
    """One measurement of a device's ceilings."""
    return _identified(CeilingsRow(id="", device_id=device.id, **plain(asdict(ceilings))))


def build_row(build: BuildResult) -> BuildRow:
    """A build; the path of its binary stays behind."""
    return BuildRow(
        id=build.id,
        version_id=build.candidate_id,
        toolchain=build.toolchain,
        flags=list(build.flags),
        seconds=build.seconds,
        log=build.log or (build.failure.log if build.failure else ""),
        kernels=plain(build.kernels),
        sass=plain(build.sass),
        **_failure(build.failure),
    )


def evaluation_rows(op: Operator, evaluation: Evaluation) -> tuple[EvaluationRow, list[SQLModel]]:
    """An evaluation, and every row that belongs to it: task, cases, version, device, build, results."""
    candidate = evaluation.candidate
    task = Task(op, candidate.precision)
    row = _identified(
        EvaluationRow(
            id="",
            version_id=candidate.id,
            device_id=evaluation.device.id,
            unit=evaluation.device.uuid,
            host=evaluation.device.host,
            executor=evaluation.executor,
            status=evaluation.status.value,
            started_at=evaluation.started_at,
            seconds=evaluation.seconds,
            command=evaluation.command,
            seed=evaluation.seed,
            harness=evaluation.harness,
            build_id=evaluation.build.id if evaluation.build else None,
            recorded_from=evaluation.recorded_from,
            note=evaluation.note,
            log=evaluation.failure.log if evaluation.failure else None,
            **_failure(evaluation.failure),
        )
    )
    checks, measurements, profiles = evaluation.checks, evaluation.measurements, evaluation.profiles
    used = dict.fromkeys([*(c.case for c in checks), *(m.case for m in measurements), *(p.case for p in profiles)])
    cases = {case: case_row(task.at(case)) for case in used}
    rows: list[SQLModel] = [
        task_row(task, evaluation.started_at),
        device_row(evaluation.device),
        *version_rows(candidate, evaluation.started_at),
        *cases.values(),
        *([build_row(evaluation.build)] if evaluation.build else []),
        row,
        *(_check_row(row.id, cases[check.case].id, check) for check in checks),
        *(_measurement_row(row.id, cases[one.case].id, one) for one in measurements),
        *(_profile_row(row.id, cases[profile.case].id, profile) for profile in profiles),
        *([_record_row(row.id, evaluation.record)] if evaluation.record else []),
    ]
    return row, rows


def _check_row(evaluation_id: str, case_id: str, check: CheckResult) -> CheckRow:
    return _identified(
        CheckRow(
            id="",
            evaluation_id=evaluation_id,
            case_id=case_id,
            variant=check.variant,
            seed=check.seed,
            passed=bool(check.passed),
            worst=_real(check.worst),
            max_abs_error=_real(check.max_abs_error),
            bitwise_repeatable=None if check.bitwise_repeatable is None else bool(check.bitwise_repeatable),
            **_failure(check.failure),
        )
    )


_MEASURED = ("hot_ns", "host_ns", "floor_ns", "sm_clock_mhz", "temperature_c", "power_w")


def _measured(one: Measurement | MeasurementRow) -> dict[str, Any]:
    return {name: _real(getattr(one, name)) for name in _MEASURED}


def _measurement_row(evaluation_id: str, case_id: str, one: Measurement) -> MeasurementRow:
    return _identified(
        MeasurementRow(
            id="",
            evaluation_id=evaluation_id,
            case_id=case_id,
            group_id=one.group,
            seed=one.seed,
            sittings=one.sittings,
            rounds=len(one.samples_ns),
            median_ns=median_ns(one.samples_ns),
            noisy=bool(one.noisy),
            hot_note=one.hot_note,
            throttle=one.throttle,
            samples=pack_samples(one.samples_ns),
            **_measured(one),
            **_failure(one.failure),
        )
    )


def _record_row(evaluation_id: str, record: dict[str, Any]) -> RecordRow:
    return _identified(
        RecordRow(
            id="",
            evaluation_id=evaluation_id,
            case_name=record["case"],
            summary=record["summary"],
            nodes=plain(record["nodes"]),
        )
    )


def _profile_row(evaluation_id: str, case_id: str, profile: Profile) -> ProfileRow:
    return _identified(
        ProfileRow(
            id="",
            evaluation_id=evaluation_id,
            case_id=case_id,
            source=profile.source,
            tool=profile.tool,
            metrics={name: value for name, value in plain(profile.metrics).items() if value is not None},
            kernels=plain(profile.kernels),
            bottleneck=profile.bottleneck,
            evidence=plain(profile.evidence),
            **_failure(profile.failure),
        )
    )


def message_rows(agent: str, messages: Sequence[tuple[str, str]]) -> list[MessageRow]:
    """A conversation as a chain: each (role, content) names its predecessor."""
    rows: list[MessageRow] = []
    for role, text in messages:
        previous = rows[-1].id if rows else None
        rows.append(_identified(MessageRow(id="", previous_id=previous, role=role, agent=agent, content=text)))
    return rows


def trial_row(trial: Trial) -> TrialRow:
    """A trial of the evaluator."""
    shared = {field.name: getattr(trial, field.name) for field in fields(Trial)}
    shared |= {"study": trial.study.value, "held": bool(trial.held), "details": plain(trial.details)}
    return _identified(TrialRow(id="", **shared))


# ------------------------------------------------------------------ back


def _to_failure(fault: str | None, message: str | None, log: str | None = None) -> Failure | None:
    return None if fault is None else Failure(Fault(fault), message or "", log or "")


def to_candidate(task: TaskRow, version: VersionRow, parents: Sequence[str]) -> Candidate:
    """A version as what was submitted."""
    return Candidate(
        task.operator,
        Precision(task.precision),
        version.source,
        Origin(version.origin),
        version.label,
        tuple(sorted(parents)),
    )


def to_case(row: CaseRow) -> Case:
    """A case."""
    return Case(tuple(row.dims.items()), Split(row.split), row.distribution, tuple(row.scalars.items()))


def to_device(row: DeviceRow, unit: str = "", host: str = "") -> Device:
    """A device; ``unit`` and ``host`` where one of its evaluations is meant."""
    shared = (field.name for field in fields(Device) if field.name not in ("uuid", "host"))
    return Device(uuid=unit, host=host, **{name: getattr(row, name) for name in shared})


def to_ceilings(row: CeilingsRow) -> Ceilings:
    """A device's ceilings."""
    return Ceilings(**{field.name: getattr(row, field.name) for field in fields(Ceilings)})


def to_build(row: BuildRow) -> BuildResult:
    """A build, without a binary."""
    failure = _to_failure(row.fault, row.message, row.log)
    return BuildResult(
        row.id,
        row.version_id,
        row.toolchain,
        tuple(row.flags),
        row.seconds,
        False,
        row.log,
        None,
        tuple(row.kernels),
        row.sass,
        failure,
    )


def to_check(row: CheckRow, case: Case) -> CheckResult:
    """A check of a case."""
    return CheckResult(
        case,
        row.variant,
        row.seed,
        row.passed,
        row.worst,
        row.max_abs_error,
        row.bitwise_repeatable,
        _to_failure(row.fault, row.message),
    )


def to_measurement(row: MeasurementRow, case: Case) -> Measurement:
    """A measurement with all its samples."""
    return Measurement(
        case=case,
        group=row.group_id,
        seed=row.seed,
        samples_ns=unpack_samples(row.samples),
        sittings=row.sittings,
        noisy=row.noisy,
        throttle=row.throttle,
        hot_note=row.hot_note,
        failure=_to_failure(row.fault, row.message),
        **_measured(row),
    )


def to_profile(row: ProfileRow, case: Case) -> Profile:
    """A profile."""
    evidence = tuple((str(name), float(value), float(limit)) for name, value, limit in row.evidence)
    return Profile(
        case,
        row.source,
        row.metrics,
        row.bottleneck,
        evidence,
        row.tool,
        tuple(row.kernels),
        _to_failure(row.fault, row.message),
    )


def to_evaluation(
    row: EvaluationRow,
    candidate: Candidate,
    device: Device,
    build: BuildRow | None,
    checks: Sequence[tuple[CheckRow, CaseRow]],
    measurements: Sequence[tuple[MeasurementRow, CaseRow]],
    profiles: Sequence[tuple[ProfileRow, CaseRow]],
    record: RecordRow | None,
) -> Evaluation:
    """An evaluation as it was stored."""
    return Evaluation(
        candidate=candidate,
        device=device,
        executor=row.executor,
        status=Status(row.status),
        started_at=row.started_at,
        seconds=row.seconds,
        command=row.command,
        seed=row.seed,
        build=to_build(build) if build else None,
        checks=tuple(to_check(check, to_case(case)) for check, case in checks),
        measurements=tuple(to_measurement(one, to_case(case)) for one, case in measurements),
        profiles=tuple(to_profile(profile, to_case(case)) for profile, case in profiles),
        failure=_to_failure(row.fault, row.message, row.log),
        harness=row.harness,
        recorded_from=row.recorded_from,
        note=row.note,
        record={"case": record.case_name, "summary": record.summary, "nodes": record.nodes} if record else None,
    )


def to_trial(row: TrialRow) -> Trial:
    """A trial of the evaluator."""
    shared = {field.name: getattr(row, field.name) for field in fields(Trial)}
    return Trial(**shared | {"study": Study(row.study)})
