"""Checks many tasks at once, and stops between two cases whenever something is to be measured.

Only timing needs the device to itself. So checks go on until twice as many tasks have passed theirs as are still at it and as many
are left, or, where no more have room, half as many; where fewer are left, until all have, or nobody has for some seconds. Then nobody begins another case,
what passed is measured, and the others go on where they were. A task whose check takes long holds up no other for longer than that:
short ones are always begun beside those.

Several tasks are measured at once: while one is timed, nobody else is at work on the device, but what comes before, in between and
afterwards (inputs, references, comparing) they do side by side.

A check begins with the cases that are computed in the host's memory; the others wait until what they run on the device is compiled.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from queue import SimpleQueue
from typing import Self, TypeVar

from msbench.errors import DeviceFull, SpecError
from msbench.harness.batch.ahead import BuildsAhead, ChecksAhead
from msbench.harness.batch.job import Job, JobError, caught
from msbench.harness.batch.referees import Assignment, Hears, Referee, Referees
from msbench.harness.batch.room import Room
from msbench.harness.batch.turns import Turn, Turns
from msbench.harness.check.cost import SHARED_HOST_WORK, work
from msbench.harness.protocols import Progress
from msbench.model import Evaluation, Fault, Status
from msbench.spec import Case

_Item = TypeVar("_Item")

_LONG = 3 / 5  # of what is checked at once
_PATIENCE = 2  # each time that something is measured, the others make way for it: best for many at once
_LULL_S = 5.0  # so long the last ones are waited for, each time


class Checking:
    """Jobs on their way through their checks, each by a referee. Leaving the block, nothing more is begun.

    ``processes`` is how many versions there may be at once of the jobs that are begun and not yet measured, ``size`` how
    many such jobs, ``at_once`` how many jobs are measured side by side. ``longest_first``: the jobs are in that order, and long and short ones are begun together; otherwise
    they are begun in their order.
    """

    def __init__(
        self,
        referees: Referees,
        jobs: Sequence[Job],
        builds: BuildsAhead,
        ready: ChecksAhead,
        progress: Progress,
        *,
        processes: int,
        size: int,
        at_once: int,
        longest_first: bool,
        memory_bytes: int | None,
    ) -> None:
        self._referees = referees
        self._jobs = jobs
        self._builds = builds
        self._ready = ready
        self._progress = progress
        self._processes = processes
        self._size = size
        self._at_once = at_once
        self._long = max(1, int(_LONG * len(referees.all))) if longest_first else len(jobs)  # so many at once
        self._begun_as_long: set[int] = set()
        self._changed = threading.Condition()
        self._room = Room(memory_bytes, self._changed)
        self._room_to_measure = Room(memory_bytes)
        self._turns = Turns()
        self._queue = deque(range(len(jobs)))
        self._coming: set[int] = set()  # whose compilers are waited for
        self._at_work: set[int] = set()
        self._checked: dict[int, Referee | JobError] = {}  # and not yet measured
        self._later: dict[int, Referee | JobError] = {}  # that found the device full
        self._last_checked = time.monotonic()
        self._lost: BaseException | None = None

    def results(self, command: str) -> Iterator[tuple[int, list[Evaluation] | JobError]]:
        """Each job's number and what came of it, as soon as it is measured. ``command``: see ``evaluate``.

        Raises:
            WorkerCrashed: a referee is lost.
        """
        for referee in self._referees.all:
            threading.Thread(target=self._work, args=(referee,), name="msbench-check", daemon=True).start()
        while left := len(self._queue) + len(self._begun) + len(self._checked):
            self._progress.started(f"checking {left} tasks")
            self._go_on(left)
            self._ready.wait()
            self._referees.each("settle")
            yield from self._measured(command)
            self._referees.each("drop")
            with self._changed:
                self._checked.clear()
                self._room.closed = False
                self._changed.notify_all()
        if self._later:
            self._referees.each("settle")
            self._checked, self._later = self._later, {}
            yield from self._measured(command)
            self._referees.each("drop")

    def _go_on(self, left: int) -> None:
        """Until something is to be measured, and nobody is inside of a case."""
        told = 0
        with self._changed:
            while True:
                if self._lost:
                    raise self._lost
                for number in list(self._checked)[told:]:
                    told += 1
                    self._progress.advanced(told, left, self._jobs[number].task.id)
                self._room.closed = self._room.closed or self._is_enough()
                if self._room.closed and self._is_quiet():
                    return
                self._changed.wait(_LULL_S)

    def _is_enough(self) -> bool:
        if self._has_room():  # for one more, as soon as a referee is free
            left = len(self._queue) + len(self._begun)
            return min(len(self._checked), left) >= _PATIENCE * len(self._referees.all)  # few would keep few at work
        if not self._queue and time.monotonic() < self._last_checked + _LULL_S:
            return bool(self._checked and not self._begun)
        return len(self._checked) >= max(1, len(self._begun) / 2)

    def _is_quiet(self) -> bool:
        room = self._room
        return not room.inside and not room.alone and room.waiting == len(self._at_work)

    def _has_room(self) -> bool:
        """Whether another job may begin."""
        begun = [*self._begun, *self._checked]
        return bool(self._queue) and (
            not begun
            or (len(begun) < self._size and self._versions(*begun, self._queue[self._turn()]) <= self._processes)
        )

    def _turn(self) -> int:
        """Whose turn is next: that of the first in the queue, or of the last."""
        return 0 if len(self._begun & self._begun_as_long) < self._long else -1

    @property
    def _begun(self) -> set[int]:
        return self._coming | self._at_work

    def _versions(self, *numbers: int) -> int:
        return sum(len(self._jobs[number].candidates) for number in numbers)

    def _work(self, referee: Referee) -> None:
        while (number := self._take()) is not None:
            job = self._jobs[number]
            try:
                self._builds.begin([job], waited_for=True)
                self._builds.wait_for(job)
                self._come(number)
                result = caught(partial(self._check, referee, number, job))
            except BaseException as error:
                with self._changed:
                    self._lost = self._lost or error
                    self._changed.notify_all()
                return
            with self._changed:
                self._at_work.remove(number)
                self._checked[number] = result
                self._last_checked = time.monotonic()
                self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._room.ended or not self._queue or (self._has_room() and not self._room.closed)
            )
            if self._room.ended or not self._queue:
                return None
            if self._turn() == 0:
                number = self._queue.popleft()
                self._begun_as_long.add(number)
            else:
                number = self._queue.pop()
            self._coming.add(number)
            self._changed.notify_all()
            return number

    def _come(self, number: int) -> None:
        """Begin its check, not while others are measured: that makes processes on the device."""
        with self._changed:
            self._changed.wait_for(lambda: self._room.ended or not self._room.closed)
            self._coming.remove(number)
            self._at_work.add(number)

    def _check(self, referee: Referee, number: int, job: Job) -> Referee:
        with ExitStack() as inside:  # also where the referee ends in between

            def enter(case: Case) -> None:
                if work(job.task.operator, case) > SHARED_HOST_WORK:  # cheaper ones come first, in the host's memory
                    self._ready.wait_for(job)
                inside.enter_context(self._room.enter(job.task.operator, case))

            hears: Hears = {**self._builds_of(job), "enter": enter, "leave": inside.close}
            recorded = referee.call("check", number, _assignment(job), task=job.task.id, hears=hears)
        if job.spans:
            job.spans.absorb(recorded)
        return referee

    def _measured(self, command: str) -> Iterator[tuple[int, list[Evaluation] | JobError]]:
        """What was checked, measured while nothing is checked. Jobs of one referee are measured one after another."""
        full = [number for number, result in self._checked.items() if isinstance(result, DeviceFull)]
        chains: dict[Referee, list[int]] = {}
        for number, result in sorted(self._checked.items()):
            if isinstance(result, Referee):
                chains.setdefault(result, []).append(number)
            elif number not in full:
                yield number, result
        left, found = deque(chains.items()), SimpleQueue[tuple[int, list[Evaluation] | BaseException]]()
        for _ in range(min(self._at_once, len(chains))):
            threading.Thread(
                target=self._measure, args=(left, found, command), name="msbench-measure", daemon=True
            ).start()
        total = sum(map(len, chains.values()))
        if total:
            self._progress.started(f"measuring {total} tasks")
        for done in range(1, total + 1):
            number, measured = found.get()
            self._progress.advanced(done, total, self._jobs[number].task.id)
            if isinstance(measured, DeviceFull):
                full.append(number)
            elif isinstance(measured, list) and (short := _short_of_memory(measured)):
                full.append(number)
                self._checked[number] = short  # from the beginning: its verdict was that of the others
            elif isinstance(measured, list | SpecError):
                yield number, measured
            else:
                raise measured
        for number in full:
            if (tried := self._again(number, command)) is not None:
                yield number, tried

    def _measure(
        self,
        left: deque[tuple[Referee, list[int]]],
        found: SimpleQueue[tuple[int, list[Evaluation] | BaseException]],
        command: str,
    ) -> None:
        """Take referees from those that are ``left``, and have them measure their jobs."""
        with suppress(IndexError):
            while True:
                referee, numbers = left.popleft()
                for number in numbers:
                    try:
                        found.put((number, self._finished_by(referee, number, command)))
                    except BaseException as error:
                        found.put((number, error))

    def _finished_by(self, referee: Referee, number: int, command: str) -> list[Evaluation]:
        """Raises what ``Group.finish`` raises."""
        job, turn = self._jobs[number], Turn(self._turns)
        with ExitStack() as at_work, ExitStack() as inside:  # also where the referee ends in between
            at_work.callback(turn.leave)

            def enter(case: Case) -> None:
                turn.leave()  # who waits for memory keeps nobody from timing
                inside.enter_context(self._room_to_measure.enter(job.task.operator, case))

            turn.enter(alone=False)
            asked: Hears = {"enter": enter, "leave": inside.close, "take_turn": turn.enter, "leave_turn": turn.leave}
            is_last = not self._queue and not self._begun  # processes of others end while checks go on
            return self._called(referee, job, asked, "finish", number, command, is_last)

    def _again(self, number: int, command: str) -> list[Evaluation] | JobError | None:
        """One that found the device full gets it to itself, and a second chance: once nobody else is at work, who would have to
        begin new processes; so long there is no result.
        """
        job, result = self._jobs[number], self._checked[number]
        if self._queue or self._begun:
            self._later[number] = result
            if isinstance(result, Referee):
                result.call("put_by", number, task=job.task.id)
            return None
        self._referees.each("pause")
        if isinstance(result, Referee):
            return caught(partial(self._finished_by, result, number, command))
        return caught(partial(self._called, self._referees.all[0], job, {}, "whole", _assignment(job), command))

    def _called(self, referee: Referee, job: Job, hears: Hears, name: str, *arguments: object) -> list[Evaluation]:
        found: list[Evaluation]
        found, recorded = referee.call(name, *arguments, task=job.task.id, hears={**self._builds_of(job), **hears})
        if job.spans:
            job.spans.absorb(recorded)
        return found

    def _builds_of(self, job: Job) -> Hears:
        return {"build": partial(self._builds.build, job.task.operator)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for room in (self._room, self._room_to_measure):
            room.end()
        self._turns.end()


def _short_of_memory(evaluations: Sequence[Evaluation]) -> DeviceFull | None:
    """That a version found no memory when it was measured, which may have been in use by others."""
    for one in evaluations:
        if one.status is Status.MEASURE_FAILED and one.failure and one.failure.fault is Fault.OUT_OF_MEMORY:
            return DeviceFull(f"{one.candidate.label}: {one.failure.message}")
    return None


def in_turns(longest_first: Sequence[_Item]) -> list[_Item]:
    """In about the order in which they are begun: after one of the longest two of the shortest."""
    left, ordered = deque(longest_first), list[_Item]()
    while left:
        ordered.append(left.pop() if len(ordered) % 3 else left.popleft())
    return ordered


def _assignment(job: Job) -> Assignment:
    return Assignment(
        job.task.operator.name,
        job.task.operator.folder,
        job.task.precision,
        job.candidates,
        job.plan,
        recorded=job.spans is not None,
    )
