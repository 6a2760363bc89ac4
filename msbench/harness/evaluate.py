"""Runs the stages: build, check, measure, profile. One call evaluates a group of versions of one task.

Versions are built in parallel, checked case by case (cheap cases first, each case's expected values computed once),
and those that passed everything are measured against each other. A version that fails a stage goes no further, and
never stops the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Self

from msbench.errors import DeviceFull, WorkerError
from msbench.harness import measuring, profiling
from msbench.harness.check.case import CaseCheck
from msbench.harness.check.cost import work
from msbench.harness.check.schedule import ALIGNED, Scheduled, schedule
from msbench.harness.digest import harness_digest
from msbench.harness.entry import Entry, end_processes
from msbench.harness.gpu_memory import memory_for
from msbench.harness.protocols import (
    Checks,
    Compiles,
    Executor,
    Foresees,
    Plan,
    Progress,
    Remembers,
    Rests,
    Runner,
    Sanitizes,
)
from msbench.harness.sandbox import confine
from msbench.harness.spans import Spans, span
from msbench.model import (
    BuildResult,
    Candidate,
    Evaluation,
    Failure,
    Fault,
    Origin,
    Stage,
    Status,
)
from msbench.spec import Case, Operator, Problem, Task

Build = Callable[[Operator, Candidate], BuildResult]

__all__ = ["Checks", "Executor", "Plan", "Progress", "Remembers", "Runner", "evaluate"]

SANITIZED_LIMIT = 1e9
"""The work up to which a size is tried under a memory checker, which makes a kernel slower by a factor of ten to a hundred."""

SANITIZED_SIZES = 6
"""How many sizes are, the cheapest ones."""


def evaluate(
    executor: Executor,
    task: Task,
    candidates: Sequence[Candidate],
    plan: Plan,
    *,
    command: str,
    progress: Progress | None = None,
) -> list[Evaluation]:
    """Evaluate versions of one task; one evaluation for each candidate, in their order.

    Args:
        command: what a person types to repeat this; it is recorded.
        progress: receives progress reports.

    Raises:
        ToolchainError: nothing can be built.
        DeviceError: the device is missing, lost, or too small for a case.
        SpecError: the operator's spec is wrong.
    """
    with Group(executor, task, candidates, plan, progress=progress) as group:
        group.check()
        return group.finish(command)


class Group:
    """Versions of one task on their way through the stages, together; a failed one is left alone from there on.

    ``check`` builds and checks, ``finish`` measures and profiles what passed, in the same processes. ``pause`` ends them in
    between; they are started again where they are needed.
    """

    def __init__(
        self,
        executor: Executor,
        task: Task,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        progress: Progress | None = None,
        build: Build | None = None,
        room: measuring.Room | None = None,
        spans: Spans | None = None,
    ) -> None:
        """
        Args:
            build: in place of the executor's own, where builds were begun earlier.
            room: entered for each case that is checked or measured, where others are at the same time.
            spans: told where the time goes.
        """
        self.executor = executor
        self.task = task
        self.plan = plan
        self.progress = progress or _Silence()
        self._build_one = build or executor.build
        self._among_others = room is not None
        self._room = room or _no_others
        self._recording = spans.recording if spans else _unrecorded
        self._entries = [Entry(candidate) for candidate in candidates]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_processes(self._entries)

    def check(self) -> None:
        """Build and check every version. Raises what ``evaluate`` raises.

        Raises:
            DeviceFull: a version found no memory while others were checked at the same time.
        """
        with self._recording("check"), self._foreseeing():
            with self._compiling(), span("wait for builds"):
                self._build()
            self._check()

    def _foreseeing(self) -> AbstractContextManager[object]:
        if isinstance(self.executor, Foresees):
            return self.executor.foreseeing(self._op, [entry.candidate for entry in self._entries])
        return nullcontext()

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Have compiled meanwhile what checks run, unless others are checked at the same time: it was compiled for all then."""
        if self._among_others or not isinstance(self.executor, Compiles):
            yield
            return
        begun = self.executor.compile_checks(self._op, max(1, (os.cpu_count() or 1) // 2))
        yield
        with span("compile checks"):
            begun.result()
        self.executor.checks_compiled()

    def rest(self) -> None:
        """Make idle processes release memory that others may need. One that fails here fails when it is called."""
        for entry in self._entries:
            if isinstance(entry.runner, Rests) and entry.alive:
                with suppress(WorkerError):
                    entry.runner.rest()

    def pause(self) -> None:
        """End all processes."""
        with self._recording("check"):
            end_processes(self._entries)

    def finish(self, command: str) -> list[Evaluation]:
        """Measure and profile what passed; one evaluation for each candidate. Raises what ``evaluate`` raises."""
        with self._recording("measure"):
            return self._finish(command)

    def _finish(self, command: str) -> list[Evaluation]:
        if self.plan.measure and self.executor.measures:
            measuring.measure(self.executor, self.task, self.plan, self._entries, self.progress, self._room)
            if self.plan.profile:
                end_processes(self._entries)  # no runner may disturb a profiler, nor hold memory that it needs
                profiling.profile(self.executor, self.task, self.plan, self._entries, self.progress)
        if self.plan.measure and isinstance(self.executor, Remembers):
            self._recall(self.executor)
        device = self.executor.checked_on() if isinstance(self.executor, Remembers) else self.executor.device()
        return [
            entry.evaluation(self.executor.name, device, command, self.plan.seed, harness_digest(self._op))
            for entry in self._entries
        ]

    @property
    def _op(self) -> Operator:
        return self.task.operator

    def _build(self) -> None:
        self.progress.started(f"building {self.task.id}")
        pool = ThreadPoolExecutor(
            max(1, min(len(self._entries), os.cpu_count() or 1)), thread_name_prefix="msbench-build"
        )
        try:
            waiting = {pool.submit(self._build_one, self._op, entry.candidate): entry for entry in self._entries}
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
        self.progress.started(f"checking {self.task.id}")
        planned = schedule(self._op, replace(self.plan, trusted=False), self.executor.check_limit)
        of_baselines = {item.case.id: item for item in schedule(self._op, self.plan, self.executor.check_limit)}
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
            asked = [
                (entry, one)
                for entry in alive
                if (one := of_baselines.get(item.case.id) if entry.is_baseline else item) is not None
            ]
            if not asked:
                continue
            problem = self.task.at(item.case)
            check = CaseCheck(self.executor, problem, self.plan.seed)
            with self._room(problem), memory_for("check", self.executor, problem), check:
                for entry, one in asked:
                    self._check_one(entry, check, one)
            self.progress.advanced(done, len(planned), item.case.id)
        if isinstance(self.executor, Sanitizes) and self.executor.sanitizes:
            self._sanitize(self.executor, planned)
        for entry in self._entries:
            entry.tell_refused(self.plan.cases)
            if entry.runner is not None and (missing := confine.missing()):
                entry.notes.append(f"It ran without {missing}, which this machine has not got.")

    def _check_one(self, entry: Entry, case_check: CaseCheck, item: Scheduled) -> None:
        assert entry.build is not None
        with entry.at(Stage.CHECK):
            if entry.runner is None:
                entry.runner = self.executor.open(self._op, entry.build, entry.candidate)
            with span("compare"):
                results = case_check.run(entry.runner, item.variants, once=self._is_trusted(entry, item))
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
        if self._among_others and entry.failure and entry.failure.fault is Fault.OUT_OF_MEMORY:
            raise DeviceFull(f"{entry.name}: {entry.failure.message}")  # others may have taken it: once more, alone

    def _is_trusted(self, entry: Entry, item: Scheduled) -> bool:
        """Whether nothing more is to be known of a case than that it computes right: a naive kernel takes long on large ones."""
        return entry.is_baseline and self.plan.trusted and item.variants == ALIGNED

    def _sanitize(self, executor: Sanitizes, planned: Sequence[Scheduled]) -> None:
        """Have the memory accesses watched of versions that passed, on the cheapest of their sizes."""
        by_size: dict[tuple[tuple[str, int], ...], Case] = {}
        for item in planned:
            if work(self._op, item.case) <= SANITIZED_LIMIT:
                by_size.setdefault(item.case.dims, item.case)
        cases = list(by_size.values())[:SANITIZED_SIZES]
        for entry in (one for one in self._entries if one.alive and not one.is_baseline and cases):
            assert entry.build is not None
            self.progress.started(f"sanitizing {self.task.id}")
            with entry.at(Stage.CHECK):
                results = executor.sanitize(self.task, cases, entry.build, self.plan.seed)
                entry.checks.extend(results)
                if failure := next((r.failure for r in results if r.failure), None):
                    entry.fail(Stage.CHECK, failure)

    def _recall(self, memory: Remembers) -> None:
        """Add what was measured earlier to what was checked now, saying that it was earlier."""
        wanted = {case.id for case in self.plan.cases}
        usable = [entry for entry in self._entries if entry.status in (Status.PASSED, Status.UNSUPPORTED)]
        found = memory.recall(self._op, [entry.candidate for entry in usable], self.plan.recorded_with)
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


def _no_others(_problem: Problem) -> AbstractContextManager[object]:
    return nullcontext()


def _unrecorded(_phase: str) -> AbstractContextManager[object]:
    return nullcontext()


class _Silence:
    """Nobody listens."""

    def started(self, text: str) -> None:
        pass

    def advanced(self, done: int, total: int, text: str) -> None:
        pass
