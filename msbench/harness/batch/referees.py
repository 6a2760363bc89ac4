"""Processes that check and measure: each referee checks one task at a time.

Checking one task keeps one thread of Python busy, and a process runs only one at a time. So each referee is a process,
with an executor of its own for each of its jobs, and measures a job in the same candidate processes in which it checked it.
The *coordinator* is the process that started them: it says who does what and when, holds the device's lock and what was built, and
answers what a referee asks meanwhile. Nothing else is shared, so however one ends, it blocks no other.

A referee dies with the coordinator, even where that is killed, and its candidates' processes die with it.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msbench import operators
from msbench.errors import MsbenchError, WorkerCrashed
from msbench.harness import pool
from msbench.harness.evaluate import Group
from msbench.harness.protocols import Executor, Plan, TakesTurns
from msbench.harness.sandbox import wire
from msbench.harness.sandbox.process import describe_end, starter
from msbench.harness.spans import Recorded, Spans, span
from msbench.model import BuildResult, Candidate, Evaluation
from msbench.spec import Operator, Precision, Problem, Task

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # in NumPy: there is a referee for each core
_KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""glibc else gives NumPy's temporaries back each time, and faults for each of their pages took a fifth of all checks in the host's memory
(an AMD EPYC, 2026-11-28)."""
_FAREWELL_S = 1.0  # to leave what it is at, and remove its temporary files

Make = Callable[[], Executor]
"""Makes executors; can be pickled."""

Hears = Mapping[str, Callable[..., Any]]
"""What a referee may ask for while it does something."""


@dataclass(frozen=True)
class Assignment:
    """One job, for another process; ``folder`` is where its operator's spec lies: an operator's functions can't be sent."""

    operator: str
    folder: str
    precision: Precision
    candidates: tuple[Candidate, ...]
    plan: Plan
    recorded: bool


