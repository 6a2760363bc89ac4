"""One version on its way through the stages: its results so far, and its process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from msbench.errors import UnsupportedError, WorkerError
from msbench.harness.check.case import fault_of
from msbench.harness.protocols import Executor, Records, Runner
from msbench.harness.spans import span
from msbench.model import (
    BuildResult,
    Candidate,
    CheckResult,
    Device,
    Evaluation,
    Failure,
    Fault,
    Measurement,
    Origin,
    Profile,
    Stage,
    Status,
)
from msbench.spec import Case, Operator

_Item = TypeVar("_Item")
Dims = tuple[tuple[str, int], ...]

_FAILED = {
    Stage.BUILD: Status.BUILD_FAILED,
    Stage.CHECK: Status.CHECK_FAILED,
    Stage.MEASURE: Status.MEASURE_FAILED,
    Stage.PROFILE: Status.PROFILE_FAILED,
}


@dataclass
class Entry:
    """One candidate on its way, and its process while it has one."""

    candidate: Candidate
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    seconds: float = 0.0
    status: Status = Status.PASSED
    failure: Failure | None = None
    runner: Runner | None = None
    build: BuildResult | None = None
    checks: list[CheckResult] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    recorded: Evaluation | None = None
    notes: list[str] = field(default_factory=list)
    refused: set[Dims] = field(default_factory=set)
    untimed_ns: dict[Case, float] = field(default_factory=dict)
    record: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return self.candidate.label or f"{self.candidate.origin} {self.candidate.id[:8]}"

    @property
    def is_baseline(self) -> bool:
        """Whether it is a naive kernel or a library's version, which are references and gain nothing by cheating."""
        return self.candidate.origin in (Origin.NAIVE, Origin.LIBRARY)

    @property
    def alive(self) -> bool:
        return self.status is Status.PASSED

    def fail(self, stage: Stage, failure: Failure) -> None:
        self.status = Status.UNSUPPORTED if failure.fault is Fault.UNSUPPORTED else _FAILED[stage]
        self.failure = failure

    @contextmanager
    def at(self, stage: Stage) -> Iterator[None]:
        """Time a part of a stage, and turn what a kernel did to its worker into this candidate's failure."""
        start = time.perf_counter()
        try:
            yield
        except UnsupportedError as error:
            self.fail(stage, Failure(Fault.UNSUPPORTED, str(error)))
        except WorkerError as error:
            self.fail(stage, Failure(fault_of(error), str(error), error.log))
        finally:
            self.seconds += time.perf_counter() - start
            self.note_record()

    def note_record(self) -> None:
        """Keep what the latest call was."""
        if isinstance(self.runner, Records):
            self.record = self.runner.recorded or self.record

    def tell_refused(self, cases: Sequence[Case]) -> None:
        """Note which cases a library does not support; one that supports none has no times."""
        refused = [case.id for case in cases if case.dims in self.refused]
        if self.alive and not self.checks:
            message = (
                f"{self.name} takes none of the sizes that were tried: its launcher returned cudaErrorNotSupported."
            )
            self.fail(Stage.CHECK, Failure(Fault.UNSUPPORTED, message))
        elif refused:
            self.notes.append(f"It does not take {len(refused)} of {len(cases)} cases: {'; '.join(refused)}.")

    def tell_untimed(self) -> None:
        """Say what a library prepared before its calls were timed, and how long that took at most."""
        took = sorted((ns, case.id) for case, ns in self.untimed_ns.items() if ns > 0)
        if took:
            ends = dict.fromkeys((took[0], took[-1]))
            said = " to ".join(f"{ns / 1e3:.3g} µs ({name})" for ns, name in ends)
            self.notes.append(f"Not timed: preparing for the arrays of a case, which took {said}.")

    def evaluation(self, executor: str, device: Device, command: str, seed: int, harness: str) -> Evaluation:
        return Evaluation(
            candidate=self.candidate,
            device=self.recorded.device if self.recorded else device,
            executor=executor,
            status=self.status,
            started_at=self.started_at,
            seconds=self.seconds,
            command=command,
            seed=seed,
            build=self.build,
            checks=tuple(self.checks),
            measurements=tuple(self.measurements),
            profiles=tuple(self.profiles),
            failure=self.failure,
            harness=harness,
            recorded_from=self.recorded.recorded_from if self.recorded else None,
            note=" ".join(self.notes),
            record=self.recorded.record if self.recorded else self.record,
        )


def open_anew(executor: Executor, op: Operator, entries: Sequence[Entry]) -> None:
    """Put each version into a new process."""

    def open_one(entry: Entry) -> None:
        assert entry.build is not None
        with entry.at(Stage.MEASURE):
            if entry.runner is not None:
                entry.runner.close()
            entry.runner = executor.open(op, entry.build, entry.candidate)

    with span("worker: open"):
        _side_by_side(open_one, entries)


def end_processes(entries: Sequence[Entry]) -> None:
    """Taking a CUDA context down takes a while, so all at once."""
    runners = [entry.runner for entry in entries if entry.runner is not None]
    with span("worker: end"):
        _side_by_side(lambda runner: runner.close(), runners)
    for entry in entries:
        entry.runner = None


def _side_by_side(work: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do it for each, in a thread of its own; what one of them raises is raised when all have ended."""
    with ThreadPoolExecutor(max(1, len(items)), thread_name_prefix="msbench-group") as pool:
        list(pool.map(work, items))
