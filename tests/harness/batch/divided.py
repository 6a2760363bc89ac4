"""The fake executor, for processes: what is picklable to make it there, and a folder in which all tell what they do."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from msbench import operators
from msbench.errors import DeviceError, LaunchFailed
from msbench.harness.arena import Arena
from msbench.harness.batch.job import Job
from msbench.harness.protocols import ONLY_TURN, Checks, Plan, Turn
from msbench.harness.sandbox.process import WorkerProcess
from msbench.harness.spans import span
from msbench.model import BuildResult, Candidate, Failure, Fault, Measurement
from msbench.spec import Case, Operator, Precision, Problem, Task
from tests.harness.fakes import FakeExecutor, FakeRunner, Kernel, case, right

SPEC = """\
from dataclasses import replace

from {module} import OPERATOR

OPERATOR = replace(OPERATOR, name={name!r})
"""


def wrong(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[0] = 77


class _Everywhere(dict[str, Kernel]):
    """The function that a source names."""

    def __missing__(self, source: str) -> Kernel:
        module, _, name = source.strip().rpartition(".")
        kernel: Kernel = getattr(importlib.import_module(module), name)
        return kernel


def operator(folder: Path, name: str, module: str = "tests.harness.fakes") -> Operator:
    """The operator of a test module under another name, declared in a file."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "spec.py").write_text(SPEC.format(name=name, module=module), encoding="utf-8")
    return operators.load(name, folder)


def jobs(folder: Path, *names: str) -> list[Job]:
    """A right and a wrong version of each."""
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK, sittings=1)
    sources = [(f"{kernel.__module__}.{kernel.__name__}", kernel.__name__) for kernel in (right, wrong)]
    return [
        Job(
            Task(operator(folder, name), Precision.FP32),
            tuple(Candidate(name, Precision.FP32, source, label=label) for source, label in sources),
            plan,
        )
        for name in names
    ]


@dataclass
class Plain(FakeExecutor):
    """Has every kernel, but is alone on its device."""

    kernels: ClassVar[Any] = _Everywhere()


@dataclass
class Divided(Plain):
    """``behaviour`` says what happens to the executors beside it, and at which operator.

    ``compiled``: ``slowly``, or ``late``, once a kernel was launched.
    """

    folder: Path = Path()
    behaviour: dict[str, str] = field(default_factory=dict)

    loads: ClassVar[tuple[str, ...]] = ("no_such_module",)

    def __post_init__(self) -> None:
        self._compiling = ThreadPoolExecutor(8)

    def beside(self, operators: Sequence[Operator] = ()) -> partial[Beside]:
        return partial(Beside, folder=self.folder, behaviour=self.behaviour)

    def compile_checks(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        return self._compiling.submit(self._compile, op)

    def _compile(self, op: Operator) -> None:
        began = time.perf_counter()
        timeline = self.folder / "timeline"
        if self.behaviour.get("compiled") == "late":
            soon(lambda: timeline.exists() and "launch" in timeline.read_text())
        time.sleep(2 if self.behaviour.get("compiled") == "slowly" else 0.01)
        (self.folder / f"compiled {op.name}").touch()
        with timeline.open("a") as told:
            told.write(f"compiled {began} {time.perf_counter()}\n")

    def checks_compiled(self) -> None:
        (self.folder / f"ended {len(self.told('compiled'))} compiled").touch()

    @property
    def open_now(self) -> list[str]:
        """The operator and label of each runner that is open in any process, and whose process that is."""
        return sorted(path.name for path in self.folder.glob("open *"))

    def told(self, what: str) -> list[str]:
        """Who said so, with whatever they add."""
        return sorted(path.name.removeprefix(f"{what} ") for path in self.folder.glob(f"{what} *"))


class ToldRunner(FakeRunner):
    """Says in the folder that it is there."""

    def __init__(self, executor: Beside, candidate: Candidate) -> None:
        super().__init__(executor, candidate)
        self._executor: Beside = executor
        self._mark = executor.folder / f"open {candidate.operator} {candidate.label} {os.getpid()}"
        self._mark.touch()
        with (executor.folder / f"began {candidate.operator}").open("a") as told:
            told.write(f"{candidate.label}\n")

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        told = self._executor.folder / "found no memory"
        if self._executor.behaviour.get("short") == self.candidate.operator and not told.exists():
            told.touch()
            raise LaunchFailed("the harness's own call returned cudaErrorMemoryAllocation", "out_of_memory")
        with self._executor.noted("launch", self.candidate.operator):
            super().launch(arena, case, fresh=fresh)

    def rest(self) -> None:
        assert not self.closed
        name, folder = self.candidate.operator, self._executor.folder
        measured = (folder / f"measured {name} {os.getpid()}").exists()
        with (folder / f"rested {name}").open("a") as told:
            told.write(f"{self.candidate.label} {'measured' if measured else 'checked'}\n")

    def close(self) -> None:
        with self._executor.noted(f"end_{self.candidate.label}", self.candidate.operator):
            super().close()
            self._mark.unlink(missing_ok=True)


@dataclass
class Beside(Divided):
    """``dies``, ``hangs``, ``lost``, ``full``, ``crowded``, ``short``, ``slow``: what happens when one operator is checked or measured.

    ``times``: each measurement has a part that it does elsewhere (which takes op0 long), one that it does alone and one that it does
    beside others.
    """

    workers: list[WorkerProcess] = field(default_factory=list)
    turn: Turn = ONLY_TURN

    @contextmanager
    def noted(self, what: str, operator: str) -> Iterator[None]:
        """When it was done is in the folder, if there is a slow operator, each of whose launches takes long."""
        began = time.perf_counter()
        if self.behaviour.get("slow") == operator and what == "launch":
            time.sleep(0.3)
        yield
        if {"slow", "times"} & self.behaviour.keys():
            with (self.folder / "timeline").open("a") as timeline:
                timeline.write(f"{what} {began} {time.perf_counter()}\n")

    def _tell(self, what: str, op: Operator) -> None:
        (self.folder / f"{what} {op.name} {os.getpid()}").touch()

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> FakeRunner:
        self._tell("checked", op)
        if self.behaviour.get("dies") == op.name:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour.get("hangs") == op.name:
            idle = "from msbench.harness.sandbox import wire; wire.serve({})"
            self.workers.append(WorkerProcess([sys.executable, "-c", idle]))
            (self.folder / f"hangs {self.workers[-1].pid}").touch()
            time.sleep(120)
        self.runners.append(ToldRunner(self, candidate))
        return self.runners[-1]

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        op = problem.operator
        self._tell("measured", op)
        if self.behaviour.get("lost") == op.name:
            raise DeviceError("The GPU fell off.")
        if self.behaviour.get("full") == op.name and len(self.open_now) > len(runners):
            raise MemoryError
        if self.behaviour.get("crowded") == op.name and len(self.open_now) > len(runners):
            lacking = Failure(Fault.OUT_OF_MEMORY, "the harness's own call returned cudaErrorMemoryAllocation")
            first, *others = super().measure(problem, runners, plan)
            return [replace(first, failure=lacking), *others]
        if "times" in self.behaviour:
            self.turn.leave()
            with self.noted("elsewhere", op.name):
                time.sleep(0.25 if op.name == "op0" else 0.05)
            for alone in (True, False):
                self.turn.take(alone=alone)
                with self.noted("timed" if alone else "beside", op.name):
                    time.sleep(0.05)
        with span("measuring"), self.noted("measure", op.name):
            return super().measure(problem, runners, plan)


def soon(what: Callable[[], object]) -> None:
    """Within some seconds."""
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)
