"""What is begun before its turn: builds, and what checks run on the device."""

from __future__ import annotations

import os
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
        self._pool = ThreadPoolExecutor(CORES, thread_name_prefix="msbench-compiling")  # all checks wait for these
        self._begun: dict[str, Future[None]] = {}
        self._left = len(self.operators)
        self._then = then
        self._counting = threading.Lock()

    def begin(self) -> None:
        """Begin to; the device is this process's from here on."""
        if not self.operators:
            self._then()
            return
        _ = self._executor.xp
        first: Future[None] | None = None
        for op in self.operators:
            self._begun[op.name] = self._pool.submit(self._compile, op, first)
            first = first or self._begun[op.name]

    def _compile(self, op: Operator, first: Future[None] | None) -> None:
        """``first``: wait for that; it compiles what all operators' checks launch, which others would compile beside it.

        It is one that needs little else, and several processes share that: only builds go on meanwhile.
        """
        executor = self._executor
        assert isinstance(executor, Compiles)
        try:
            wait([first] if first else [])
            executor.compile_checks(op, processes=1 if first else CORES, seed=self._seeds[op.name])
        finally:
            with self._counting:
                self._left -= 1
                is_last = not self._left
            if is_last:
                executor.checks_compiled()
                self._then()

    def wait_for(self, job: Job) -> None:
        """Until it is done for a job's operator."""
        if job.task.operator.name in self._begun:
            self._begun[job.task.operator.name].result()

    def wait(self) -> None:
        """Until it is done for all."""
        wait(self._begun.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class BuildsAhead:
    """Builds that are begun before their turn, on half of the processor's cores. Those that somebody waits for have all of them."""

    def __init__(self, build: Build) -> None:
        self._build_one = build
        self._ahead = ThreadPoolExecutor(max(1, CORES // 2), thread_name_prefix="msbench-ahead")
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
