"""Mutants of many tasks: one task after another, or, on a device that others can use beside this process, several at once.

Checking one task keeps one processor busy, and a GPU hardly. So each of a few processes takes one task after another, with an
executor of its own; it builds that task's mutants, checks them and sends back what came of each. A task with a case for which the
device has no room beside the others is checked by itself in the end.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from math import ceil
from multiprocessing import active_children, get_context
from multiprocessing.synchronize import Semaphore
from pathlib import Path

from msbench import operators
from msbench.errors import DeviceFull, WorkerCrashed
from msbench.harness.batch.ahead import Divisible
from msbench.harness.batch.room import CHECK_BYTES
from msbench.harness.protocols import Executor, Progress
from msbench.harness.sandbox import wire
from msbench.model import Failure, Fault
from msbench.operators import mutants
from msbench.spec import Case, Operator, Precision, Task
from msbench.study.mutation import Subject, Survey, Verdict, begin, check

_BEGUN = 2  # surveys: the one whose mutants are checked, and the next one
_SIDE_BY_SIDE = 10  # surveys, of a dozen processes each
_MEMORY_A_SURVEY = 3 * 2**31  # of the device, for its processes, besides cases
_PARTS = 32  # of the device's memory
_ROOM = 16  # parts, for all cases that are checked at once
_USUAL_MEMORY = 2**37  # of a device that does not tell

_Told = tuple[str, dict[Case, float | None], list[Case], dict[str, Failure], int]
"""A mutant's name, and its verdict's ``rejected``, ``survived``, ``failures`` and ``crashes``: a mutant itself can't be sent."""


def surveys(
    executor: Executor, every: Iterable[Survey], seed: int, progress: Progress | None = None
) -> Iterator[tuple[int, list[Verdict]]]:
    """Check each mutant on its cases: each survey's number, and one verdict for each mutant that is wrong in its precision, in their order.

    Surveys are finished in any order.

    Raises:
        ToolchainError: nothing can be built.
        DeviceError: the device is missing, lost, or too small for a case.
        WorkerCrashed: a process that checked has ended.
        SpecError: an edit does not fit the naive kernel, or the operator's spec is wrong.
    """
    several = list(every)
    if isinstance(executor, Divisible) and len(several) > 1:
        memory = executor.device().memory_bytes or _USUAL_MEMORY
        too_large = []
        for number, found in _side_by_side(executor, executor.beside(), memory, several, seed, progress):
            if isinstance(found, DeviceFull):
                too_large.append(number)
            else:
                yield number, found
        # The processes that others were checked in have ended, with what they held of the device's memory.
        left = _one_by_one(executor, [several[number] for number in too_large], seed, progress)
        yield from zip(too_large, left, strict=True)
    else:
        yield from enumerate(_one_by_one(executor, several, seed, progress))


def _one_by_one(
    executor: Executor, every: Iterable[Survey], seed: int, progress: Progress | None
) -> Iterator[list[Verdict]]:
    """While one survey's mutants are checked, the next one's are built."""
    left = deque(every)
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="msbench-build") as building:
        begun: deque[tuple[Survey, list[Subject]]] = deque()
        try:
            while left or begun:
                while left and len(begun) < _BEGUN:
                    begun.append((left[0], begin(executor, left.popleft(), building)))
                yield check(executor, *begun.popleft(), seed, progress=progress)
        finally:
            building.shutdown(wait=False, cancel_futures=True)


