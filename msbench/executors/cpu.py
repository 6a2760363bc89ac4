"""Checks kernels with no GPU: compiled by g++ for the host, thread blocks on fibers. It has no times."""

from __future__ import annotations

import itertools
import mmap
import os
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from msbench import emulator, limits, operators, resources
from msbench.errors import BuildError, LaunchFailed, UnsupportedError, WorkerCrashed, WorkerError, WorkerTimeout
from msbench.executors import Options
from msbench.executors._cpu_faults import Region, describe_failure, describe_report
from msbench.harness import screen
from msbench.harness.arena import Arena, Layout
from msbench.harness.build.compiler_output import classify_failure
from msbench.harness.protocols import Plan, Runner
from msbench.harness.sandbox.confine import Rules
from msbench.harness.sandbox.process import WorkerProcess
from msbench.model import BuildResult, Candidate, Ceilings, Device, Failure, Fault, Measurement, Profile, digest
from msbench.spec import Case, Operator, Problem, Task

LAUNCH_LIMIT_S = 30.0
"""One launch may take this long; a kernel that hangs is stopped then, and its line named."""

CHECK_LIMIT = 1e9
"""Cases that cost more operations than this are not checked here: they take seconds a launch."""

SANITIZED_CHECK_LIMIT = 2e8
"""The same under AddressSanitizer, which is several times slower."""

_ANSWER_S = 20.0  # beyond a launch's limit, until the worker itself is given up
_START_S = 60.0
_MAPPED = 4  # arenas that a worker keeps mapped
_arena_numbers = itertools.count()
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
_ASAN_OPTIONS = (
    "detect_leaks=0:color=never:exitcode=99:detect_stack_use_after_return=0:alloc_dealloc_mismatch=0:"
    # Faults of the processor are told by the runtime, which knows the thread.
    "handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:handle_abort=0:use_sigaltstack=0"
)


@dataclass(frozen=True)
class ArenaHandle:
    """How a worker reaches an arena; descriptors are used again, numbers are not."""

    number: int
    file: int


def create(options: Options) -> CpuExecutor:
    """The executor for this machine's CPU; ``options.sanitize``: under AddressSanitizer.

    Raises:
        ToolchainError: there is no g++ that works; the message says what to install.
    """
    return CpuExecutor(emulator.find(), options.sanitize)


