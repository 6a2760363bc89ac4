"""Checks on the CPU, and answers with times that were measured earlier, for exactly this source on a recorded device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType, TracebackType
from typing import Self

from sqlmodel import col, select

from msbench import plugins
from msbench.errors import ExecutorError, UnknownNameError
from msbench.executors import Options
from msbench.harness.arena import Arena, Layout
from msbench.harness.protocols import Executor, Plan, Runner
from msbench.model import BuildResult, Candidate, Ceilings, Device, Evaluation, Measurement, Profile, Status
from msbench.spec import Case, Operator, Problem, Task
from msbench.store.store import Store
from msbench.store.tables import EvaluationRow, MeasurementRow


def create(options: Options) -> RecordedExecutor:
    """The executor of what ``options.store`` holds.

    Args:
        options: ``device`` is (part of) the name or id of a recorded device; None is the first of ``Store.recorded_devices``.

    Raises:
        UnknownNameError: nothing was recorded on such a device.
        ToolchainError: there is no host compiler to check kernels with.
    """
    checker: Executor = plugins.load("msbench.executors", "cpu", "executor").create(options)
    try:
        return RecordedExecutor(checker, options.store, options.device)
    except BaseException:
        checker.close()
        raise


class RecordedExecutor:
    """Builds and checks with another executor, and recalls times from a store. It measures nothing.

    Its device is the recorded one, where there is one: that is whose times and ceilings it tells.
    """

    name = "recorded"
    measures = False

    def __init__(self, checker: Executor, store: Store | None, device: str | None = None) -> None:
        self._checker = checker
        self._store = store
        self._device = _choose(store, device)
        self.xp: ModuleType = checker.xp
        self.check_limit = checker.check_limit
        self.host_work = checker.host_work

    # ------------------------------------------------------------------ what was recorded

    def device(self) -> Device:
        """The recorded device; the one that checks where nothing is recorded."""
        return self._device or self._checker.device()

    def ceilings(self) -> Ceilings | None:
        """The recorded device's."""
        return self._store.ceilings(self._device.id) if self._store and self._device else None

    def recall(
        self, op: Operator, candidates: Sequence[Candidate], recorded_with: str | None = None
    ) -> dict[str, Evaluation]:
        """What is stored of each candidate, by its id, as ``protocols.Remembers`` says.

        Of several evaluations of one version it is the one that was measured together with most of the other
        candidates, so that they compare; then the one with the most cases, then the newest.
        """
        if self._store is None or self._device is None:
            return {}
        sessions = {c.id: _sessions(self._store, c.id, self._device.id) for c in candidates}
        first = {m.group for m in self._store.evaluation(recorded_with).measurements} if recorded_with else set[str]()
        groups = [{group for session in known for group in session.groups} for known in sessions.values()]

        def rank(session: _Session) -> tuple[bool, int, int, str]:
            preferred = not first.isdisjoint(session.groups)
            together = sum(not theirs.isdisjoint(session.groups) for theirs in groups)  # its own version always counts
            return preferred, together, len(session.groups), session.started_at

        best = {version: max(known, key=rank).evaluation_id for version, known in sessions.items() if known}
        return {version: replace(self._store.evaluation(one), recorded_from=one) for version, one in best.items()}

    # ------------------------------------------------------------------ what is done now

    def checked_on(self) -> Device:
        """What the checks run on."""
        return self._checker.device()

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """For the host."""
        return self._checker.build(op, candidate)

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> Runner:
        """On the host."""
        return self._checker.open(op, build, candidate)

    def arena(self, layout: Layout) -> Arena:
        """On the host."""
        return self._checker.arena(layout)

    def measure(self, problem: Problem, runners: Sequence[Runner], plan: Plan) -> list[Measurement]:
        """Never: raises ExecutorError."""
        raise ExecutorError("The recorded executor measures nothing; use --executor cuda on a machine with a GPU.")

    def profile(
        self,
        task: Task,
        cases: Sequence[tuple[Case, Measurement | None]],
        build: BuildResult,
        candidate: Candidate,
    ) -> list[Profile]:
        """Never: raises ExecutorError."""
        raise ExecutorError("The recorded executor profiles nothing; use --executor cuda on a machine with a GPU.")

    def close(self) -> None:
        """Close the checking executor."""
        self._checker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _choose(store: Store | None, wanted: str | None) -> Device | None:
    if wanted is None:
        return next(iter(store.recorded_devices()), None) if store else None
    if store is None:
        raise UnknownNameError("recorded device", wanted, ())
    return store.recorded_device(wanted)


@dataclass
class _Session:
    """A stored evaluation and the measurement group of each of its cases."""

    evaluation_id: str
    started_at: str
    groups: list[str] = field(default_factory=list)


def _sessions(store: Store, version_id: str, device_id: str) -> list[_Session]:
    """The evaluations of a version that passed and were measured on a device."""
    query = (
        select(EvaluationRow.id, EvaluationRow.started_at, MeasurementRow.group_id)
        .join(MeasurementRow, col(MeasurementRow.evaluation_id) == col(EvaluationRow.id))
        .where(col(EvaluationRow.version_id) == version_id, col(EvaluationRow.device_id) == device_id)
        .where(col(EvaluationRow.status) == Status.PASSED.value, col(EvaluationRow.recorded_from).is_(None))
        .order_by(col(EvaluationRow.id))
    )
    found: dict[str, _Session] = {}
    with store.session() as session:
        for evaluation_id, started_at, group in session.exec(query):
            found.setdefault(evaluation_id, _Session(evaluation_id, started_at)).groups.append(group)
    return list(found.values())
