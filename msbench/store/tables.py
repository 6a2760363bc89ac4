"""The database's tables. SQLModel tables do not validate, so store/convert.py alone makes rows from the dataclasses.

Ids are content hashes (store/identity.py), which makes merging two databases "insert what is not there yet". Times are
in nanoseconds, instants are ISO 8601 in UTC, JSON columns hold plain lists and objects. NULL means "does not exist":
the status or fault beside it says why.

Two columns refer to rows that may be in another database, so they are no foreign keys: ``lineage.parent_id`` and
``evaluation.recorded_from`` in your own database often name what the published one holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Dialect, Integer, LargeBinary, UniqueConstraint
from sqlmodel import AutoString, Field, SQLModel

Whole: Any = BigInteger().with_variant(Integer(), "sqlite")
"""A whole number of 64 bits: seeds and sizes of memory need them. SQLite's integers have them all."""


def _json(nullable: bool = False) -> Column[Any]:
    return Column(JSON(none_as_null=True), nullable=nullable)


class MigrationRow(SQLModel, table=True):
    """A migration that this database has had."""

    __tablename__ = "migration"
    version: int = Field(primary_key=True)
    applied_at: str


class DeviceRow(SQLModel, table=True):
    """A model under a driver; which unit of it ran a kernel is in the evaluation."""

    __tablename__ = "device"
    id: str = Field(primary_key=True)
    kind: str
    name: str
    arch: str
    multiprocessors: int
    memory_bytes: int = Field(sa_type=Whole)
    l2_bytes: int = Field(sa_type=Whole)
    driver: str
    runtime: str


class CeilingsRow(SQLModel, table=True):
    """One measurement of a device's ceilings; the newest counts."""

    __tablename__ = "ceilings"
    id: str = Field(primary_key=True)
    device_id: str = Field(foreign_key="device.id", index=True)
    measured_at: str
    copy_bytes_per_s: float
    read_bytes_per_s: float
    write_bytes_per_s: float
    l2_copy_bytes_per_s: float
    fp32_flops: float
    tf32_flops: float
    bf16_flops: float
    fp64_flops: float
    launch_ns: float
    graph_node_ns: float
    sm_clock_mhz: float | None = None


class TaskRow(SQLModel, table=True):
    """An operator in one precision; id is ``rms_norm/fp32``. Its texts follow the newest ``described_at``."""

    __tablename__ = "task"
    id: str = Field(primary_key=True)
    operator: str = Field(index=True)
    precision: str
    title: str
    scenario: str
    definition: str
    compute: str
    bound_note: str
    library_note: str
    prototype: str
    described_at: str


class CaseRow(SQLModel, table=True):
    """One case of a task: what it must move and compute belongs to it, so that rooflines need no code."""

    __tablename__ = "case"
    id: str = Field(primary_key=True)
    task_id: str = Field(foreign_key="task.id", index=True)
    name: str
    split: str
    distribution: str
    dims: dict[str, Any] = Field(sa_column=_json())
    scalars: dict[str, Any] = Field(sa_column=_json())
    nbytes: int = Field(sa_type=Whole)
    flops: int = Field(sa_type=Whole)


class VersionRow(SQLModel, table=True):
    """One source text for a task."""

    __tablename__ = "version"
    id: str = Field(primary_key=True)
    task_id: str = Field(foreign_key="task.id", index=True)
    origin: str
    label: str
    source: str
    created_at: str


class LineageRow(SQLModel, table=True):
    """A version's parent."""

    __tablename__ = "lineage"
    version_id: str = Field(foreign_key="version.id", primary_key=True)
    parent_id: str = Field(primary_key=True)


class BuildRow(SQLModel, table=True):
    """A compilation: id hashes source, generated header, headers, flags and compiler."""

    __tablename__ = "build"
    id: str = Field(primary_key=True)
    version_id: str = Field(foreign_key="version.id", index=True)
    toolchain: str
    flags: list[Any] = Field(sa_column=_json())
    seconds: float
    log: str
    kernels: list[Any] = Field(sa_column=_json())
    sass: dict[str, Any] | None = Field(default=None, sa_column=_json(nullable=True))
    fault: str | None = None
    message: str | None = None