def _side_by_side(
    executor: Divisible,
    make: Callable[[], Executor],
    memory: int,
    every: list[Survey],
    seed: int,
    progress: Progress | None,
) -> Iterator[tuple[int, list[Verdict] | DeviceFull]]:
    cores = os.cpu_count() or 1
    count = max(1, min(_SIDE_BY_SIDE, cores * 5 // 8, len(every), memory // 2 // _MEMORY_A_SURVEY))
    spawning = get_context("spawn")
    room = _Room(spawning.Lock(), spawning.BoundedSemaphore(_ROOM))
    with ExitStack() as pools:
        turns = pools.enter_context(ThreadPoolExecutor(count))
        work = ProcessPoolExecutor(
            count, spawning, initializer=_start, initargs=(make, os.getpid(), room, -(-cores // count))
        )
        for pool in (turns, work):
            pools.callback(pool.shutdown, wait=False, cancel_futures=True)
        pools.callback(_end_processes)
        operators = {survey.task.operator.name: survey.task.operator for survey in every}
        compiled = {name: executor.compile_checks(op) for name, op in operators.items()}

        def take(survey: Survey) -> list[Verdict]:
            op, precision = survey.task.operator, survey.task.precision
            compiled[op.name].result()
            cases = {mutant.name: tuple(some) for mutant, some in survey.wanted.items()}
            asked = work.submit(_survey, op.name, op.folder, precision, cases, seed)
            by_name = {mutant.name: mutant for mutant in survey.wanted}
            try:
                return [
                    Verdict(by_name[name], precision, rejected, survived, failures, crashes)
                    for name, rejected, survived, failures, crashes in asked.result()
                ]
            except BrokenProcessPool:
                raise WorkerCrashed(
                    "A process that checks mutants has ended. The machine may be short of memory: see dmesg. "
                    "With --record, what was finished is stored: repeat the command for the other tasks."
                ) from None

        taken = {turns.submit(take, survey): number for number, survey in enumerate(every)}
        if progress:
            progress.started(f"checking {len(every)} tasks' mutants")
        for done, future in enumerate(as_completed(taken), 1):
            number = taken[future]
            try:
                yield number, future.result()
            except DeviceFull as error:
                yield number, error
            if progress:
                progress.advanced(done, len(every), every[number].task.id)


def _end_processes() -> None:
    """Whatever they are at: who leaves early waits for none."""
    for process in active_children():
        process.kill()
        process.join()


# ------------------------------------------------------------------ in one of the processes


@dataclass(frozen=True)
class _Room:
    """The device's memory for cases, which the processes share: whoever asks waits for those who asked before."""

    queue: AbstractContextManager[object]
    parts: Semaphore

    @contextmanager
    def enter(self, parts: int) -> Iterator[None]:
        with self.queue:
            for _ in range(parts):
                self.parts.acquire()
        try:
            yield
        finally:
            for _ in range(parts):
                self.parts.release()


@dataclass(frozen=True)
class _Here:
    """What such a process has."""

    executor: Executor
    building: ThreadPoolExecutor
    room: _Room

    def enter(self, op: Operator, case: Case) -> AbstractContextManager[object]:
        memory = self.executor.device().memory_bytes or _USUAL_MEMORY
        nbytes = CHECK_BYTES * operators.elements(op, dict(case.dims))
        return self.room.enter(min(_ROOM, ceil(nbytes * _PARTS / memory)))


_here: _Here | None = None


def _start(make: Callable[[], Executor], parent: int, room: _Room, builders: int) -> None:
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's is the parent's business
    wire.die_with(parent)
    _here = _Here(make(), ThreadPoolExecutor(builders, thread_name_prefix="msbench-build"), room)


def _survey(name: str, folder: str, precision: Precision, cases: dict[str, tuple[Case, ...]], seed: int) -> list[_Told]:
    assert _here is not None
    op = operators.load(name, Path(folder).parent)
    survey = Survey(Task(op, precision), {mutant: cases[mutant.name] for mutant in mutants(op) if mutant.name in cases})
    subjects = begin(_here.executor, survey, _here.building)
    found = check(_here.executor, survey, subjects, seed, room=_here.enter)
    for failure in (failure for one in found for failure in one.failures.values()):
        if failure.fault == Fault.OUT_OF_MEMORY:  # which may lie with the others
            raise DeviceFull(failure.message)
    return [(one.mutant.name, one.rejected, one.survived, one.failures, one.crashes) for one in found]
