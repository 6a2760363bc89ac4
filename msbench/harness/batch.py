"""Many tasks in a row, faster than one after another: builds run ahead, and several tasks are checked at the same time.

Only measuring needs the device to itself. So tasks go in batches: those of a batch are checked side by side, each with
processes and memory of its own, then measured one by one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from typing import Protocol, Self, TypeVar, runtime_checkable

from msbench.errors import DeviceFull, SpecError
from msbench.harness.arena import Layout
from msbench.harness.evaluate import Group
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.harness.spans import Spans, span
from msbench.model import BuildResult, Candidate, Evaluation
from msbench.spec import Case, Operator, Precision

CHECKS_AT_ONCE = 6
BATCH = 12
ROOM = 2**31
"""Cases are checked side by side up to so many bytes of arrays: float64 copies take up to 24 times that."""


_Made = TypeVar("_Made")

JobError = SpecError | DeviceFull
"""What is wrong with one job and not with the others."""


@runtime_checkable
class Divisible(Protocol):
    """An executor that has others beside it on the same device."""

    def sibling(self) -> Executor:
        """Another one, for a thread of its own."""


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


def evaluate_all(
    executor: Executor, jobs: Sequence[Job], *, command: str, progress: Progress
) -> Iterator[tuple[Job, list[Evaluation] | JobError]]:
    """``evaluate`` for every job, in their order; each is given out as soon as it is measured.

    What is wrong with one job alone (its spec, or a case too large for the device) is that job's result, and the next one
    goes on. Raises whatever else ``evaluate`` raises; that, or closing the iterator, ends all processes.
    """
    with _BuildsAhead(executor) as builds:
        if not isinstance(executor, Divisible):
            for (job,) in builds.ahead([[job] for job in jobs]):
                with _group(executor, job, builds, progress) as group:
                    yield job, _caught(partial(_whole, group, command))
            return
        # The first job goes alone: what CuPy compiles for it would be compiled in every thread.
        starts = [0, *range(1, len(jobs), BATCH), len(jobs)]
        for batch in builds.ahead([jobs[start:end] for start, end in pairwise(starts)]):
            for job, checked in zip(batch, _checked(executor, batch, builds, progress), strict=True):
                if isinstance(checked, JobError):
                    yield job, checked
                    continue
                with checked:
                    checked.progress = progress
                    yield job, _caught(partial(checked.finish, command, executor))


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
        room=room.enter if room else None,
        spans=job.spans,
    )


def _checked(
    executor: Divisible, jobs: Sequence[Job], builds: _BuildsAhead, progress: Progress
) -> list[Group | JobError]:
    """The jobs' groups, built and checked, their processes ended; or what kept one from that."""
    progress.started(f"checking {len(jobs)} tasks")
    room = _Room()
    done = 0

    def check(job: Job, own: Executor) -> Group:
        with own, _group(own, job, builds, None, room) as group:
            group.check()
            group.pause()
            return group

    siblings = [executor.sibling() for _ in jobs]  # here: the first one takes the device for this process
    with ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="msbench-check") as pool:
        pending = [pool.submit(_caught, partial(check, job, own)) for job, own in zip(jobs, siblings, strict=True)]
        try:
            groups: list[Group | JobError] = []
            for job, future in zip(jobs, pending, strict=True):
                groups.append(future.result())
                done += 1
                progress.advanced(done, len(jobs), job.task)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return groups


class _Room:
    """Lets cases be checked side by side while their arrays fit; one that never would goes in alone. First come, first in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0
        self._taken = 0

    @contextmanager
    def enter(self, op: Operator, precision: Precision, case: Case) -> Iterator[None]:
        """While a case is checked."""
        nbytes = Layout.of(op, precision, case).nbytes
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

    def ahead(self, batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Job]]:
        """The batches in their order, the builds of each begun when the one before it is given out."""
        for batch, following in zip_longest(batches, batches[1:], fillvalue=()):
            for job in (*batch, *following):
                for candidate in job.candidates:
                    if candidate.id not in self._begun:
                        self._begun[candidate.id] = self._pool.submit(self._build, job, candidate)
            yield batch

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