class EvaluationRow(SQLModel, table=True):
    """One evaluation of one version on one device."""

    __tablename__ = "evaluation"
    id: str = Field(primary_key=True)
    version_id: str = Field(foreign_key="version.id", index=True)
    device_id: str = Field(foreign_key="device.id")
    unit: str
    host: str
    executor: str
    status: str
    started_at: str
    seconds: float
    command: str
    seed: int = Field(sa_type=Whole)
    harness: str
    build_id: str | None = Field(default=None, foreign_key="build.id")
    recorded_from: str | None = None
    note: str = ""
    fault: str | None = None
    message: str | None = None
    log: str | None = None


class CheckRow(SQLModel, table=True):
    """One check of one case: ``worst`` is the largest error over its bound."""

    __tablename__ = "check"
    id: str = Field(primary_key=True)
    evaluation_id: str = Field(foreign_key="evaluation.id", index=True)
    case_id: str = Field(foreign_key="case.id")
    variant: str
    seed: int = Field(sa_type=Whole)
    passed: bool
    worst: float | None = None
    max_abs_error: float | None = None
    bitwise_repeatable: bool | None = None
    fault: str | None = None
    message: str | None = None


class MeasurementRow(SQLModel, table=True):
    """The times of one version on one case; ``samples`` is unpacked by ``store.samples.unpack_samples``."""

    __tablename__ = "measurement"
    id: str = Field(primary_key=True)
    evaluation_id: str = Field(foreign_key="evaluation.id", index=True)
    case_id: str = Field(foreign_key="case.id", index=True)
    group_id: str = Field(index=True)
    seed: int = Field(sa_type=Whole)
    sittings: int
    rounds: int
    median_ns: float | None = None
    hot_ns: float | None = None
    host_ns: float | None = None
    floor_ns: float | None = None
    noisy: bool
    hot_note: str
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    samples: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    fault: str | None = None
    message: str | None = None


class ProfileRow(SQLModel, table=True):
    """Counters of one version on one case."""

    __tablename__ = "profile"
    id: str = Field(primary_key=True)
    evaluation_id: str = Field(foreign_key="evaluation.id", index=True)
    case_id: str = Field(foreign_key="case.id")
    source: str
    tool: str
    metrics: dict[str, Any] = Field(sa_column=_json())
    kernels: list[Any] = Field(sa_column=_json())
    bottleneck: str
    evidence: list[Any] = Field(sa_column=_json())
    fault: str | None = None
    message: str | None = None


class RecordRow(SQLModel, table=True):
    """What a call of one version put into its stream on one case: ``summary`` in words, ``nodes`` without addresses."""

    __tablename__ = "record"
    id: str = Field(primary_key=True)
    evaluation_id: str = Field(foreign_key="evaluation.id", index=True)
    case_name: str
    summary: str
    nodes: list[Any] = Field(sa_column=_json())


class RunRow(SQLModel, table=True):
    """One ``msbench optimize`` of one task. ``status``: running, waiting, finished, stopped, failed."""

    __tablename__ = "run"
    id: str = Field(primary_key=True)
    task_id: str = Field(foreign_key="task.id", index=True)
    strategy: str
    provider: str
    model: str
    executor: str
    device_id: str | None = Field(default=None, foreign_key="device.id")
    seed: int = Field(sa_type=Whole)
    budget: dict[str, Any] = Field(sa_column=_json())
    spend: dict[str, Any] = Field(sa_column=_json())
    settings: dict[str, Any] = Field(sa_column=_json())
    status: str
    note: str
    command: str
    started_at: str
    finished_at: str | None = None
    replay_of: str | None = None
    best_version_id: str | None = Field(default=None, foreign_key="version.id")


class StepRow(SQLModel, table=True):
    """One proposal inside a run; ``speedup`` is the geometric mean over cases of the speed-up over naive.

    ``outcome`` is a ``model.Outcome``. ``predicted_cases`` has what was predicted of single cases, by their names.
    """

    __tablename__ = "step"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    number: int
    parent_version_id: str | None = Field(default=None, foreign_key="version.id")
    version_id: str | None = Field(default=None, foreign_key="version.id")
    evaluation_id: str | None = Field(default=None, foreign_key="evaluation.id")
    action: str
    plan: str
    hypothesis: str
    predicted_speedup: float | None = None
    speedup: float | None = None
    outcome: str
    held: bool | None = None
    lesson: str
    started_at: str
    finished_at: str
    predicted_cases: dict[str, Any] | None = Field(default=None, sa_column=_json(nullable=True))


