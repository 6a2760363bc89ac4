"""An executor whose candidates are Python functions on NumPy arenas, so that the pipeline is tested without compilers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace, TracebackType
from typing import Any, ClassVar, Self

import numpy as np

from msbench.errors import UnsupportedError, WorkerCrashed
from msbench.harness.arena import ALIGNMENT, Arena, Layout
from msbench.harness.check.cost import HOST_WORK
from msbench.harness.evaluate import Plan
from msbench.model import BuildResult, Candidate, Ceilings, Device, Failure, Fault, Measurement, Profile, digest
from msbench.spec import Array, Case, Dim, Operator, Precision, Problem, Scalar, Split, Task

Kernel = Callable[[Arena, Case], None]
"""A candidate: writes the outputs of an arena."""


def reference(xp: Any, x: Any, index: Any, a: float, N: int) -> dict[str, Any]:
    return {"y": a * x[index], "rank": xp.arange(N) - 3}


def bound(xp: Any, u: float, out: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"y": 4 * u * xp.abs(out["y"]), "rank": 0.0}


def inputs(rng: Any, distribution: str, a: float, N: int) -> dict[str, Any]:
    return {"x": rng.floats("x", (N,), distribution), "index": rng.integers("index", (N,), 0, N)}


def case(n: int, split: Split = Split.PAPER, distribution: str = "uniform") -> Case:
    return Case((("N", n),), split, distribution)


OPERATOR = Operator(
    name="gather_scale",
    title="Gather and scale",
    scenario="test",
    definition="y[i] = a x[index[i]], rank[i] = i - 3",
    dims=(Dim("N", 1, 5000),),
    arrays=(
        Array("x", ("N",)),
        Array("index", ("N",), "i32"),
        Array("y", ("N",), output=True),
        Array("rank", ("N",), "i32", output=True),
    ),
    scalars=(Scalar("a", "float", 3.0),),
    cases=(case(64), case(2048), case(777, Split.ODD)),
    inputs=inputs,
    reference=reference,
    bound=bound,
    nbytes=lambda itemsize, N: N * (2 * itemsize + 8),
    flops=lambda N: N,
)
"""Two inputs (one of int32), two outputs (one of int32 and exact), a scalar."""


def right(arena: Arena, case: Case) -> None:
    """What a right kernel does, in the precision's arithmetic."""
    x, y = arena.view("x"), arena.view("y")
    y[...] = (np.float32(3) * x[arena.view("index")].astype(np.float32)).astype(y.dtype)
    arena.view("rank")[...] = arena.xp.arange(y.size) - 3


def compiled() -> Future[None]:
    """What an executor says that has nothing to compile for a check."""
    found = Future[None]()
    found.set_result(None)
    return found


def candidate(kernel: Kernel | None, precision: Precision = Precision.FP32, **fields: Any) -> Candidate:
    """A candidate that stands for a function; None is one that does not compile."""
    source = "does not compile" if kernel is None else f"{kernel.__module__}.{kernel.__qualname__}"
    FakeExecutor.kernels[source + "\n"] = kernel
    return Candidate(OPERATOR.name, precision, source, **{"label": source.rpartition(".")[2], **fields})


class FakeRunner:
    def __init__(self, executor: FakeExecutor, candidate: Candidate) -> None:
        self.candidate = candidate
        self.closed = False
        self._executor = executor
        self._kernel = executor.kernels[candidate.source]
        self._dead = False

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        assert not self.closed
        if self._dead:
            raise WorkerCrashed("The worker can't run 'launch': it died.")
        self._executor.launches.append((self.candidate.label, case.id))
        assert self._kernel is not None
        try:
            self._kernel(arena, case)
        except WorkerCrashed:
            self._dead = True
            raise

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeExecutor:
    """``time_ns`` says how long a candidate takes, by label; ``opened`` fails where ``unsupported`` names the label."""

    kernels: ClassVar[dict[str, Kernel | None]] = {}

    name: str = "fake"
    measures: bool = True
    xp: Any = np
    check_limit: float | None = None
    host_work: float = 0.0
    time_ns: dict[str, float] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    launches: list[tuple[str, str]] = field(default_factory=list)
    runners: list[FakeRunner] = field(default_factory=list)
    arenas: list[Arena] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    profiled: list[tuple[str, str]] = field(default_factory=list)
    limits: Ceilings | None = None

    def device(self) -> Device:
        return Device("cuda", "Fake GPU", "GPU-0")

    def ceilings(self) -> Ceilings | None:
        return self.limits

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        failed = self.kernels[candidate.source] is None
        failure = Failure(Fault.COMPILE, "line 1: expected a kernel", "the compiler's log") if failed else None
        return BuildResult(digest(candidate.id), candidate.id, "fake 1.0", ("-O3",), 0.5, False, failure=failure)

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> FakeRunner:
        if candidate.label in self.unsupported:
            raise UnsupportedError("This kernel uses inline PTX (line 3).")
        self.runners.append(FakeRunner(self, candidate))
        return self.runners[-1]

    def arena(self, layout: Layout) -> Arena:
        memory = self.xp.zeros(layout.nbytes + ALIGNMENT, dtype=np.uint8)
        start = -(memory.ctypes.data if self.xp is np else memory.data.ptr) % ALIGNMENT
        self.arenas.append(Arena(layout, memory[start : start + layout.nbytes], self.xp))
        return self.arenas[-1]

    def measure(self, problem: Problem, runners: Sequence[FakeRunner], plan: Plan) -> list[Measurement]:
        case = problem.case
        self.groups.append([r.candidate.label for r in runners])
        found = []
        for runner in runners:
            time_ns = self.time_ns.get(runner.candidate.label, 5e4)
            samples = tuple((time_ns, time_ns * 1.01, time_ns * 0.99) for _ in range(10))
            found.append(Measurement(case, f"group {case.id}", plan.seed, samples, 4e4, 5e3, 2e3, False))
        return found

    def profile(
        self,
        task: Task,
        cases: Sequence[tuple[Case, Measurement | None]],
        build: BuildResult,
        candidate: Candidate,
    ) -> list[Profile]:
        assert all(r.closed for r in self.runners)
        assert all(measurement for _, measurement in cases)
        self.profiled += [(candidate.label, case.id) for case, _ in cases]
        return [Profile(case, "static", {"registers": 32.0}, "memory", ()) for case, _ in cases]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DeviceBuffer:
    """What an arena has on a device: the host reaches it by copies of the whole alone."""

    dtype, ndim = np.dtype(np.uint8), 1

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.size = memory.size
        self.data = SimpleNamespace(ptr=memory.ctypes.data)

    def set(self, values: Any) -> None:
        self.memory[...] = values

    def get(self, out: Any) -> None:
        out[...] = self.memory


@dataclass
class DeviceExecutor(FakeExecutor):
    """One whose arenas the host can't look into."""

    xp: Any = field(default_factory=lambda: SimpleNamespace(__name__="cupy"))
    host_work: float = HOST_WORK

    def arena(self, layout: Layout) -> Arena:
        memory = np.zeros(layout.nbytes + ALIGNMENT, dtype=np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        self.arenas.append(Arena(layout, DeviceBuffer(memory[start : start + layout.nbytes]), self.xp))
        return self.arenas[-1]

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> FakeRunner:
        self.runners.append(DeviceRunner(self, candidate))
        return self.runners[-1]


class DeviceRunner(FakeRunner):
    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        super().launch(Arena(arena.layout, arena.buffer.memory, np), case, fresh=fresh)
