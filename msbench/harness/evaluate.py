"""The way through the stages: build, check, measure, profile. One call evaluates a group of versions of one task.

Versions are built in parallel, checked case by case (cheap cases first, each case's expected values computed once),
and those that passed everything are measured against each other. A version that fails at one stage goes no further; it
never stops the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from msbench import roofline
from msbench.errors import DeviceFull, UnsupportedError, WorkerError
from msbench.harness import confine, sittings
from msbench.harness.check import CaseCheck, fault_of
from msbench.harness.protocols import Checks, Executor, Foresees, Plan, Progress, Remembers, Runner
from msbench.harness.schedule import Scheduled, schedule, work
from msbench.harness.spans import Spans, span
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
    digest,
)
from msbench.spec import Case, Operator, Precision
from msbench.statistics import median

_Item = TypeVar("_Item")
Dims = tuple[tuple[str, int], ...]
Build = Callable[[Operator, Candidate], BuildResult]
Room = Callable[[Operator, Precision, Case], AbstractContextManager[object]]

__all__ = ["Checks", "Executor", "Plan", "Progress", "Remembers", "Runner", "evaluate", "harness_digest"]

_FAILED = {
    Stage.BUILD: Status.BUILD_FAILED,
    Stage.CHECK: Status.CHECK_FAILED,
    Stage.MEASURE: Status.MEASURE_FAILED,
    Stage.PROFILE: Status.PROFILE_FAILED,
}


def evaluate(
    executor: Executor,
    operator: Operator,
    precision: Precision,
    candidates: Sequence[Candidate],
    plan: Plan,
    *,
    command: str,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """Evaluate versions of one task; one evaluation for each candidate, in their order.

    Args:
        command: what a person types to repeat this; it is recorded.
        progress: hears how far it is.

    Raises:
        ToolchainError: nothing can be built.
        DeviceError: the device is missing, lost, or too small for a case.
        SpecError: the operator's spec is wrong.
    """
    with Group(executor, operator, precision, candidates, plan, progress=progress) as group:
        group.check()
        return group.finish(command)


@cache
def harness_digest() -> str:
    """The hash of the source files that figures and verdicts depend on: other code makes other figures."""
    package = Path(__file__).resolve().parent.parent
    files = [package / "statistics.py", package / "roofline.py"]
    for folder in ("harness", "executors", "emulator"):
        files += [p for p in (package / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    parts = [part for p in sorted(files) for part in (p.relative_to(package).as_posix(), p.read_bytes())]
    return digest(*parts)


@dataclass
class _Entry:
    """One candidate on its way."""

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

    @property
    def name(self) -> str:
        return self.candidate.label or f"{self.candidate.origin} {self.candidate.id[:8]}"

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

    def evaluation(self, executor: str, device: Device, command: str, seed: int) -> Evaluation:
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
            harness=harness_digest(),
            recorded_from=self.recorded.recorded_from if self.recorded else None,
            note=" ".join(self.notes),
        )


class Group:
    """Versions of one task on their way through the stages, together; a failed one is left alone from there on.

    ``check`` builds and checks, ``finish`` measures and profiles what passed, in the same processes. ``pause`` ends them in
    between; they are started again where they are needed.
    """

    def __init__(
        self,
        executor: Executor,
        operator: Operator,
        precision: Precision,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        progress: Progress | None = None,
        build: Build | None = None,
        room: Room | None = None,
        spans: Spans | None = None,
    ) -> None:
        """
        Args:
            build: in place of the executor's own, where builds were begun earlier.
            room: entered for each case that is checked, where others are checked at the same time.
            spans: told where the time goes.
        """
        self.executor = executor
        self.op = operator
        self.precision = precision
        self.plan = plan
        self.progress = progress or _Silence()
        self._build_one = build or executor.build
        self._room = room or (lambda op, precision, case: nullcontext())
        self._recording = spans.recording if spans else nullcontext
        self._entries = [_Entry(candidate) for candidate in candidates]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_processes()

    def check(self) -> None:
        """Build and check every version. Raises what ``evaluate`` raises."""
        with self._recording(), self._foreseeing():
            with span("wait for builds"):
                self._build()
            self._check()

    def _foreseeing(self) -> AbstractContextManager[object]:
        if isinstance(self.executor, Foresees):
            return self.executor.foreseeing(self.op, [entry.candidate for entry in self._entries])
        return nullcontext()

    def pause(self) -> None:
        """End all processes."""
        with self._recording():
            self._end_processes()

    def finish(self, command: str) -> list[Evaluation]:
        """Measure and profile what passed; one evaluation for each candidate. Raises what ``evaluate`` raises."""
        with self._recording():
            return self._finish(command)

    def _finish(self, command: str) -> list[Evaluation]:
        if self.plan.measure and self.executor.measures:
            self._open([entry for entry in self._entries if entry.alive and entry.runner is None])
            self._measure()
            if self.plan.profile:
                self._end_processes()  # no runner may disturb a profiler, nor hold memory that it needs
                self._profile()
        if self.plan.measure and isinstance(self.executor, Remembers):
            self._recall(self.executor)
        device = self.executor.checked_on() if isinstance(self.executor, Remembers) else self.executor.device()
        return [entry.evaluation(self.executor.name, device, command, self.plan.seed) for entry in self._entries]

    @property
    def _task(self) -> str:
        return f"{self.op.name}/{self.precision}"

    def _build(self) -> None:
        self.progress.started(f"building {self._task}")
        pool = ThreadPoolExecutor(
            max(1, min(len(self._entries), os.cpu_count() or 1)), thread_name_prefix="msbench-build"
        )
        try:
            waiting = {pool.submit(self._build_one, self.op, entry.candidate): entry for entry in self._entries}
            for done, future in enumerate(as_completed(waiting), 1):
                entry = waiting[future]
                entry.build = future.result()
                entry.seconds += entry.build.seconds
                if entry.build.failure:
                    entry.fail(Stage.BUILD, entry.build.failure)
                self.progress.advanced(done, len(self._entries), entry.name)
        finally:
            pool.shutdown(cancel_futures=True)

    def _check(self) -> None:
        self.progress.started(f"checking {self._task}")
        planned = schedule(self.op, self.plan, self.executor.check_limit)
        left_out = sum(case not in {item.case for item in planned} for case in self.plan.cases)
        for entry in filter(lambda entry: entry.alive, self._entries):
            if not planned:
                reason = f"None of the cases is small enough to be checked by the {self.executor.name} executor."
                entry.fail(Stage.CHECK, Failure(Fault.UNSUPPORTED, reason))
            elif left_out:
                are = "is" if left_out == 1 else "are"
                entry.notes.append(f"{left_out} of {len(self.plan.cases)} cases {are} too large to be checked here.")
        for done, item in enumerate(planned, 1):
            alive = [entry for entry in self._entries if entry.alive]
            if not alive:
                return
            check = CaseCheck(self.executor, self.op, self.precision, item.case, self.plan.seed)
            with self._room(self.op, self.precision, item.case), self._memory_for("check", item.case), check:
                for entry in alive:
                    self._check_one(entry, check, item)
            self.progress.advanced(done, len(planned), item.case.id)
        for entry in self._entries:
            self._tell_refused(entry)
            if entry.runner is not None and (missing := confine.missing()):
                entry.notes.append(f"It ran without {missing}, which this machine has not got.")

    def _tell_refused(self, entry: _Entry) -> None:
        """Say which cases a library does not take; one that takes none has no times."""
        refused = [case.id for case in self.plan.cases if case.dims in entry.refused]
        if entry.alive and not entry.checks:
            message = (
                f"{entry.name} takes none of the sizes that were tried: its launcher returned cudaErrorNotSupported."
            )
            entry.fail(Stage.CHECK, Failure(Fault.UNSUPPORTED, message))
        elif refused:
            entry.notes.append(
                f"It does not take {len(refused)} of {len(self.plan.cases)} cases: {'; '.join(refused)}."
            )

    @contextmanager
    def _memory_for(self, what: str, case: Case) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            raise DeviceFull(
                f"{self.executor.device().name} has not enough memory to {what} {self._task} at {case.id}. "
                "Choose smaller cases with --cases."
            ) from error

    def _check_one(self, entry: _Entry, case_check: CaseCheck, item: Scheduled) -> None:
        assert entry.build is not None
        with entry.at(Stage.CHECK):
            if entry.runner is None:
                entry.runner = self.executor.open(self.op, entry.build, entry.candidate)
            with span("compare"):
                results = case_check.run(entry.runner, item.variants)
            failure = next((r.failure for r in results if r.failure), None)
            if failure and failure.fault is Fault.UNSUPPORTED:
                if entry.candidate.origin is Origin.LIBRARY:
                    entry.refused.add(item.case.dims)
                    entry.checks.extend(r for r in results if r.passed)
                    return
                failure = replace(failure, fault=Fault.LAUNCH)
            entry.checks.extend(results)
            if failure:
                entry.fail(Stage.CHECK, failure)
        if not entry.alive and entry.runner is not None:
            entry.runner.close()  # its memory is the others'

    def _measure(self) -> None:
        self.progress.started(f"measuring {self._task}")
        cases = sorted(self.plan.cases, key=lambda case: work(self.op, case))
        parts: dict[Case, list[dict[int, Measurement]]] = {}
        for done, case in enumerate(cases, 1):
            parts[case] = [self._measure_group(case)]
            self.progress.advanced(done, len(cases), case.id)
        again = [case for case, (found,) in parts.items() if sittings.sits_again(list(found.values()))]
        for number in range(2, self.plan.sittings + 1 if again else 2):
            self._open([entry for entry in self._entries if entry.alive])
            for case in again:
                parts[case].append(self._measure_group(case))
            self.progress.advanced(number, self.plan.sittings, f"{len(again)} cases, in new processes")
        for sat in parts.values():
            whole = [number for number in sat[0] if all(number in part for part in sat)]
            joined = sittings.join([[part[number] for number in whole] for part in sat], self.plan.half_width)
            for number, measurement in (sat[0] | dict(zip(whole, joined, strict=True))).items():
                self._entries[number].measurements.append(measurement)

    def _measure_group(self, case: Case) -> dict[int, Measurement]:
        """The measurement of each entry that is alive, by its number; what fails stops there."""
        group = {
            number: entry
            for number, entry in enumerate(self._entries)
            if entry.alive and case.dims not in entry.refused
        }
        if not group:
            return {}
        runners = [entry.runner for entry in group.values() if entry.runner is not None]
        start = time.perf_counter()
        with self._memory_for("measure", case), span("judge rounds"):
            measurements = self.executor.measure(self.op, self.precision, case, runners, self.plan)
        seconds = time.perf_counter() - start
        found = {}
        for (number, entry), measured in zip(group.items(), measurements, strict=True):
            found[number] = measurement = self._possible(measured)
            entry.seconds += seconds / len(group)
            if measurement.failure:
                entry.fail(Stage.MEASURE, measurement.failure)
        return found

    def _open(self, entries: Sequence[_Entry]) -> None:
        """Put each version into a new process."""
        with span("worker: open"):
            _side_by_side(self._open_one, entries)

    def _open_one(self, entry: _Entry) -> None:
        assert entry.build is not None
        with entry.at(Stage.MEASURE):
            if entry.runner is not None:
                entry.runner.close()
            entry.runner = self.executor.open(self.op, entry.build, entry.candidate)

    def _end_processes(self) -> None:
        """Taking a CUDA context down takes a while, so all at once."""
        runners = [entry.runner for entry in self._entries if entry.runner is not None]
        with span("worker: end"):
            _side_by_side(lambda runner: runner.close(), runners)
        for entry in self._entries:
            entry.runner = None

    def _possible(self, measurement: Measurement) -> Measurement:
        """The measurement, failed if it is faster than the device can be."""
        ceilings = self.executor.ceilings()
        samples = [sample for samples in measurement.samples_ns for sample in samples]
        if measurement.failure or ceilings is None or not samples:
            return measurement
        dims = dict(measurement.case.dims)
        reason = roofline.impossible(
            median(samples),
            nbytes=self.op.nbytes(self.precision.itemsize, **dims),
            flops=self.op.flops(**dims),
            ceilings=ceilings,
            l2_bytes=self.executor.device().l2_bytes,
            floor_ns=measurement.floor_ns,
        )
        if reason is None:
            return measurement
        message = f"Case {measurement.case.id}: {reason}"
        return replace(measurement, failure=Failure(Fault.IMPOSSIBLE, message))

    def _profile(self) -> None:
        self.progress.started(f"profiling {self._task}")
        nbytes = {case: self.op.nbytes(self.precision.itemsize, **dict(case.dims)) for case in self.plan.cases}
        cases = self.plan.profile_cases or tuple(sorted(nbytes, key=lambda case: nbytes[case])[-1:])
        todo = [
            (entry, case)
            for case in cases
            for entry in self._worth_profiling(
                [e for e in self._entries if e.alive and case.dims not in e.refused], case
            )
        ]
        for done, (entry, case) in enumerate(todo, 1):
            assert entry.build is not None
            measurement = next((m for m in entry.measurements if m.case == case), None)
            with entry.at(Stage.PROFILE):
                profile = self.executor.profile(
                    self.op, self.precision, case, entry.build, entry.candidate, measurement
                )
                entry.profiles.append(profile)
                if profile.failure:
                    entry.fail(Stage.PROFILE, profile.failure)
            self.progress.advanced(done, len(todo), f"{entry.name} at {case.id}")

    def _worth_profiling(self, entries: Sequence[_Entry], case: Case) -> Sequence[_Entry]:
        if not self.plan.profile_fastest:
            return entries
        times = {
            number: median([sample for samples in measurement.samples_ns for sample in samples])
            for number, entry in enumerate(entries)
            for measurement in entry.measurements
            if measurement.case == case and any(measurement.samples_ns)
        }
        return [entries[min(times, key=lambda number: times[number])]] if times else []

    def _recall(self, memory: Remembers) -> None:
        """Add what was measured earlier to what was checked now, saying that it was earlier."""
        wanted = {case.id for case in self.plan.cases}
        usable = [entry for entry in self._entries if entry.status in (Status.PASSED, Status.UNSUPPORTED)]
        found = memory.recall(self.op, [entry.candidate for entry in usable])
        for entry in usable:
            stored = found.get(entry.candidate.id)
            if stored is None:
                entry.notes.append("Nothing is recorded for this version, so it has no times.")
                continue
            entry.recorded = stored
            entry.build = stored.build or entry.build
            entry.measurements = [m for m in stored.measurements if m.case.id in wanted]
            entry.profiles = list(stored.profiles) if self.plan.profile else []
            entry.notes.append(f"The times are those of {stored.started_at} on {stored.device.name}.")
            if entry.failure is not None:
                entry.notes.append(f"So is the check: {entry.failure.message}")
                entry.status, entry.failure, entry.checks = stored.status, stored.failure, list(stored.checks)


def _side_by_side(work: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Do it for each, in a thread of its own; what one of them raises is raised when all have ended."""
    with ThreadPoolExecutor(max(1, len(items)), thread_name_prefix="msbench-group") as pool:
        list(pool.map(work, items))


class _Silence:
    """Nobody listens."""

    def started(self, text: str) -> None:
        pass

    def advanced(self, done: int, total: int, text: str) -> None:
        pass
