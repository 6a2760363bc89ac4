"""Many tasks in a row, faster than one after another: what can be done ahead is, and several tasks are checked at once.

Only measuring needs the device to itself. So tasks go in batches: those of a batch are checked side by side, each with
processes and memory of its own, then measured one by one in the same processes, which have every kernel loaded and every
library set up. An idle process takes nothing from the one that is timed but its memory; all end together, while the next
batch is checked.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Protocol, Self, TypeVar, runtime_checkable

from msbench.errors import DeviceFull, SpecError
from msbench.harness.arena import Layout
from msbench.harness.evaluate import Group
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.harness.schedule import schedule, work
from msbench.harness.spans import Spans, span
from msbench.model import BuildResult, Candidate, Device, Evaluation
from msbench.spec import Case, Operator, Precision

PROCESSES = 60
"""Those of the tasks that are checked side by side are no more than this together."""

ROOM = 2**31
"""Cases are checked side by side up to so many bytes of arrays: float64 copies take up to 24 times that."""

LONG_WORK = 1e10
"""A case that costs more operations (``schedule.work``) has calls that share the device with others while they run."""

_CORES = os.cpu_count() or 1
_CHECKS_AT_ONCE = min(10, max(4, _CORES * 5 // 8))
_MEMORY_A_PROCESS = 2**31  # of the device and of the host: several times what it takes, as large cases need the rest
_LAUNCHES_A_SECOND = 100.0
_WORK_A_SECOND = 1e11
_SET_UP_S = 0.5  # of a vendor library, for each size

_Made = TypeVar("_Made")

JobError = SpecError | DeviceFull
"""What is wrong with one job and not with the others."""


@runtime_checkable
class Divisible(Protocol):
    """An executor that has others beside it on the same device."""

    def sibling(self) -> Executor:
        """Another one, for a thread of its own."""

    def compile_checks(self, op: Operator) -> None:
        """Have ready what checking an operator runs on the device besides kernels; called from several threads."""


@dataclass(frozen=True)
class Job:
    """One task's versions and what is done with them; ``spans`` is told where the time goes."""

    operator: Operator
    precision: Precision
    candidates: tuple[Candidate, ...]
    plan: Plan
    spans: Spans | None = field(default=None, compare=False)

    @property
    def task(self) -> str:
        """For example ``"softmax/bf16"``."""
        return f"{self.operator.name}/{self.precision}"

    @property
    def check_s(self) -> float:
        """How long its check takes, roughly."""
        planned = schedule(self.operator, self.plan, None)
        libraries = sum(bool(candidate.link) for candidate in self.candidates)
        launches = sum(len(item.variants) for item in planned) * len(self.candidates)
        sizes = len({item.case.dims for item in planned})
        operations = sum(work(self.operator, item.case) for item in planned)
        return launches / _LAUNCHES_A_SECOND + operations / _WORK_A_SECOND + sizes * libraries * _SET_UP_S


def evaluate_all(
    executor: Executor, jobs: Sequence[Job], *, command: str, progress: Progress, batch: int | None = None
) -> Iterator[tuple[Job, list[Evaluation] | JobError]]:
    """``evaluate`` for every job; each is given out as soon as it is measured.

    ``batch`` is how many are checked side by side; by default as many as have room on the device, in which case those whose
    check takes longest come first, since all would wait for one at the end. Otherwise they keep their order.

    What is wrong with one job alone (its spec, or a case too large for the device) is that job's result, and the next one
    goes on. Raises whatever else ``evaluate`` raises; that, or closing the iterator, ends all processes.
    """
    with ExitStack() as stack:
        builds = stack.enter_context(_BuildsAhead(executor))
        if not isinstance(executor, Divisible):
            for job, following in zip_longest(jobs, jobs[1:]):
                builds.begin([job, following] if following else [job])
                with _group(executor, job, builds, progress) as group:
                    yield job, _caught(partial(_whole, group, command))
            return
        _ = executor.xp  # the device is this process's from here on
        ordered = list(jobs) if batch else sorted(jobs, key=lambda job: -job.check_s)
        ready = stack.enter_context(_ChecksAhead(executor, ordered))
        closing = stack.enter_context(_Closing())
        batches = list(_batches(ordered, batch or len(jobs), _fitting(executor.device())))
        for some, following in zip_longest(batches, batches[1:], fillvalue=()):
            builds.begin(some)
            with _Batch(executor, some, builds, ready, closing, progress) as checked:
                builds.begin(following)  # not earlier: the processor is needed for checks, and nobody waits for them
                ready.wait()
                closing.wait()
                for number, job in enumerate(some):
                    yield job, checked.finish(number, command)


