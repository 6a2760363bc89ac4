"""Measures on an NVIDIA GPU: builds with nvcc, runs each version in its own process, times and profiles it."""

from __future__ import annotations

import os
import platform
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from msbench import resources
from msbench.errors import DeviceError, ExecutorError, StoreError, ToolchainError, WorkerError
from msbench.executors import Options
from msbench.executors._check_compilers import CheckCompilers
from msbench.gpu import ceilings as device_ceilings
from msbench.gpu import devices as gpus
from msbench.gpu import health, telemetry
from msbench.gpu import runner as gpu_runner
from msbench.gpu.alone import Alone
from msbench.gpu.job import Job
from msbench.gpu.locks import gpu_lock
from msbench.gpu.runner import QUEUES, RECOVERY_S, GpuRunner, MeasuredProcess
from msbench.gpu.shared_memory import KEPT_BYTES, Block, SharedMemory
from msbench.gpu.timing import rounds as timing
from msbench.gpu.timing.verify import Verifier
from msbench.gpu.timing.whole import WholeCalls
from msbench.harness import pool
from msbench.harness.arena import Arena, Layout
from msbench.harness.build import compile as building
from msbench.harness.build import toolchain
from msbench.harness.check.case import POISONS
from msbench.harness.check.cost import HOST_WORK, SHARED_HOST_WORK, module, within_reach
from msbench.harness.check.schedule import suspects
from msbench.harness.gpu_memory import MemoryWatch
from msbench.harness.protocols import ONLY_TURN, Plan, Runner, Turn
from msbench.harness.spans import span
from msbench.model import (
    BuildResult,
    Candidate,
    Ceilings,
    CheckResult,
    Device,
    Measurement,
    Origin,
    Profile,
    digest,
)
from msbench.spec import Case, Operator, Problem, Task

_INPUT_SETS = 2
_LENT_WORKSPACE = 8 * 2**20
"""Bytes that versions' workspaces lie in while they are timed. In a larger one, where it lies is of no account."""
_SETS_LIMIT = 24 * 2**30  # bytes of all input sets together
_KEPT_INPUTS = 2**28  # bytes of an arena; the inputs of larger ones are drawn again for each comparison
_KEPT_BESIDE = 2**28  # bytes of free device memory that an executor beside others keeps


class CeilingsStore(Protocol):
    """Where ceilings are kept between processes: ``store.Store``."""

    def ceilings(self, device_id: str) -> Ceilings | None: ...

    def add_ceilings(self, device: Device, ceilings: Ceilings) -> None: ...


def create(options: Options) -> CudaExecutor:
    """The executor for one GPU: an index or a UUID; the first where ``options.device`` is None.

    ``options.store`` is asked for the device's ceilings, and given them where it has none.

    Raises:
        ExecutorError: ``options.sanitize``, and there is no compute-sanitizer.
        DeviceError: there is no such GPU, or CuPy is missing.
        ToolchainError: there is no CUDA compiler.
    """
    tools = toolchain.find()
    if options.sanitize and tools.sanitizer is None:
        raise ExecutorError(
            "There is no compute-sanitizer beside nvcc, which belongs to a CUDA toolkit. Install that, or use "
            "--executor cpu --sanitize, which finds reads out of bounds without a GPU."
        )
    return CudaExecutor(gpus.choose(options.device), tools, options.store, sanitizes=options.sanitize)


@dataclass(frozen=True)
class Beside:
    """Makes executors in other processes, on the GPU that process ``coordinator`` has to itself; with what is known there."""

    gpu: gpus.Gpu
    tools: toolchain.Toolchain
    ceilings: Ceilings
    runner: Path
    coordinator: int

    def __call__(self) -> CudaExecutor:
        """In a process that has not used CUDA: it sees no other GPU, on which a thread of its own would begin."""
        os.environ["CUDA_VISIBLE_DEVICES"] = self.gpu.uuid
        return CudaExecutor(replace(self.gpu, index=0), self.tools, beside=self)


