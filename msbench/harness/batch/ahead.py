"""What is begun before its turn: builds, and what checks run on the device."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Protocol, Self, runtime_checkable

from msbench.harness.batch.job import Job
from msbench.harness.batch.referees import Make
from msbench.harness.evaluate import Build
from msbench.harness.protocols import Compiles, Executor
from msbench.model import BuildResult, Candidate
from msbench.spec import Operator

CORES = os.cpu_count() or 1

_NICE = 10


@runtime_checkable
class Divisible(Compiles, Protocol):
    """An executor that has others beside it on the same device, in other processes."""

    @property
    def loads(self) -> tuple[str, ...]:
        """Modules that can be loaded before the device is used."""

    def beside(self, operators: Sequence[Operator] = ()) -> Make:
        """What makes them there; this one goes on holding the device. It can be pickled. ``operators``: whose checks are compiled next."""


class ChecksAhead:
    """What checks run on the device, compiled before they do: once, or every referee would compile it. ``then`` is done afterwards."""

    def __init__(self, executor: Executor, jobs: Sequence[Job], then: Callable[[], None] = lambda: None) -> None:
        self._executor = executor
        shortest = sorted(jobs, key=lambda job: job.check_s)[:1]
        operators = {job.task.operator.name: job.task.operator for job in (*shortest, *jobs)}
        self._seeds = {job.task.operator.name: job.plan.seed for job in jobs}
        self.operators = list(operators.values()) if isinstance(executor, Divisible) and len(operators) > 1 else []
        self._begun: dict[str, Future[None]] = {}
        self._left = len(self.operators)
        self._then = then
        self._counting = threading.Lock()
        self._followed = threading.Event()

    def begin(self) -> None:
        """Begin to; the device is this process's from here on.

        The first is one that needs little besides what all operators' checks launch. All processes share that, so that the others,
        which come to a process as soon as it has done its part, find compiled most of what they would each compile.
        """
        if not self.operators:
            self._then()
            self._followed.set()
            return
        assert isinstance(self._executor, Compiles)
        for number, op in enumerate(self.operators):
            processes = 1 if number else CORES
            self._begun[op.name] = self._executor.compile_checks(op, processes, self._seeds[op.name])
        for begun in self._begun.values():
            begun.add_done_callback(self._count)

    def _count(self, _: Future[None]) -> None:
        assert isinstance(self._executor, Compiles)
        with self._counting:
            self._left -= 1
            if self._left:
                return
            try:
                self._executor.checks_compiled()
                self._then()
            finally:
                self._followed.set()

    def wait_for(self, job: Job) -> None:
        """Until it is done for a job's operator."""
        if job.task.operator.name in self._begun:
            self._begun[job.task.operator.name].result()

    def wait(self) -> None:
        """Until it is done for all, and what is to follow."""
        self._followed.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._counting:
            self._left = -1  # nothing follows any more


class BuildsAhead:
    """Builds that are begun before their turn, on half of the processor's cores and behind all else. Those that somebody waits for have all of them."""

    def __init__(self, build: Build) -> None:
        self._build_one = build
        self._ahead = ThreadPoolExecutor(max(1, CORES // 2), thread_name_prefix="msbench-ahead", initializer=_make_way)
        self._now = ThreadPoolExecutor(CORES, thread_name_prefix="msbench-build")
        self._begun: dict[str, Future[BuildResult]] = {}
        self._beginning = threading.Lock()

    def begin(self, jobs: Sequence[Job], *, waited_for: bool = False) -> None:
        """Begin the builds of some jobs, unless they are begun already; those that are ``waited_for`` wait behind no others."""
        pool = self._now if waited_for else self._ahead
        with self._beginning:
            for job in jobs:
                for candidate in job.candidates:
                    begun = self._begun.get(candidate.id)
                    if begun is None or (waited_for and begun.cancel()):
                        self._begun[candidate.id] = pool.submit(self._build, job, candidate)

    def _build(self, job: Job, candidate: Candidate) -> BuildResult:
        with job.spans.alongside() if job.spans else nullcontext():
            return self._build_one(job.task.operator, candidate)

    def wait_for(self, job: Job) -> None:
        """Until those of a job are done, however they ended."""
        wait([self._begun[candidate.id] for candidate in job.candidates])

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """See ``protocols.Executor``."""
        return self._begun[candidate.id].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._ahead, self._now):
            pool.shutdown(wait=False, cancel_futures=True)


def _make_way() -> None:
    """What this thread starts has a processor's core only where nothing else wants it. On Linux, each thread has a priority of its own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
