"""Pipelines many tasks: builds run ahead, and several tasks are checked at once.

Only measuring needs the device to itself. So tasks go in batches: those of a batch are checked concurrently, each by one of
the ``referees`` and in candidate processes of its own, then measured one by one in the same processes, which have every
kernel loaded and every library set up. An idle process takes nothing from the one that is timed but memory, of which it keeps
no workspace; all end together, while the next batch is checked.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from queue import SimpleQueue
from typing import Protocol, Self, TypeVar, runtime_checkable

from msbench.errors import DeviceFull, SpecError
from msbench.harness.batch.referees import Assignment, Hears, Make, Referee, Referees
from msbench.harness.check.schedule import schedule, work
from msbench.harness.evaluate import Build, Group
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.harness.spans import Spans
from msbench.model import BuildResult, Candidate, Device, Evaluation
from msbench.operators import elements
from msbench.spec import Case, Operator, Precision

REFEREES = 16
"""More tasks are not checked at the same time: the device has enough to do."""

PROCESSES = 72
"""The total for tasks that are checked at once is at most this."""

CHECK_BYTES = 48
"""What checking takes of the device's memory for each element of a case's arrays: float64 copies of it, mostly."""

_CORES = os.cpu_count() or 1
_SPARE_CORES = 2  # for this process and the compilers
_MEMORY_A_PROCESS = (
    7 * 2**28
)  # of the device and of the host: several times what it takes, as large cases need the rest
_ROOM = 0.5  # of the device's memory is for cases that are checked side by side
_USUAL_MEMORY = 2**37  # of a device that does not tell
_LAUNCHES_A_SECOND = 100.0
_WORK_A_SECOND = 1e11
_SET_UP_S, _CUDNN_SET_UP_S = 0.2, 2.5  # of a vendor library, for each size: cuDNN compiles what it tries

_Made = TypeVar("_Made")

JobError = SpecError | DeviceFull
"""What is wrong with one job and not with the others."""


@runtime_checkable
class Divisible(Protocol):
    """An executor that has others beside it on the same device, in other processes."""

    def beside(self) -> Make:
        """What makes them there; this one goes on holding the device. It can be pickled."""

    def compile_checks(self, op: Operator, processes: int = 1) -> None:
        """Have ready what checking an operator runs on the device besides kernels; called from several threads."""

    def checks_compiled(self) -> None:
        """No more will be compiled: what did that may end."""


@dataclass(frozen=True)
class Job:
    """One task's versions and what is done with them; ``spans`` is told where the time goes, ``took_s`` is how long it all took last time."""

    operator: Operator
    precision: Precision
    candidates: tuple[Candidate, ...]
    plan: Plan
    spans: Spans | None = field(default=None, compare=False)
    took_s: float | None = field(default=None, compare=False)

    @property
    def task(self) -> str:
        """For example ``"softmax/bf16"``."""
        return f"{self.operator.name}/{self.precision}"

    @property
    def largest(self) -> int:
        """The elements of its largest case."""
        return max((elements(self.operator, dict(case.dims)) for case in self.plan.cases), default=0)

    @property
    def check_s(self) -> float:
        """How long its check takes, roughly: longest where all took longest, as far as that is known."""
        if self.took_s is not None:
            return self.took_s
        planned = schedule(self.operator, self.plan, None)
        set_up = sum(_CUDNN_SET_UP_S if "cudnn" in c.link else _SET_UP_S for c in self.candidates if c.link)
        launches = sum(len(item.variants) for item in planned) * len(self.candidates)
        sizes = len({item.case.dims for item in planned})
        operations = sum(work(self.operator, item.case) for item in planned)
        return launches / _LAUNCHES_A_SECOND + operations / _WORK_A_SECOND + sizes * set_up


Results = Iterator[tuple[Job, list[Evaluation] | JobError]]
"""Each job with what came of it."""


def evaluate_all(
    executor: Executor,
    jobs: Sequence[Job],
    *,
    command: str,
    progress: Progress,
    batch: int | None = None,
    build: Build | None = None,
    referees: Referees | None = None,
) -> Results:
    """``evaluate`` for every job; each is given out as soon as it is measured.

    ``build`` is in place of the executor's own, where builds were begun earlier. ``referees`` stay for the next jobs, since they take
    seconds to start; others end with these jobs. ``batch`` is how many are checked side by side; by default as many as have room on the device, in which case those whose
    check takes longest come first, since all would wait for one at the end. Otherwise they keep their order.

    What is wrong with one job alone (its spec, or a case too large for the device) is that job's result, and the next one
    goes on. Raises whatever else ``evaluate`` raises, and WorkerCrashed where a referee is lost; that, or closing the
    iterator, ends all processes.
    """
    alone = batch == 1 or len(jobs) < 2 or not all(job.operator.folder for job in jobs)
    if isinstance(executor, Divisible) and not alone:
        staying = referees or Referees()
        with nullcontext() if referees else staying:
            yield from _side_by_side(executor, executor.beside, jobs, command, progress, batch, build, staying)
    else:
        with _ending(referees or Referees()):
            if referees:
                referees.each("settle")
            yield from _one_by_one(executor, jobs, command, progress, build)