class CudaExecutor:
    """``protocols.Executor`` on one GPU, which it has to itself from the first use of the device on."""

    name = "cuda"
    measures = True
    loads = ("cupy",)
    check_limit: float | None = None

    def __init__(
        self,
        gpu: gpus.Gpu,
        tools: toolchain.Toolchain,
        store: CeilingsStore | None = None,
        *,
        beside: Beside | None = None,
        sanitizes: bool = False,
    ) -> None:
        self.sanitizes = sanitizes
        self.turn: Turn = ONLY_TURN
        self.gpu = gpu
        self.toolchain = tools
        self.arch = toolchain.architecture(gpu.capability)
        self._store = store
        self._beside = beside
        self.host_work = HOST_WORK if beside is None else SHARED_HOST_WORK
        self._resources = ExitStack()
        self._building_runner = threading.Lock()
        self._runners: list[GpuRunner] = []
        self._foreseen: dict[str, deque[Future[GpuRunner]]] = {}
        self._nvml = telemetry.Gpu(gpu.uuid, beside.coordinator if beside else None)
        self._memory_watch = MemoryWatch(self._nvml.memory, self._nvml.processes)

    def beside(self, operators: Sequence[Operator] = ()) -> Beside:
        """See ``batch.Divisible``; the GPU is locked from here on."""
        with ThreadPoolExecutor(1, thread_name_prefix="msbench-build") as building:
            building.submit(lambda: self._runner_binary)  # takes as long as loading CuPy, and most of the ceilings
            _ = self.xp
            self._compilers.expect(operators)
            ceilings = self.ceilings()
        return Beside(self.gpu, self.toolchain, ceilings, self._runner_binary, os.getpid())

    def compile_checks(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        """See ``protocols.Compiles``."""
        return self._compilers.compile(op, processes, seed)

    def checks_compiled(self) -> None:
        """See ``protocols.Compiles``."""
        self._compilers.rest()

    @cached_property
    def _compilers(self) -> CheckCompilers:
        return CheckCompilers(self.gpu.uuid, self.arch, self.xp.__version__)

    # ------------------------------------------------------------------ the device

    @cached_property
    def xp(self) -> Any:
        """CuPy, on this GPU, which is locked from here on. What it compiles, half a second a kernel, is kept beside the builds."""
        os.environ.setdefault("CUPY_CACHE_DIR", str(resources.cache_dir() / "cupy"))
        for name, value in QUEUES.items():
            os.environ.setdefault(name, value)
        try:
            import cupy
        except ImportError as error:
            raise DeviceError(
                f"The cuda executor needs CuPy: {error}. Install it with `pip install 'mskernelbench[cuda]'`."
            ) from error
        if self._beside is None:
            self._resources.enter_context(gpu_lock(self.gpu.uuid, waiting=lambda text: print(text, file=sys.stderr)))
        else:
            gpus.sleep_while_waiting(self.gpu.index)
        try:
            cupy.cuda.Device(self.gpu.index).use()
            cupy.cuda.runtime.deviceSynchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"{self.gpu.name} can't be used: {error}.") from error
        return cupy

    def device(self) -> Device:
        """The GPU, under its driver and this CUDA release."""
        return self._device

    @cached_property
    def _device(self) -> Device:
        return Device(
            kind="cuda",
            name=self.gpu.name,
            uuid=self.gpu.uuid,
            arch=self.arch,
            multiprocessors=self.gpu.multiprocessors,
            memory_bytes=self.gpu.memory_bytes,
            l2_bytes=self.gpu.l2_bytes,
            driver=self._nvml.driver() or gpus.driver_version(),
            runtime=self.toolchain.release,
            host=f"{gpus.host_name()}, {platform.system()}",
        )

    @cached_property
    def _ceilings(self) -> Ceilings:
        if self._beside is not None:
            return self._beside.ceilings
        known = self._store.ceilings(self.device().id) if self._store else None
        if known is not None:
            return known
        _ = self.xp
        with ExitStack() as measured:

            def launches() -> MeasuredProcess:
                runner, uuid = self._runner_binary, self.gpu.uuid
                process = MeasuredProcess(runner, uuid, self._finish_own_work, self._require_health)
                measured.callback(process.close)
                return process

            found = device_ceilings.measure(
                launches, self.gpu.multiprocessors, self.gpu.l2_bytes, self._nvml.telemetry()
            )
        if self._store is not None:
            with suppress(StoreError):  # one that can only be read
                self._store.add_ceilings(self.device(), found)
        return found

    def ceilings(self) -> Ceilings:
        """What this GPU reaches; measured on first use where the store does not know it."""
        return self._ceilings

    # ------------------------------------------------------------------ candidates

    def build(self, op: Operator, candidate: Candidate) -> BuildResult:
        """See ``protocols.Executor``."""
        return building.build(op, candidate, self.toolchain, self.arch)

    @property
    def _runner_binary(self) -> Path:
        with self._building_runner:  # `beside` has a thread for that
            return self._beside.runner if self._beside is not None else self._own_runner_binary

    @cached_property
    def _own_runner_binary(self) -> Path:
        return building.native(gpu_runner.NATIVE, self.toolchain, self.arch)

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> GpuRunner:
        """See ``protocols.Executor``."""
        if build.binary is None:
            raise ToolchainError(f"Build {build.id} has no binary on this machine.")
        _ = self.xp
        self._runners = [r for r in self._runners if r.alive]
        foreseen = self._foreseen.get(candidate.id)
        with span("worker: open"):
            runner = foreseen.popleft().result() if foreseen else self._start(op, candidate)
        runner.load(Path(build.binary))
        self._runners.append(runner)
        return runner

    @contextmanager
    def foreseeing(self, op: Operator, candidates: Sequence[Candidate]) -> Iterator[None]:
        """See ``protocols.Foresees``: processes are started, and their CUDA contexts made."""
        _ = self.xp, self._runner_binary
        with ThreadPoolExecutor(8, thread_name_prefix="msbench-start") as pool:
            for candidate in candidates:
                started = pool.submit(self._start, op, candidate)
                self._foreseen.setdefault(candidate.id, deque()).append(started)
            try:
                yield
            finally:
                left = [started for waiting in self._foreseen.values() for started in waiting]
                self._foreseen.clear()
                for started in left:
                    pool.submit(_drop, started)

    def _start(self, op: Operator, candidate: Candidate) -> GpuRunner:
        return GpuRunner(
            op,
            candidate,
            self._runner_binary,
            self.gpu.uuid,
            self._before_call,
            self._require_health,
            self._memory_watch,
        )

    def _finish_own_work(self) -> None:
        with span("wait for own device work"):
            self.xp.cuda.Device(
                self.gpu.index
            ).use()  # each thread has its own; to leave it again would begin a context on the first GPU
            self.xp.cuda.runtime.deviceSynchronize()

    def _before_call(self) -> None:
        self._finish_own_work()
        self._memory_watch.begin()

    def _require_health(self, process_lost: bool) -> None:
        """After a failure: the device must still do arithmetic, or all that follows would be blamed on kernels.

        Where it cost a process, a new one must also come up, and run a kernel: that is what follows. It is asked first,
        since it is given up after a while, and a call of this process on a device that hangs never comes back.
        """
        try:
            if process_lost:
                health.start_and_launch(self._runner_binary, self.gpu.uuid)
            healthy = health.computes(self.xp)
        except (WorkerError, DeviceError, self.xp.cuda.runtime.CUDARuntimeError) as error:
            reason = str(error).rstrip(".")
            raise DeviceError(
                f"{self.gpu.name} does not work any more: {reason}. Start again; see nvidia-smi."
            ) from error
        if not healthy:
            raise DeviceError(f"{self.gpu.name} computes wrong results. Stop using it.")

    # ------------------------------------------------------------------ memory

    @cached_property
    def _memory(self) -> SharedMemory:
        kept = KEPT_BYTES if self._beside is None else _KEPT_BESIDE
        return SharedMemory(self.xp.cuda, self.xp.get_default_memory_pool().free_all_blocks, self._forget, kept)

    def _forget(self, handle: str) -> None:
        for runner in self._runners:
            runner.forget(handle)

    def arena(self, layout: Layout) -> Arena:
        """See ``protocols.Executor``. Raises MemoryError where the device has no room."""
        with span("memory"):
            try:
                block = self._memory.take(layout.nbytes)
            except MemoryError:
                time.sleep(RECOVERY_S)  # a version that took it may be about to be ended
                block = self._memory.take(layout.nbytes)
        buffer = self._memory.array(block)
        return Arena(layout, buffer, self.xp, handle=block.handle, release=partial(self._give_back, block))

    def _give_back(self, block: Block) -> None:
        self._finish_own_work()
        self._memory.give_back(block)

    # ------------------------------------------------------------------ measuring

    @property
    def waited_s(self) -> float:
        """See ``protocols.Turn``."""
        return self.turn.waited_s

    def take(self, *, alone: bool) -> None:
        """See ``protocols.Turn``: what this one has begun is finished before it is anybody else's."""
        self._finish_own_work()
        self.turn.take(alone=alone)

    def leave(self) -> None:
        """The same: nobody is to wait for it."""
        self._finish_own_work()
        self.turn.leave()

    def measure(self, problem: Problem, runners: Sequence[Runner], plan: Plan) -> list[Measurement]:
        """See ``protocols.Executor``."""
        subjects = [runner for runner in runners if isinstance(runner, GpuRunner)]
        if len(subjects) != len(runners):
            raise DeviceError("The cuda executor measures only versions that it has opened itself.")
        op, case = problem.operator, problem.case
        layout = Layout.of(problem)
        sets = range(_INPUT_SETS if layout.nbytes * _INPUT_SETS <= _SETS_LIMIT else 1)
        trusted = [plan.trusted and s.candidate.origin in (Origin.NAIVE, Origin.LIBRARY) for s in subjects]
        suspicious = [suspects(op, replace(plan, trusted=one), case) for one in trusted]
        xp = module(problem, self)
        verifier = Verifier(
            problem,
            arenas := list[Arena](),
            plan.seed,
            xp,
            draw=partial(secrets.randbits, 64),
            keeps=layout.nbytes <= _KEPT_INPUTS,
            permuted=not plan.whole_calls,
            turn=self,
        )
        series = self._nvml.telemetry()
        with ExitStack() as memory:
            verifier.beside_others()
            for number in sets if verifier.keeps else ():
                verifier.inputs(number)
            if xp is not self.xp:
                self.take(alone=True)  # what is done on the device is done at once
            memory.callback(pool.shrink, self.xp)  # what is verified afterwards takes some
            memory.callback(verifier.kept.clear)
            arenas += [memory.enter_context(within_reach(self.arena(layout), xp)) for _ in sets]
            verifier.beside_others()
            with span("inputs"):
                for number, arena in enumerate(arenas):
                    arena.write_inputs(verifier.inputs(number))
                    arena.poison(POISONS[0])  # a call sees around its arrays what it sees when it is checked
            if xp is not self.xp:
                self.take(alone=True)
            for arena in arenas:
                arena.send()
            workspace = self._memory.take(_LENT_WORKSPACE)
            memory.callback(self._give_back, workspace)
            memory.callback(self.take, alone=False)
            pool.shrink(self.xp)
            settings = timing.Settings(
                group=self._group_id(case, subjects),
                seed=plan.seed,
                budget_s=plan.time_budget_s,
                half_width=plan.half_width,
                sittings=plan.sittings,
                cases=len(plan.cases),
                suspicious=suspicious,
                on_device=xp is self.xp,
                hot=plan.hot,
            )
            return timing.measure_group(
                [WholeCalls(subject) for subject in subjects] if plan.whole_calls else subjects,
                Job.of(op, case, [arena.there for arena in arenas], poison=True, workspace=workspace),
                case,
                settings,
                verifier,
                series,
                turn=self,
            )

    def _group_id(self, case: Case, subjects: Sequence[GpuRunner]) -> str:
        """Another one each time: samples pair within a group only."""
        members = (s.candidate.id for s in subjects)
        return digest("group", self.gpu.uuid, case.id, secrets.token_bytes(16), *members)

    # ------------------------------------------------------------------ under NVIDIA's tools

    def profile(
        self,
        task: Task,
        cases: Sequence[tuple[Case, Measurement | None]],
        build: BuildResult,
        candidate: Candidate,
    ) -> list[Profile]:
        """See ``Alone``."""
        return self._alone(task).profile(cases, build, self.ceilings())

    def sanitize(self, task: Task, cases: Sequence[Case], build: BuildResult, seed: int) -> list[CheckResult]:
        """See ``protocols.Sanitizes`` and ``Alone``."""
        return self._alone(task).sanitize(cases, build, seed)

    def _alone(self, task: Task) -> Alone:
        runner = self._runner_binary
        return Alone(task, self.gpu, self.toolchain, runner, self.xp, self.arena, self._finish_own_work)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """See ``protocols.Executor``."""
        if compilers := self.__dict__.pop("_compilers", None):
            compilers.close()
        for runner in self._runners:
            runner.close()
        self._runners.clear()
        if "_memory" in self.__dict__:
            self._memory.trim(0)
        if self._beside is None and "xp" in self.__dict__:
            pool.shrink(self.xp, kept_bytes=0)  # this process may live on, and the device is others' now
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _drop(started: Future[GpuRunner]) -> None:
    if not started.cancel():
        with suppress(WorkerError, DeviceError):
            started.result().close()