def _fitting(device: Device) -> int:
    """How many processes have room on the device and in the host's memory."""
    known = [device.memory_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    return max(1, min([PROCESSES, *(nbytes // _MEMORY_A_PROCESS for nbytes in known if nbytes)]))


def _batches(jobs: Sequence[Job], size: int, processes: int) -> Iterator[list[Job]]:
    """The jobs in their order, up to ``size`` together, and no more than have so many ``processes`` unless it is one."""
    batch: list[Job] = []
    for job in jobs:
        if batch and (len(batch) == size or sum(len(one.candidates) for one in (*batch, job)) > processes):
            yield batch
            batch = []
        batch.append(job)
    if batch:
        yield batch


def _whole(group: Group, command: str) -> list[Evaluation]:
    group.check()
    return group.finish(command)


def _caught(work: Callable[[], _Made]) -> _Made | JobError:
    try:
        return work()
    except (SpecError, DeviceFull) as error:
        return error


def _group(
    executor: Executor, job: Job, builds: _BuildsAhead, progress: Progress | None, room: _Room | None = None
) -> Group:
    return Group(
        executor,
        job.operator,
        job.precision,
        job.candidates,
        job.plan,
        progress=progress,
        build=builds.build,
        room=partial(room.enter, quietly=any(one.link for one in job.candidates)) if room else None,
        spans=job.spans,
    )


class _Batch:
    """Jobs that are checked side by side on entering, each on an executor of its own, and then finished one by one."""

    def __init__(
        self,
        executor: Divisible,
        jobs: Sequence[Job],
        builds: _BuildsAhead,
        ready: _ChecksAhead,
        closing: _Closing,
        progress: Progress,
    ) -> None:
        self._executor = executor
        self._jobs = jobs
        self._builds = builds
        self._ready = ready
        self._closing = closing
        self._progress = progress
        self._room = _Room()
        self._processes: list[ExitStack] = []
        self._checked: list[Group | JobError] = []

    def __enter__(self) -> Self:
        self._progress.started(f"checking {len(self._jobs)} tasks")
        siblings = [self._executor.sibling() for _ in self._jobs]
        pool = ThreadPoolExecutor(_CHECKS_AT_ONCE, thread_name_prefix="msbench-check")
        try:
            pending = [
                pool.submit(_caught, partial(self._check, job, own))
                for job, own in zip(self._jobs, siblings, strict=True)
            ]
            for done, (job, future) in enumerate(zip(self._jobs, pending, strict=True), 1):
                self._checked.append(future.result())
                self._progress.advanced(done, len(self._jobs), job.task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            self._end()
            raise
        pool.shutdown()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _check(self, job: Job, own: Executor) -> Group:
        processes = ExitStack()
        self._processes.append(processes)
        processes.enter_context(own)
        group = processes.enter_context(_group(own, job, self._builds, None, self._room))
        self._ready.wait_for(job)
        group.check()
        return group

    def finish(self, number: int, command: str) -> list[Evaluation] | JobError:
        """Measure what passed of a job. One that found the device full gets it to itself, and a second chance."""
        job, group = self._jobs[number], self._checked[number]
        result: list[Evaluation] | JobError
        if isinstance(group, Group):
            group.progress = self._progress
            result = _caught(partial(group.finish, command))
        else:
            result = group
        if isinstance(result, DeviceFull) and len(self._jobs) > 1:
            for other in self._checked:
                if isinstance(other, Group):
                    other.pause()
            with self._executor.sibling() as own, _group(own, job, self._builds, self._progress) as alone:
                return _caught(partial(_whole, alone, command))
        return result

    def _end(self) -> None:
        for processes in self._processes:
            self._closing.close(processes)


class _Closing:
    """Ends processes while something else is done: taking a CUDA context down takes a while."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="msbench-closing")
        self._begun: list[Future[None]] = []

    def close(self, processes: ExitStack) -> None:
        """Begin to."""
        self._begun.append(self._pool.submit(processes.close))

    def wait(self) -> None:
        """Until all are gone, since that is not done beside a measurement."""
        for future in self._begun:
            future.result()
        self._begun.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


class _ChecksAhead:
    """What checks run on the device, compiled before they do: in processes, since in threads every one would compile it."""

    def __init__(self, executor: Divisible, jobs: Sequence[Job]) -> None:
        self._pool = ThreadPoolExecutor(max(1, _CORES // 2), thread_name_prefix="msbench-compiling")
        operators = {job.operator.name: job.operator for job in jobs}
        self._begun = {
            name: self._pool.submit(executor.compile_checks, op)
            for name, op in (operators.items() if len(operators) > 1 else ())
        }

    def wait_for(self, job: Job) -> None:
        """Until it is done for a job's operator."""
        if job.operator.name in self._begun:
            self._begun[job.operator.name].result()

    def wait(self) -> None:
        """Until it is done for all."""
        wait(self._begun.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Room:
    """Lets cases be checked side by side while their arrays fit; one that never would goes in alone. First come, first in.

    So does a long one, where libraries take part: on their first call they choose what is fastest. Of short calls some of
    those that they time find the device free; of long ones none would.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0
        self._taken = 0

    @contextmanager
    def enter(self, op: Operator, precision: Precision, case: Case, *, quietly: bool = False) -> Iterator[None]:
        """While a case is checked; ``quietly``: with libraries."""
        nbytes = ROOM if quietly and work(op, case) > LONG_WORK else Layout.of(op, precision, case).nbytes
        turn = object()
        with self._changed, span("wait for room"):
            self._queue.append(turn)
            self._changed.wait_for(
                lambda: self._queue[0] is turn and (self._taken + nbytes <= ROOM or not self._inside)
            )
            self._queue.popleft()
            self._inside += 1
            self._taken += nbytes
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._taken -= nbytes
                self._changed.notify_all()


class _BuildsAhead:
    """Builds that are begun before their turn, on half of the processor's cores."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="msbench-ahead")
        self._begun: dict[str, Future[BuildResult]] = {}

    def begin(self, jobs: Sequence[Job]) -> None:
        """Begin the builds of some jobs, unless they are begun already."""
        for job in jobs:
            for candidate in job.candidates:
                if candidate.id not in self._begun:
                    self._begun[candidate.id] = self._pool.submit(self._build, job, candidate)

    def _build(self, job: Job, candidate: Candidate) -> BuildResult:
        with job.spans.alongside() if job.spans else nullcontext():
            return self._executor.build(job.operator, candidate)

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """See ``protocols.Executor``."""
        return self._begun[candidate.id].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
