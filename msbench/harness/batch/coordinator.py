"""Pipelines many tasks: builds run ahead, and several tasks are checked at once.

Only timing needs the device to itself. Tasks are checked concurrently, each by one of the ``referees`` and in candidate processes of
its own, then measured in the same processes, which have every kernel loaded and every library set up, see
``checking``. An idle process takes nothing from the one that is timed but memory, of which it keeps no workspace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import zip_longest

from msbench.harness.batch.ahead import CORES, BuildsAhead, ChecksAhead, Divisible
from msbench.harness.batch.checking import Checking, in_turns
from msbench.harness.batch.job import Job, JobError, caught
from msbench.harness.batch.referees import Referees
from msbench.harness.evaluate import Build, Group
from msbench.harness.protocols import Executor, Progress
from msbench.model import Device, Evaluation

REFEREES = 16
"""More tasks are not checked at the same time: the device has enough to do."""

PROCESSES = 72
"""The total for tasks that are checked at once is at most this."""

_BEGINNING = 2  # tasks a referee, whose builds are begun at once: they are checked before anything is measured
_MEMORY_A_PROCESS = (
    7 * 2**28
)  # of the device and of the host: several times what it takes, as large cases need the rest

Results = Generator[tuple[Job, list[Evaluation] | JobError], None, None]
"""Each job with what came of it; closing it ends what is at work."""


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
    seconds to start; others end with these jobs. ``batch`` is how many are checked side by side, begun in their order; by default as many
    as have room on the device, those that take longest beside the shortest.

    What is wrong with one job alone (its spec, or a case too large for the device) is that job's result, and the next one
    goes on. Raises whatever else ``evaluate`` raises, and WorkerCrashed where a referee is lost; that, or closing the
    iterator, ends all processes.
    """
    alone = batch == 1 or len(jobs) < 2 or not all(job.task.operator.folder for job in jobs)
    if isinstance(executor, Divisible) and not alone:
        staying = referees or Referees()
        with nullcontext() if referees else staying:
            yield from _side_by_side(executor, jobs, command, progress, batch, build, staying)
    else:
        with _ending(referees or Referees()):
            if referees:
                referees.each("settle")
            yield from _one_by_one(executor, jobs, command, progress, build)


def _one_by_one(
    executor: Executor, jobs: Sequence[Job], command: str, progress: Progress, build: Build | None
) -> Results:
    with BuildsAhead(build or executor.build) as builds, ExitStack() as compiling:
        builds.begin(jobs[:1], waited_for=True)
        if executor.measures:
            executor.ceilings()  # before anything else uses the device
        ready = compiling.enter_context(ChecksAhead(executor, jobs))
        ready.begin()
        for job, following in zip_longest(jobs, jobs[1:]):
            builds.begin([job], waited_for=True)
            ready.wait()
            with Group(
                executor,
                job.task,
                job.candidates,
                job.plan,
                progress=progress,
                build=builds.build,
                spans=job.spans,
            ) as group:
                # The next one's compilers start so late that it does not wait long between them and its turn.
                begin_next = partial(builds.begin, [following] if following else [])
                yield job, caught(partial(_whole, group, command, begin_next))


def _side_by_side(
    executor: Executor,
    jobs: Sequence[Job],
    command: str,
    progress: Progress,
    size: int | None,
    build: Build | None,
    referees: Referees,
) -> Results:
    assert isinstance(executor, Divisible)
    ordered = list(jobs) if size else sorted(jobs, key=lambda job: -job.check_s)
    turns = ordered if size else in_turns(ordered)
    memory_bytes = executor.device().memory_bytes
    at_work = min(REFEREES, CORES, len(jobs), size or len(jobs))
    with BuildsAhead(build or executor.build) as builds:
        processes = _fitting(executor.device())
        builds.begin(_first(turns, _BEGINNING * at_work, processes), waited_for=True)
        begin_others = partial(builds.begin, turns)  # so late that nothing is waited for meanwhile
        with ChecksAhead(executor, turns, begin_others) as ready, _ending(referees):
            referees.start(at_work, executor.loads)
            make = executor.beside(ready.operators)  # before anything else uses the device
            ready.begin()
            referees.equip(make)
            with Checking(
                referees,
                ordered,
                builds,
                ready,
                progress,
                processes=processes,
                size=size or len(jobs),
                at_once=1 if _by_itself(jobs) else at_work,
                longest_first=size is None,
                memory_bytes=memory_bytes,
            ) as checking:
                for number, result in checking.results(command):
                    yield ordered[number], result


@contextmanager
def _ending(referees: Referees) -> Iterator[None]:
    """Ends them where the block is left by an exception: what they are at is of no use then."""
    try:
        yield
    except BaseException:
        referees.end()
        raise


def _by_itself(jobs: Sequence[Job]) -> bool:
    """Whether each is measured while no other is: where a profiler runs, or where the host's time counts."""
    return any(job.plan.profile or job.plan.whole_calls for job in jobs)


def _fitting(device: Device) -> int:
    """How many processes have room on the device and in the host's memory."""
    known = [device.memory_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    return max(1, min([PROCESSES, *(nbytes // _MEMORY_A_PROCESS for nbytes in known if nbytes)]))


def _first(jobs: Sequence[Job], size: int, processes: int) -> list[Job]:
    """The first jobs, up to ``size`` together, and no more than have so many ``processes`` unless it is one."""
    first: list[Job] = []
    for job in jobs[:size]:
        if first and sum(len(one.candidates) for one in (*first, job)) > processes:
            break
        first.append(job)
    return first


def _whole(group: Group, command: str, between: Callable[[], None]) -> list[Evaluation]:
    group.check()
    between()
    return group.finish(command)
