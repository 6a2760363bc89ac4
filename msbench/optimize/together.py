"""Many runs at once on one device: each has its own thread, and their evaluations are gathered into batches.

Language models think while kernels are compiled and others are measured. One thread works with the device, the one that
calls ``serve``, like ``bench``: builds and checks overlap, measurements run one by one. The device is locked
from the first group of a batch until no run waits for it any more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue

from msbench.errors import BudgetExceeded, MsbenchError
from msbench.harness.batch.coordinator import evaluate_all
from msbench.harness.batch.job import Job
from msbench.harness.batch.referees import Referees
from msbench.harness.evaluate import Executor, Plan, Progress
from msbench.model import BuildResult, Candidate, Evaluation
from msbench.optimize.deadline import Deadline
from msbench.optimize.events import Summary
from msbench.spec import Operator, Task

_LOOK_S = 0.5
"""So often a run that waits for the device looks whether its time is up."""

_IDLE_S = 0.2
"""So long the device is kept with nothing to do, before others may have it."""


@dataclass(frozen=True)
class Ended:
    """How a run's session ended: its summary, or the error that ended it."""

    task: str
    summary: Summary | None = None
    error: BaseException | None = None


Run = Callable[["Together"], Summary]
"""One session of one run, which evaluates by the given ``Together``."""


@dataclass(eq=False)
class _Waiting:
    """A group that a run waits for, unless its time is up and the result cancelled."""

    job: Job
    command: str
    result: Future[list[Evaluation]]

    def settle(self, results: list[Evaluation] | BaseException) -> None:
        """Hand the result, or the error, to the run."""
        if not self.result.set_running_or_notify_cancel():
            return
        if isinstance(results, BaseException):
            self.result.set_exception(results)
        else:
            self.result.set_result([replace(result, command=self.command) for result in results])


class _Batch:
    """The groups of a batch that are not finished."""

    def __init__(self, waiting: list[_Waiting]) -> None:
        self._waiting = waiting

    def seconds_left(self) -> None:
        """Raises BudgetExceeded when nobody waits for the batch any more."""
        if self._waiting and all(one.result.cancelled() for one in self._waiting):
            raise BudgetExceeded("Nobody waits for these evaluations any more.")