class CpuExecutor:
    """Builds with g++, runs each candidate in its own process, measures nothing.

    Consecutive launches of a runner start a block's threads in forward, reverse and shuffled order, since a missing
    barrier goes unnoticed in some orders.
    """

    name = "cpu"
    measures = False
    xp = np
    host_work = 0.0

    def __init__(
        self, compiler: emulator.HostCompiler, sanitize: bool = False, launch_limit_s: float = LAUNCH_LIMIT_S
    ) -> None:
        self._compiler = compiler
        self._sanitize = sanitize
        self._launch_limit_s = launch_limit_s
        self.check_limit: float | None = SANITIZED_CHECK_LIMIT if sanitize else CHECK_LIMIT
        self._runners: list[CpuRunner] = []

    def device(self) -> Device:
        """The processor. Its multiprocessors are the cores that this process may use."""
        name = _processor()
        return Device(
            kind="cpu",
            name=name,
            uuid=digest("cpu", name, platform.machine()),
            arch=platform.machine(),
            multiprocessors=_cores(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            runtime=f"g++ {self._compiler.version}",
        )

    def ceilings(self) -> Ceilings | None:
        """None: there are no times to compare with them."""
        return None

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """Compile for the host.

        What can't run here is a failure of kind ``unsupported``, which names the construct.
        """
        entry = operators.entry(op, candidate)
        if not _has_code(candidate.source):
            return self._failed(
                candidate, Failure(Fault.EMPTY, f"The file holds no code. The launcher must be: {entry.prototype}")
            )
        if refused := screen.look_at_source(candidate):
            return self._failed(candidate, refused)
        if candidate.link:
            libraries = ", ".join(candidate.link)
            return self._failed(
                candidate, Failure(Fault.UNSUPPORTED, f"The cpu executor can't run this kernel: it links {libraries}.")
            )
        try:
            built = emulator.build(
                candidate.source + entry.after,
                f"{entry.function}.cu",
                include_dirs=(resources.include_dir(),) if entry.before else (),
                preinclude=entry.before,
                sanitize=self._sanitize,
                compiler=self._compiler,
            )
        except UnsupportedError as error:
            return self._failed(candidate, Failure(Fault.UNSUPPORTED, str(error)))
        except BuildError as error:
            if error.kind:
                return self._failed(candidate, Failure(Fault(error.kind), str(error), error.log))
            return self._failed(candidate, classify_failure(error.log, entry.function, entry.prototype))
        return BuildResult(
            id=built.id,
            candidate_id=candidate.id,
            toolchain=built.toolchain,
            flags=built.flags,
            seconds=built.seconds,
            cached=built.cached,
            log=built.log,
            binary=str(built.library),
        )

    def _failed(self, candidate: Candidate, failure: Failure) -> BuildResult:
        return BuildResult(
            id=digest("cpu", candidate.id, self._compiler.version),
            candidate_id=candidate.id,
            toolchain=f"g++ {self._compiler.version}",
            flags=self._compiler.flags(self._sanitize),
            seconds=0.0,
            cached=False,
            log=failure.log,
            failure=failure,
        )

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> Runner:
        """Start a process and load the build in it."""
        if build.binary is None:
            raise ValueError("this build has failed: there is nothing to open")
        environment = self._environment()
        runner = CpuRunner(op, candidate, Path(build.binary), environment, self._launch_limit_s)
        self._runners.append(runner)
        return runner

    def _environment(self) -> dict[str, str]:
        """What the worker sees: where msbench is, and no keys."""
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        kept |= {
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
        }
        if self._sanitize:
            kept |= {"LD_PRELOAD": self._compiler.sanitizer_library(), "ASAN_OPTIONS": _ASAN_OPTIONS}
        return kept

    def arena(self, layout: Layout) -> Arena:
        """Memory without a file's name, so that nothing is left behind whatever happens; runners are given its descriptor.

        Not in /dev/shm, which is only 64 MiB in a container by default.
        """
        fd = os.memfd_create("msbench-arena")
        try:
            os.truncate(fd, layout.nbytes)
            memory = mmap.mmap(fd, layout.nbytes)
        except BaseException:
            os.close(fd)
            raise
        # The mapping itself goes when the last view of it does.
        buffer = np.frombuffer(memory, dtype=np.uint8)
        handle = ArenaHandle(next(_arena_numbers), fd)
        return Arena(layout, buffer, np, handle=handle, release=lambda: os.close(fd))

    def measure(self, problem: Problem, runners: Sequence[Runner], plan: Plan) -> list[Measurement]:
        """Always raises UnsupportedError, since a time on a CPU says nothing about a GPU."""
        raise UnsupportedError(
            "The cpu executor checks kernels and measures nothing; use --executor cuda on a machine with a GPU."
        )

    def profile(
        self,
        task: Task,
        cases: Sequence[tuple[Case, Measurement | None]],
        build: BuildResult,
        candidate: Candidate,
    ) -> list[Profile]:
        """Never: raises UnsupportedError."""
        raise UnsupportedError(
            "The cpu executor checks kernels and profiles nothing; use --executor cuda on a machine with a GPU."
        )

    def close(self) -> None:
        """End the processes that are still there."""
        while self._runners:
            self._runners.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CpuRunner:
    """One candidate in a process of its own; what it does there is told as LaunchFailed, WorkerCrashed or WorkerTimeout."""

    def __init__(
        self,
        op: Operator,
        candidate: Candidate,
        library: Path,
        environment: dict[str, str],
        launch_limit_s: float,
    ) -> None:
        self.candidate = candidate
        self._op = op
        self._library = library
        self._launch_limit_s = launch_limit_s
        self._launches = 0
        self._mapped: dict[int, int] = {}  # an arena's number, its address in the worker
        self._reserved: tuple[str, Region] | None = None
        self._process = WorkerProcess(
            [sys.executable, "-m", "msbench.executors._cpu_worker"],
            env=environment,
            memory_bytes=limits.memory(),
            rules=Rules.PROCESSOR,
        )
        try:
            given: dict[str, Any] = {
                "library": str(library),
                "workers": _cores(),
                "time_limit_s": launch_limit_s,
                "any_stream": candidate.entry is not None,
            }
            self._process.call("open", _START_S, **given)
        except BaseException:
            self.close()
            raise

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        """Call the launcher once; see ``protocols.Runner``."""
        scalars = [float(v) for v in self._op.scalar_values(case).values()]
        dims = [case.dim(d.name) for d in self._op.dims]
        regions: list[Region] = []
        try:
            address = self._map(arena)
            regions = [Region(f"array {s.name}", address + s.offset, s.nbytes) for s in arena.layout.slots]
            if self._reserved is None or self._reserved[0] != case.id:
                space = self._process.call("reserve", self._launch_limit_s, scalars=scalars, dims=dims)
                self._reserved = case.id, Region("the workspace", space["address"], space["nbytes"])
            if self._reserved[1].nbytes:
                regions.append(self._reserved[1])
            order, seed = self._launches % 3, self._launches
            self._launches += 1
            offsets = list(arena.layout.offsets)
            limit = self._launch_limit_s + _ANSWER_S
            call = {"arena": arena.handle.number, "offsets": offsets, "scalars": scalars, "dims": dims}
            self._process.call("launch", limit, **call, order=order, seed=seed, fresh=fresh)
        except (WorkerTimeout, LaunchFailed):
            raise
        except WorkerCrashed as error:
            if report := describe_report(error.log, regions):
                raise LaunchFailed(report, Fault.OUT_OF_BOUNDS.value, error.log) from None
            raise
        except WorkerError as error:
            raise self._launch_failed(error, regions) from None

    def live_bytes(self) -> int:
        """How much memory the candidate has allocated and not freed; see ``protocols.CountsMemory``."""
        return int(self._process.call("live_bytes", _ANSWER_S)["bytes"])

    def _map(self, arena: Arena) -> int:
        """The arena's address in the worker."""
        number = arena.handle.number
        if number not in self._mapped:
            while len(self._mapped) >= _MAPPED:
                oldest = next(iter(self._mapped))
                del self._mapped[oldest]
                self._process.call("unmap", _ANSWER_S, arena=oldest)
            slots = [(s.offset, s.nbytes) for s in arena.layout.slots]
            answer = self._process.call("map", _ANSWER_S, file=arena.handle.file, arena=number, slots=slots)
            self._mapped[number] = answer["address"]
        return self._mapped[number]

    def _launch_failed(self, error: WorkerError, regions: Sequence[Region]) -> WorkerError:
        if not error.log.startswith("{"):
            return LaunchFailed(str(error), error.kind, error.log)
        kind, message = describe_failure(error.log, self._library, regions)
        if kind == Fault.TIMEOUT.value:
            self.close()
            return WorkerTimeout(message, kind, error.log)
        return LaunchFailed(message, kind, error.log)

    def close(self) -> None:
        """End the process; harmless when repeated."""
        self._process.close()


def _has_code(source: str) -> bool:
    return bool(emulator.tokens(source))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """The model's name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