class NotesRow(SQLModel, table=True):
    """Further facts about a step, as JSON: its rungs' seconds, and its strategy's notes."""

    __tablename__ = "notes"
    id: str = Field(primary_key=True)
    step_id: str = Field(index=True)
    notes: dict[str, Any] = Field(sa_column=_json())


class MessageRow(SQLModel, table=True):
    """One turn of a transcript: id hashes its predecessor, role, agent and content."""

    __tablename__ = "message"
    id: str = Field(primary_key=True)
    previous_id: str | None = Field(default=None, foreign_key="message.id")
    role: str
    agent: str
    content: str


class CallRow(SQLModel, table=True):
    """One call of a provider inside a step: the prompt's last message, the reply, and what it cost."""

    __tablename__ = "call"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    step_number: int
    number: int
    agent: str
    prompt_id: str = Field(foreign_key="message.id")
    reply_id: str = Field(foreign_key="message.id")
    model: str
    prompt_tokens: int | None = Field(default=None, sa_type=Whole)
    completion_tokens: int | None = Field(default=None, sa_type=Whole)
    cost_usd: float | None = None
    seconds: float
    created_at: str


class LedgerRow(SQLModel, table=True):
    """One expense of a run: a request to a provider, or an evaluation. It is stored before it begins.

    ``kind``: request, evaluation, proof (hidden cases that no step used), earlier (what a run had spent before it had a
    ledger). ``state``: reserved, settled, unknown; where nothing else is known, what was reserved counts. The tokens are apart:
    ``uncached`` and ``cached`` of the prompt, ``reasoning`` and ``output`` of the answer. ``wall_seconds``: how old the run was.
    ``agent``: who asked; of an evaluation its rung (screening, full, profile, trial). ``seconds`` have waiting for a shared device in
    them, ``gpu_seconds`` have not.
    """

    __tablename__ = "ledger"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: str = Field(primary_key=True)
    run_id: str = Field(foreign_key="run.id", index=True)
    number: int
    step_number: int
    kind: str
    agent: str
    state: str
    reserved_tokens: int | None = Field(default=None, sa_type=Whole)
    reserved_usd: float | None = None
    reserved_gpu_seconds: float | None = None
    uncached_tokens: int | None = Field(default=None, sa_type=Whole)
    cached_tokens: int | None = Field(default=None, sa_type=Whole)
    reasoning_tokens: int | None = Field(default=None, sa_type=Whole)
    output_tokens: int | None = Field(default=None, sa_type=Whole)
    cost_usd: float | None = None
    priced_by: str
    gpu_seconds: float | None = None
    seconds: float | None = None
    wall_seconds: float
    note: str
    reasoning: str
    created_at: str


class TrialRow(SQLModel, table=True):
    """One trial of the evaluator itself; ``study`` is a ``model.Study``."""

    __tablename__ = "trial"
    id: str = Field(primary_key=True)
    study: str
    subject: str
    expected: str
    outcome: str
    held: bool
    details: dict[str, Any] = Field(sa_column=_json())
    device_id: str = Field(foreign_key="device.id")
    harness: str
    command: str
    created_at: str


TABLES: tuple[type[SQLModel], ...] = (
    MigrationRow,
    DeviceRow,
    CeilingsRow,
    TaskRow,
    CaseRow,
    VersionRow,
    LineageRow,
    BuildRow,
    EvaluationRow,
    CheckRow,
    MeasurementRow,
    ProfileRow,
    RecordRow,
    RunRow,
    StepRow,
    NotesRow,
    MessageRow,
    CallRow,
    LedgerRow,
    TrialRow,
)  # in an order in which foreign keys are satisfied


class Text(AutoString):
    """Text of any characters. PostgreSQL's can't hold NUL: there U+E000 and a digit stand for it, and for U+E000."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Text on its way into a database."""
        if dialect.name != "postgresql":
            return super().bind_processor(dialect)
        return lambda text: text and text.replace("\ue000", "\ue0001").replace("\0", "\ue0000")

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Text on its way out of one."""
        if dialect.name != "postgresql":
            return super().result_processor(dialect, coltype)
        return lambda text: text and text.replace("\ue0000", "\0").replace("\ue0001", "\ue000")


for _model in TABLES:
    for _column in vars(_model)["__table__"].columns:
        if isinstance(_column.type, AutoString):
            _column.type = Text(_column.type.length)