class Together:
    """Concurrent runs.

    Args:
        opened: makes the executor that does the work, each time the device is acquired.
        lockstep: evaluate only when every run waits for it (or has ended): one batch for all of them.
        progress: receives a batch's progress.
    """

    def __init__(
        self, opened: Callable[[], AbstractContextManager[Executor]], *, lockstep: bool = False, progress: Progress
    ) -> None:
        self._opened = opened
        self._lockstep = lockstep
        self._progress = progress
        self._asked: SimpleQueue[_Waiting | None] = SimpleQueue()  # None: a run has ended
        self._waiting: list[_Waiting] = []
        self._running = 0
        self._builders = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="msbench-early")
        self._builds: dict[str, Future[BuildResult]] = {}
        self._stopped = threading.Event()

    # ------------------------------------------------------------------ the runs' side

    def evaluate(
        self,
        executor: Executor,
        task: Task,
        candidates: Sequence[Candidate],
        plan: Plan,
        *,
        command: str,
        progress: Progress | None = None,
    ) -> list[Evaluation]:
        """``harness.evaluate.evaluate``, when it is this group's turn; ``executor`` says only who will do it."""
        if self._stopped.is_set():
            raise KeyboardInterrupt
        job = Job(task, tuple(candidates), plan)
        waiting = _Waiting(job, command, Future())
        for candidate in candidates:
            self._builds.setdefault(candidate.id, self._builders.submit(executor.build, task.operator, candidate))
        self._asked.put(waiting)
        while True:
            try:
                return waiting.result.result(_LOOK_S)
            except FutureTimeout:
                if waiting.result.done():
                    continue
            if isinstance(progress, Deadline):
                try:
                    progress.check()
                except MsbenchError:
                    waiting.result.cancel()
                    raise

    # ------------------------------------------------------------------ the device's side

    def run(self, runs: Sequence[tuple[str, Run]], limit: int | None = None) -> list[Ended]:
        """Run all until each has ended, evaluating what they ask for; returns how each ended, in their order.

        Args:
            runs: each with its task's name.
            limit: how many at a time; all by default.

        Raises:
            KeyboardInterrupt: as it came; the runs that wait for an evaluation are stopped.
        """
        ended: list[Ended | None] = [None] * len(runs)
        places = threading.Semaphore(limit or max(1, len(runs)))

        def one(number: int, task: str, run: Run) -> None:
            with places:
                try:
                    ended[number] = Ended(task, summary=run(self))
                except BaseException as error:
                    ended[number] = Ended(task, error=error)
            self._asked.put(None)

        self._running = len(runs)
        threads = [
            threading.Thread(target=one, args=(number, *given), daemon=True, name=f"msbench-run-{number}")
            for number, given in enumerate(runs)
        ]
        for thread in threads:
            thread.start()
        try:
            self._serve(limit or len(runs))
        except BaseException as error:
            self._stop(error)
            for thread in threads:
                thread.join(1.0)  # one that waits for a model is left to it
            raise
        finally:
            self._builders.shutdown(wait=False, cancel_futures=True)
        return [one for one in ended if one is not None]

    def _serve(self, at_once: int) -> None:
        """Evaluate what is asked for until all runs have ended."""
        with ExitStack() as held:
            executor: Executor | None = None
            referees = Referees()
            while self._running or self._waiting:
                ready = self._ready(at_once)
                try:
                    asked = self._asked.get(timeout=0.0 if ready else _IDLE_S if executor else None)
                except Empty:
                    if ready:
                        if executor is None:
                            executor = held.enter_context(self._opened())
                            referees = held.enter_context(Referees())
                        self._batch(executor, referees)
                    elif not self._waiting:
                        held.close()
                        executor = None
                    continue
                if asked is None:
                    self._running -= 1
                else:
                    self._waiting.append(asked)

    def _ready(self, at_once: int) -> bool:
        """Whether to begin: with those waiting, or, in lockstep, once no other will wait."""
        self._waiting = [one for one in self._waiting if not one.result.cancelled()]
        number = len(self._waiting)
        return bool(number) and (not self._lockstep or number >= min(self._running, at_once))

    def _batch(self, executor: Executor, referees: Referees) -> None:
        """Evaluate all groups that wait. What is wrong with one is its own error; what ends the batch is everybody's."""
        by_job = {id(one.job): one for one in self._waiting}
        jobs = [one.job for one in self._waiting]
        public = [case for job in jobs for case in (*job.task.operator.cases, *job.plan.cases)]
        progress = Deadline(_Batch(self._waiting), self._progress, public)
        stream = evaluate_all(
            executor, jobs, command="", progress=progress, build=self._built(executor), referees=referees
        )
        try:
            with closing(stream) as finished:
                for job, results in finished:
                    one = by_job[id(job)]
                    self._waiting.remove(one)
                    one.settle(results)
        except MsbenchError as error:
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        while self._waiting:
            self._waiting.pop().settle(error)

    def _built(self, executor: Executor) -> Callable[[Operator, Candidate], BuildResult]:
        def build(operator: Operator, candidate: Candidate) -> BuildResult:
            begun = self._builds.get(candidate.id)
            return begun.result() if begun else executor.build(operator, candidate)

        return build

    def _stop(self, error: BaseException) -> None:
        """Nobody evaluates any more: who waits for it hears why."""
        self._stopped.set()
        with suppress(Empty):
            while True:
                asked = self._asked.get_nowait()
                if asked is not None:
                    self._waiting.append(asked)
        self._give_up(error)
