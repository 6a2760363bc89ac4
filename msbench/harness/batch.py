"""Many tasks in a row, faster than one after another: builds run ahead, and several tasks are checked at the same time.

Only measuring needs the device to itself. So tasks go in batches: those of a batch are checked side by side, each with
processes and memory of its own, then measured one by one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Protocol, Self, TypeVar, runtime_checkable

from msbench.errors import DeviceFull, SpecError
from msbench.harness.arena import Layout
from msbench.harness.evaluate import Group
from msbench.harness.protocols import Executor, Plan, Progress
from msbench.model import BuildResult, Candidate, Evaluation
from msbench.spec import Case, Operator, Precision

CHECKS_AT_ONCE = 6
BATCH = 12
ROOMY = 2**28
"""A case with arrays of so many bytes is checked while no other is: its float64 copies take many times that."""


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
    """One task's versions and what is done with them."""

    operator: Operator
    precision: Precision
    candidates: tuple[Candidate, ...]
    plan: Plan

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
    with _BuildsAhead(executor, jobs) as builds:
        if not isinstance(executor, Divisible):
            for job in jobs:
                with _group(executor, job, builds, progress) as group:
                    yield job, _caught(partial(_whole, group, command))
            return
        # The first job goes alone: what CuPy compiles for it would be compiled in every thread.
        starts = [0, *range(1, len(jobs), BATCH), len(jobs)]
        for batch in (jobs[start:end] for start, end in pairwise(starts)):
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
    """Lets many small cases be checked at a time, or one large one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0
        self._alone = False

    @contextmanager
    def enter(self, op: Operator, precision: Precision, case: Case) -> Iterator[None]:
        """While a case is checked. A large one that waits keeps others from going in before it."""
        large = Layout.of(op, precision, case).nbytes >= ROOMY
        with self._changed:
            self._waiting += large
            self._changed.wait_for(lambda: not self._alone and (self._inside == 0 if large else self._waiting == 0))
            self._waiting -= large
            self._inside += 1
            self._alone = large
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._alone = False
                self._changed.notify_all()


class _BuildsAhead:
    """Builds of all jobs, begun at once, on half of the processor's cores."""

    def __init__(self, executor: Executor, jobs: Sequence[Job]) -> None:
        self._executor = executor
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="msbench-ahead")
        wanted = {candidate.id: (job.operator, candidate) for job in jobs for candidate in job.candidates}
        self._begun: dict[str, Future[BuildResult]] = {
            name: self._pool.submit(executor.build, *one) for name, one in wanted.items()
        }

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """See ``protocols.Executor``."""
        return self._begun[candidate.id].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