@dataclass(frozen=True)
class _Outcome:
    """What came of a question."""

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, work: Callable[[], Any]) -> _Outcome:
        try:
            return cls(work())
        except Exception as error:
            return cls(error=_portable(error))

    def get(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _portable(error: Exception) -> Exception:
    """As it can be sent, with where it was raised as text: what was at work there would keep its arrays, some of many GiB."""
    error.add_note("".join(traceback.format_exception(error)))
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever classes and their arguments raise
        same = MsbenchError(str(error)) if isinstance(error, MsbenchError) else RuntimeError(repr(error))
        same.__notes__ = error.__notes__
        return same
    return error


# ------------------------------------------------------------------ the coordinator's side


class Referee:
    """One of them, as the coordinator sees it; used by one thread at a time. It begins with the modules that it ``loads``.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, loads: Sequence[str] = ()) -> None:
        self._link, theirs = Pipe()
        code = "from msbench.harness.batch.referees import serve; serve()"
        with theirs:
            start = starter(os.getpid()).submit(
                subprocess.Popen,
                [sys.executable, "-P", "-c", code, str(theirs.fileno()), str(os.getpid()), *loads],
                env={
                    **os.environ,
                    **_ONE_THREAD,
                    **_KEEPS_MEMORY,
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's signals are the coordinator's business
                pass_fds=(theirs.fileno(),),
            )
            self._process: subprocess.Popen[bytes] = start.result()
        self._tasks: list[str] = []  # while one waits for room, another may be measured
        self._equipped = False

    def equip(self, make: Make) -> None:
        """Tell it what makes its executors, once."""
        if not self._equipped:
            with suppress(OSError):  # its first task tells
                self._link.send(make)
            self._equipped = True

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def call(self, name: str, *arguments: Any, task: str = "", hears: Hears | None = None) -> Any:
        """Have it do something, one of ``_Referee``'s methods, and answer what it asks meanwhile.

        Raises:
            WorkerCrashed: it has ended; ``task`` is named.
            Exception: whatever it raised.
        """
        self.begin(name, *arguments, task=task)
        return self.result(hears)

    def begin(self, name: str, *arguments: Any, task: str = "") -> None:
        """The first half of ``call``."""
        self._tasks.append(task)
        try:
            self._link.send((name, arguments))
        except OSError:
            raise self._lost() from None

    def result(self, hears: Hears | None = None) -> Any:
        """The second half of ``call``."""
        try:
            while not isinstance(said := self._link.recv(), _Outcome):
                name, arguments = said
                self._link.send(_Outcome.of(partial((hears or {})[name], *arguments)))
        except (EOFError, OSError):
            raise self._lost() from None
        self._tasks.pop()
        return said.get()

    def _lost(self) -> WorkerCrashed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_FAREWELL_S)
        code = self._process.poll()
        how = "does not answer" if code is None else describe_end(code)
        task = next(filter(None, reversed(self._tasks)), "")
        work = f" at work on {task}" if task else ""
        short = " The machine may be short of memory: see dmesg." if code == -signal.SIGKILL else ""
        return WorkerCrashed(
            f"A referee, a process that checks and measures, {how}{work}.{short} "
            "What was finished is stored: repeat the command with --resume."
        )

    def leave(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def end(self, wait_s: float) -> None:
        """Wait for that, then kill it. The link is left to its remaining reader, which sees the end there."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Referees:
    """Those of one or several batches. They end with the block; at once where it is left by an exception."""

    def __init__(self) -> None:
        self.all: list[Referee] = []

    def start(self, count: int, loads: Sequence[str] = ()) -> None:
        """Have ``count`` of them; those that are missing start meanwhile, and use no device before ``equip``."""
        while len(self.all) < count:
            self.all.append(Referee(loads))

    def equip(self, make: Make) -> None:
        """Tell all what makes their executors."""
        for referee in self.all:
            referee.equip(make)

    def each(self, name: str) -> None:
        """Have all do something at the same time."""
        for referee in self.all:
            referee.begin(name)
        for referee in self.all:
            referee.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.each("settle")
        finally:
            self.end()

    def end(self) -> None:
        """End them at once, whatever they are at."""
        for referee in self.all:
            referee.leave()
        deadline = time.monotonic() + _FAREWELL_S
        while self.all:
            self.all.pop().end(max(0.0, deadline - time.monotonic()))


# ------------------------------------------------------------------ a referee's side


class _Coordinator:
    """What a referee asks of the coordinator, which answers from ``Referee.call``. It is a ``protocols.Turn``."""

    referee: _Referee

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._lock = threading.Lock()  # builds are asked for by several threads
        self.waited_s = 0.0
        self._alone: bool | None = None  # where it is not at work

    def _ask(self, name: str, *arguments: Any) -> Any:
        with self._lock:
            self._link.send((name, arguments))
            while not isinstance(said := self._link.recv(), _Outcome):
                outer, self._lock = self._lock, threading.Lock()
                self.obey(*said)  # while a case waits for room, other tasks are measured
                self._lock = outer
            return said.get()

    def obey(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Do what the coordinator says, and tell it what came of that."""
        self._link.send(_Outcome.of(partial(getattr(self.referee, name), *arguments)))

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        found: BuildResult = self._ask("build", candidate)
        return found

    def begin(self) -> None:
        """A turn beside others has begun."""
        self._alone = False

    def take(self, *, alone: bool) -> None:
        """See ``protocols.Turn``."""
        if alone is not self._alone:
            began = time.perf_counter()
            with span("wait for the device"):
                self._ask("take_turn", alone)
            self.waited_s += time.perf_counter() - began
            self._alone = alone

    def leave(self) -> None:
        """See ``protocols.Turn``."""
        if self._alone is not None:
            self._ask("leave_turn")
            self._alone = None

    @contextmanager
    def room(self, problem: Problem) -> Iterator[None]:
        """While a case is checked or measured."""
        with span("wait for room"):
            self._ask("enter", problem.case)
        self._alone = None
        try:
            yield
        finally:
            self._ask("leave")


@dataclass(frozen=True)
class _Held:
    """A job that was checked and waits to be measured; ``processes`` ends its own."""

    group: Group
    spans: Spans | None
    processes: ExitStack


class _Referee:
    """What the coordinator may call. Jobs have the numbers that it gives them."""

    def __init__(self, coordinator: _Coordinator, make: Make) -> None:
        self._coordinator = coordinator
        self._make = make
        self._held: dict[int, _Held] = {}
        self._put_by: dict[int, _Held] = {}
        self._checked: Group | None = None  # which may wait between two cases while others are measured
        self._xp: Any = None
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="msbench-closing")
        self._closing: list[Future[None]] = []

    def get_ready(self) -> None:
        """Load CuPy and make a context, which takes a while."""
        self._xp = self._make().xp
        self._xp.zeros(1)

    def check(self, number: int, job: Assignment) -> Recorded | None:
        """Check a job while others do, and hold it. Raises what ``Group.check`` raises."""
        with self._opened(job, among_others=True) as held:
            self._checked = held.group
            try:
                held.group.check()
            finally:
                self._checked = None
            held.group.rest()
            self._held[number] = _Held(held.group, held.spans, held.processes.pop_all())
        return _recorded(held)

    def finish(self, number: int, command: str, ends: bool) -> tuple[list[Evaluation], Recorded | None]:
        """Measure a job that was checked, and end its processes if it ``ends`` them. Raises what ``Group.finish`` raises."""
        if number in self._put_by:
            self._held[number] = self._put_by.pop(number)
        held = self._held[number]
        self._coordinator.begin()
        try:
            found = held.group.finish(command), _recorded(held)
            if ends:
                self._coordinator.take(alone=False)  # while others compare
                self._held.pop(number).processes.close()
            return found
        finally:
            self._coordinator.take(alone=False)
            held.group.rest()

    def whole(self, job: Assignment, command: str) -> tuple[list[Evaluation], Recorded | None]:
        """Check and measure a job that has the device to itself. Raises what both raise."""
        with self._opened(job, among_others=False) as held:
            held.group.check()
            return held.group.finish(command), _recorded(held)

    def put_by(self, number: int) -> None:
        """Keep a job that was checked for the end, without its processes, which start again when they are needed."""
        self._put_by[number] = held = self._held.pop(number)
        held.group.pause()
        self._give_back()

    def pause(self) -> None:
        """Leave the device to another job: end the processes of all, which start again when they are needed."""
        for held in self._held.values():
            held.group.pause()
        self._give_back()

    def drop(self) -> None:
        """Begin to end the processes of all jobs. Taking a CUDA context down takes a while, so checks go on meanwhile."""
        self._closing += [self._pool.submit(held.processes.close) for held in self._held.values()]
        self._held.clear()

    def settle(self) -> None:
        """Until they have ended, since that is not done beside a measurement, which also needs what memory there is."""
        while self._closing:
            self._closing.pop().result()
        if self._checked:
            self._checked.rest()
        self._give_back()

    def _give_back(self) -> None:
        gc.collect()  # a MemoryError's frames may be in a circle, and have arrays
        if self._xp is not None:
            pool.shrink(self._xp, kept_bytes=0)

    @contextmanager
    def _opened(self, job: Assignment, *, among_others: bool) -> Iterator[_Held]:
        """An executor and the group of a job, whose processes end with the block unless they are taken away."""
        spans = Spans() if job.recorded else None
        with ExitStack() as processes:
            executor = processes.enter_context(self._make())
            if among_others and isinstance(executor, TakesTurns):
                executor.turn = self._coordinator
            group = Group(
                executor,
                Task(operators.load(job.operator, Path(job.folder).parent), job.precision),
                job.candidates,
                job.plan,
                build=self._coordinator.build,
                room=self._coordinator.room if among_others else None,
                spans=spans,
            )
            yield _Held(processes.enter_context(group), spans, processes)


def _recorded(held: _Held) -> Recorded | None:
    return held.spans.hand_over() if held.spans else None


def serve() -> None:
    """A referee's life: do what the coordinator asks, until it closes its end or says to leave."""
    link, coordinator, loads = Connection(int(sys.argv[1])), int(sys.argv[2]), sys.argv[3:]
    os.set_inheritable(link.fileno(), False)
    wire.die_with(coordinator)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        for module in loads:
            with suppress(Exception):  # whoever needs it tells
                importlib.import_module(module)
        make = link.recv()
        its = _Coordinator(link)
        its.referee = _Referee(its, make)
        with suppress(Exception):  # the first job tells
            its.referee.get_ready()  # while kernels are compiled
        while True:
            its.obey(*link.recv())
    except (EOFError, OSError, SystemExit):
        os._exit(0)  # without the rest: nobody waits for it, and a driver's end may hang