def _one_by_one(
    executor: Executor, jobs: Sequence[Job], command: str, progress: Progress, build: Build | None
) -> Results:
    with _BuildsAhead(build or executor.build) as builds, _ChecksAhead(executor, jobs) as ready:
        for job, following in zip_longest(jobs, jobs[1:]):
            builds.begin([job])
            ready.wait()
            with Group(
                executor,
                job.operator,
                job.precision,
                job.candidates,
                job.plan,
                progress=progress,
                build=builds.build,
                spans=job.spans,
            ) as group:
                # The next one's compilers start so late that it does not wait long between them and its turn.
                begin_next = partial(builds.begin, [following] if following else [])
                yield job, _caught(partial(_whole, group, command, begin_next))


def _side_by_side(
    executor: Executor,
    beside: Callable[[], Make],
    jobs: Sequence[Job],
    command: str,
    progress: Progress,
    size: int | None,
    build: Build | None,
    referees: Referees,
) -> Results:
    ordered = list(jobs) if size else sorted(jobs, key=lambda job: -job.check_s)
    batches = list(_batches(ordered, size or len(jobs), _fitting(executor.device())))
    count = min(REFEREES, max(1, _CORES - _SPARE_CORES), max(map(len, batches)))
    with _BuildsAhead(build or executor.build) as builds:
        builds.begin(batches[0], waited_for=True)
        make = beside()  # before anything else uses the device
        with _ChecksAhead(executor, ordered) as ready, _ending(referees):
            referees.enough(make, count)
            for some, following in zip_longest(batches, batches[1:], fillvalue=()):
                with _Batch(referees, some, builds, ready, progress, executor.device().memory_bytes) as checked:
                    builds.begin(following)  # not earlier: checks need the processor, and nobody waits for these
                    ready.wait()
                    referees.each("settle")
                    turns = list(enumerate(some))
                    if not size:
                        # One that finds the device full costs those behind it their processes.
                        turns.sort(key=lambda turn: turn[1].largest)
                    for number, job in turns:
                        yield job, checked.finish(number, command)


@contextmanager
def _ending(referees: Referees) -> Iterator[None]:
    """Ends them where the block is left by an exception: what they are at is of no use then."""
    try:
        yield
    except BaseException:
        referees.end()
        raise


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


def _whole(group: Group, command: str, between: Callable[[], None]) -> list[Evaluation]:
    group.check()
    between()
    return group.finish(command)


def _caught(work: Callable[[], _Made]) -> _Made | JobError:
    try:
        return work()
    except (SpecError, DeviceFull) as error:
        return error


class _Batch:
    """Jobs that are checked at once on entering, each by a referee, and then finished one by one."""

    def __init__(
        self,
        referees: Referees,
        jobs: Sequence[Job],
        builds: _BuildsAhead,
        ready: _ChecksAhead,
        progress: Progress,
        memory_bytes: int | None,
    ) -> None:
        self._referees = referees
        self._jobs = jobs
        self._builds = builds
        self._ready = ready
        self._progress = progress
        self._room = _Room(memory_bytes)
        self._idle: SimpleQueue[Referee] = SimpleQueue()
        self._checked: list[Referee | JobError] = []

    def __enter__(self) -> Self:
        self._progress.started(f"checking {len(self._jobs)} tasks")
        for referee in self._referees.all:
            self._idle.put(referee)
        pool = ThreadPoolExecutor(len(self._referees.all), thread_name_prefix="msbench-check")
        try:
            begun = [pool.submit(self._check, number, job) for number, job in enumerate(self._jobs)]
            tasks = {future: job.task for future, job in zip(begun, self._jobs, strict=True)}
            for done, future in enumerate(as_completed(begun), 1):
                future.result()
                self._progress.advanced(done, len(begun), tasks[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()
        self._checked = [future.result() for future in begun]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._referees.each("drop")

    def _check(self, number: int, job: Job) -> Referee | JobError:
        """By whichever referee is idle; the one that holds it from then on."""
        referee = self._idle.get()
        try:
            self._ready.wait_for(job)
            return _caught(partial(self._checked_by, referee, number, job))
        finally:
            self._idle.put(referee)

    def _checked_by(self, referee: Referee, number: int, job: Job) -> Referee:
        with ExitStack() as inside:  # also where the referee ends in between

            def enter(case: Case) -> None:
                inside.enter_context(self._room.enter(job.operator, case))

            hears: Hears = {**self._builds_of(job), "enter": enter, "leave": inside.close}
            recorded = referee.call("check", number, _assignment(job), task=job.task, hears=hears)
        if job.spans:
            job.spans.absorb(recorded)
        return referee

    def finish(self, number: int, command: str) -> list[Evaluation] | JobError:
        """Measure what passed of a job. One that found the device full gets it to itself, and a second chance."""
        job, result = self._jobs[number], self._checked[number]
        if isinstance(result, Referee):
            measured = _caught(partial(self._measured_by, result, job, "finish", number, command))
        else:
            measured = result
        if isinstance(measured, DeviceFull) and (len(self._jobs) > 1 or measured is result):
            self._referees.each("pause")
            if isinstance(result, Referee):
                return _caught(partial(self._measured_by, result, job, "finish", number, command))
            again = partial(self._measured_by, self._referees.all[0], job, "whole", _assignment(job), command)
            return _caught(again)
        return measured

    def _measured_by(self, referee: Referee, job: Job, *asked: object) -> list[Evaluation]:
        name, *arguments = asked
        progress = self._progress
        hears: Hears = {**self._builds_of(job), "started": progress.started, "advanced": progress.advanced}
        found: list[Evaluation]
        found, recorded = referee.call(str(name), *arguments, task=job.task, hears=hears)
        if job.spans:
            job.spans.absorb(recorded)
        return found

    def _builds_of(self, job: Job) -> Hears:
        return {"build": partial(self._builds.build, job.operator)}


def _assignment(job: Job) -> Assignment:
    return Assignment(
        job.operator.name,
        job.operator.folder,
        job.precision,
        job.candidates,
        job.plan,
        recorded=job.spans is not None,
    )


class _ChecksAhead:
    """What checks run on the device, compiled before they do: once, or every referee would compile it."""

    def __init__(self, executor: Executor, jobs: Sequence[Job]) -> None:
        self._pool = ThreadPoolExecutor(max(1, _CORES // 2), thread_name_prefix="msbench-compiling")
        operators = {job.operator.name: job.operator for job in jobs}
        self._begun: dict[str, Future[None]] = {}
        self._left = len(operators)
        self._counting = threading.Lock()
        if isinstance(executor, Divisible) and len(operators) > 1:
            _ = executor.xp  # the device is this process's from here on
            first: Future[None] | None = None
            for name, op in operators.items():
                self._begun[name] = self._pool.submit(self._compile, executor, op, first)
                first = first or self._begun[name]

    def _compile(self, executor: Divisible, op: Operator, first: Future[None] | None) -> None:
        """``first``: wait for that; it compiles what most operators' checks launch, which others would compile beside it.

        Only builds go on meanwhile, so several processes share what that one needs.
        """
        try:
            wait([first] if first else [])
            executor.compile_checks(op, processes=1 if first else max(1, _CORES // 4))
        finally:
            with self._counting:
                self._left -= 1
                is_last = not self._left
            if is_last:
                executor.checks_compiled()

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
    """Lets cases be checked at once while the device has room, first come, first in; one that never fits goes in alone.

    Those that go in alone wait until nobody else does: each time the others make way for one, the device is idle for a while.
    """

    def __init__(self, memory_bytes: int | None) -> None:
        self._room = (memory_bytes or _USUAL_MEMORY) * _ROOM
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0
        self._taken = 0.0

    @contextmanager
    def enter(self, op: Operator, case: Case) -> Iterator[None]:
        """While a case is checked."""
        nbytes = min(CHECK_BYTES * elements(op, dict(case.dims)), self._room)
        with self._changed:
            if nbytes == self._room:
                self._changed.wait_for(lambda: not self._inside and not self._queue)
            else:
                turn = object()
                self._queue.append(turn)
                self._changed.wait_for(lambda: self._queue[0] is turn and self._taken + nbytes <= self._room)
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
    """Builds that are begun before their turn: on half of the processor's cores, or on all where everything waits for them."""

    def __init__(self, build: Build) -> None:
        self._build_one = build
        self._pool = ThreadPoolExecutor(_CORES, thread_name_prefix="msbench-ahead")
        self._half = threading.Semaphore(max(1, _CORES // 2))
        self._begun: dict[str, Future[BuildResult]] = {}

    def begin(self, jobs: Sequence[Job], *, waited_for: bool = False) -> None:
        """Begin the builds of some jobs, unless they are begun already."""
        share = nullcontext() if waited_for else self._half
        for job in jobs:
            for candidate in job.candidates:
                if candidate.id not in self._begun:
                    self._begun[candidate.id] = self._pool.submit(self._build, job, candidate, share)

    def _build(self, job: Job, candidate: Candidate, share: AbstractContextManager[object]) -> BuildResult:
        with share, job.spans.alongside() if job.spans else nullcontext():
            return self._build_one(job.operator, candidate)

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """See ``protocols.Executor``."""
        return self._begun[candidate.id].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
