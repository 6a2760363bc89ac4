"""The referee's handle on a version: its worker (``worker.py``), which replays and times, and its recorder (``recorder.py``)."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msbench import limits
from msbench.errors import DeviceError, LaunchFailed, WorkerCrashed, WorkerError, WorkerTimeout
from msbench.gpu import record
from msbench.gpu.job import Job
from msbench.harness.arena import Arena
from msbench.harness.build import compile as building
from msbench.harness.sandbox.confine import Rules
from msbench.harness.sandbox.process import Watch, WorkerProcess
from msbench.harness.screen import is_library
from msbench.model import Candidate, Fault, Origin
from msbench.spec import Case, Operator

NATIVE = Path(__file__).with_name("native") / "runner.cu"

START_LIMIT_S = 120.0
"""Starting Python, creating a CUDA context and loading a vendor library may take this long."""

LAUNCH_LIMIT_S = 30.0
"""One untimed call may take this long; a kernel that hangs is killed then."""

HOLD_S = 0.5
"""How long a stream is held at most while a batch is enqueued behind it."""

RECOVERY_S = 1.0
"""How long a version that found no memory waits for another one to be ended, until it tries again."""

FLUSH_FACTOR = 2.0
"""How many times the L2 cache's size is read over between cold repetitions."""

CONFINED = True
"""Whether a version on a GPU is held to ``confine.Rules``; False for a driver that needs what they forbid."""

CONFINED_PROFILES = True
"""The same for the process that a profiler watches, which is held to the rules for libraries."""

QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""Hardware queues of a context, which uses one stream. The driver makes contexts one after another, each in a third of the time that
the usual eight take (50 ms instead of 170, 32 at once on an H200, 2026-11-24)."""

_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_CACHE_PATH")


def worker_environment(gpu_uuid: str) -> dict[str, str]:
    """What a measured process sees: the one GPU, where msbench is, and no keys."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | QUEUES
    package = Path(__file__).resolve().parents[2]
    return kept | {
        "CUDA_VISIBLE_DEVICES": gpu_uuid,
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }


class MeasuredProcess:
    """A worker process on one GPU, with the commands that measuring needs.

    ``before_call`` runs before each command: the referee finishes its own device work there, so that a kernel finds its
    inputs written and nothing else on the device. After an error that costs the process its CUDA context, the process
    is ended and later calls raise WorkerCrashed. ``require_health`` is called after each failure, told whether that cost
    the process, and raises DeviceError where the device itself has suffered. ``watch``: see ``WorkerProcess``. By itself it
    has only the empty kernels.
    """

    def __init__(
        self,
        runner: Path,
        gpu_uuid: str,
        before_call: Callable[[], None],
        require_health: Callable[[bool], None],
        watch: Watch | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._before_call = before_call
        self._require_health = require_health
        self._watch = watch
        self._process = self._start("worker", gpu_uuid, rules)
        try:
            self._call("open", START_LIMIT_S, runner=str(runner), flush_factor=FLUSH_FACTOR, hold_seconds=HOLD_S)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _start(module: str, gpu_uuid: str, rules: Rules | None) -> WorkerProcess:
        return WorkerProcess(
            [sys.executable, "-P", "-m", f"msbench.gpu.{module}"],
            env=worker_environment(gpu_uuid),
            memory_bytes=limits.memory(),
            rules=rules if CONFINED else None,
        )

    @property
    def alive(self) -> bool:
        """Whether it can still be called."""
        return self._process.alive

    def floor(self, repetitions: int, launches: int = 1) -> tuple[float, ...]:
        """The time of this many empty kernels in a row, in ns, timed like cold calls."""
        return self._times(
            "floor", LAUNCH_LIMIT_S, repetitions=repetitions, launches=launches, drawn=secrets.randbits(64)
        )

    def hot(
        self, plays: int, samples: int, *, launches: int = 0, warm: bool = True, limit_s: float = LAUNCH_LIMIT_S
    ) -> tuple[float, ...]:
        """What so many calls take, in ns, that are played in a row on all input sets in turn, with nothing between them.

        Of the prepared job, or of ``launches`` empty kernels each; ``samples`` times. ``warm``: behind a call on each set.
        """
        return self._times("hot", limit_s, plays=plays, samples=samples, launches=launches, warm=warm)

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._call("busy", LAUNCH_LIMIT_S, seconds=seconds)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _times(self, command: str, limit_s: float, **payload: Any) -> tuple[float, ...]:
        return tuple(ms * 1e6 for ms in self._call(command, limit_s, **payload)["ms"])

    def _call(self, command: str, limit_s: float, **payload: Any) -> dict[str, Any]:
        self._before_call()
        return self._ask(self._process, command, limit_s, **payload)

    def _ask(self, process: WorkerProcess, command: str, limit_s: float, **payload: Any) -> dict[str, Any]:
        try:
            try:
                return process.call(command, limit_s, **payload)
            except WorkerError as error:
                if not process.alive or error.kind != Fault.OUT_OF_MEMORY:
                    raise
            time.sleep(RECOVERY_S)  # who took the memory may be about to be ended
            return process.call(command, limit_s, **payload)
        except (WorkerCrashed, WorkerTimeout):
            self._require_health(True)
            raise
        except WorkerError as error:
            self._end_if_lost()
            self._require_health(not self.alive)
            if error.kind == Fault.DEVICE:
                raise DeviceError(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
            raise LaunchFailed(str(error), error.kind, error.log) from error

    def _end_if_lost(self) -> None:
        """After some errors every later call of the process would fail with the same one."""
        try:
            self._process.call("alive", LAUNCH_LIMIT_S)
        except WorkerError:
            self._process.close()


class GpuRunner(MeasuredProcess):
    """One candidate, once it is loaded: ``protocols.Runner``.

    A version of one's own is recorded in a process that does nothing else, and which is stopped while anything is timed. Calls of
    naive kernels and of libraries are recorded in the worker: the driver makes contexts one at a time, and baselines have nothing
    to gain; a function of another contract (``Candidate.entry``) is called there.
    """

    def __init__(
        self,
        op: Operator,
        candidate: Candidate,
        runner: Path,
        gpu_uuid: str,
        before_call: Callable[[], None],
        require_health: Callable[[bool], None],
        watch: Watch | None = None,
    ) -> None:
        self.op = op
        self.candidate = candidate
        self.recorded: dict[str, Any] | None = None
        self._binary = b""
        self.floors: dict[int, list[float]] = {}
        self._workspaces: dict[str, int] = {}
        self._record_ns = 0.0
        self._recorder: WorkerProcess | None = None
        rules = Rules.LIBRARY if candidate.origin is Origin.LIBRARY else Rules.GPU
        self._is_baseline = candidate.origin in (Origin.NAIVE, Origin.LIBRARY)
        if not self._is_baseline and not is_library(candidate):
            self._recorder = self._start("recorder", gpu_uuid, rules)
        super().__init__(runner, gpu_uuid, before_call, require_health, watch, rules)
        if self._recorder is not None:
            try:
                self._ask(self._recorder, "open", START_LIMIT_S, runner=str(runner))
            except BaseException:
                self.close()
                raise

    @property
    def alive(self) -> bool:
        """Whether it can still be called."""
        return super().alive and (self._recorder is None or self._recorder.alive)

    @property
    def host_ns(self) -> float | None:
        """What the launcher took the host while the prepared job was recorded; None where it was not."""
        return self._record_ns or None

    def load(self, binary: Path) -> None:
        """Load the candidate's build; the processes end where that fails."""
        self._process.watch = self._watch
        self._binary = binary.read_bytes()
        try:
            if self._recorder is not None:
                self._recorder.watch = self._watch
                self._ask(self._recorder, "load", START_LIMIT_S, binary=str(binary))
            image = building.device_code(binary) if self._recorder else None
            variables = building.variables(binary) if self._recorder else []
            self._call("load", START_LIMIT_S, binary=str(binary), image=image, variables=variables)
        except BaseException:
            self.close()
            raise

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        """See ``protocols.Runner``."""
        job = Job.of(self.op, case, [arena])
        if self.candidate.entry is not None:
            self._call("set_up", LAUNCH_LIMIT_S, job=job.payload(), workspace_bytes=None, alone=False)
        else:
            self._record(job, case)
        self._call("launch", LAUNCH_LIMIT_S, fresh=fresh, seed=secrets.randbits(64))

    def prepare(self, job: Job, case: Case) -> int:
        """Record ``job``, which the following commands play; how many operations a call has."""
        return self._record(job, case, timed=True)

    def cold(
        self,
        first_set: int,
        repetitions: int,
        *,
        held: bool = True,
        limit_s: float = LAUNCH_LIMIT_S,
        drawn: int | None = None,
        kept: int = -1,
    ) -> tuple[float, ...]:
        """Time cold repetitions of the prepared job on its input sets, in turn; the device time of each, in ns.

        ``drawn``, below 2^64: which elements of each input are permuted before each repetition (see ``timing.permute``).
        ``kept``: the repetition whose outputs the arena holds afterwards; -1 for the last of each input set.
        """
        drawn = secrets.randbits(64) if drawn is None else drawn
        asked = {"first_set": first_set, "repetitions": repetitions, "held": held, "drawn": drawn, "kept": kept}
        return self._times("cold", limit_s, **asked)

    def prepare_whole(self, job: Job) -> None:
        """Make ``job`` the one whose whole calls are timed: the launcher's, in the worker."""
        self._call("load_host_code", START_LIMIT_S)
        self._call("set_up", LAUNCH_LIMIT_S, job=job.payload(), workspace_bytes=None, alone=True)

    def whole(
        self,
        first_set: int,
        repetitions: int,
        *,
        cold: bool = True,
        nothing: bool = False,
        limit_s: float = LAUNCH_LIMIT_S,
    ) -> tuple[float, ...]:
        """Time whole calls of the prepared job (of an empty kernel, for ``nothing``), from an idle device to an idle one."""
        asked = {"first_set": first_set, "repetitions": repetitions, "cold": cold, "nothing": nothing}
        return tuple(self._call("whole", limit_s, **asked)["ns"])

    def live_bytes(self) -> int:
        """See ``protocols.CountsMemory``."""
        return int(self._call("live_bytes", LAUNCH_LIMIT_S)["bytes"])

    def rest(self) -> None:
        """See ``protocols.Rests``; harmless without a process."""
        if self.alive:
            self._call("rest", LAUNCH_LIMIT_S)

    def untimed_ns(self) -> float:
        """See ``protocols.Prepares``."""
        return float(self._call("untimed_ns", LAUNCH_LIMIT_S)["ns"])

    def forget(self, handle: str) -> None:
        """Unmap shared memory that is about to be freed; harmless if it is not mapped, or without a process."""
        if self._process.alive:
            try:
                self._process.call("unmap", LAUNCH_LIMIT_S, handle=handle)
            except WorkerError:
                self._process.close()

    def close(self) -> None:
        """End the processes."""
        if self._recorder is not None:
            self._recorder.close()
        if hasattr(self, "_process"):
            super().close()

    def _record(self, job: Job, case: Case, *, timed: bool = False) -> int:
        """Have the worker hold what a call of ``job`` does, on each of its input sets; how many operations that is."""
        payload = job.payload()
        recorded = self._elsewhere(job, payload, timed) if self._recorder else self._in_worker(payload, timed)
        if recorded is None:
            return 0
        nodes = json.loads(recorded[0]["nodes"])
        self._record_ns = min(one["host_ns"] for one in recorded)
        self.recorded = {"case": case.id, "summary": record.summary(nodes), "nodes": record.plain(nodes)}
        return len(nodes)

    def _elsewhere(self, job: Job, payload: dict[str, Any], timed: bool) -> list[dict[str, Any]]:
        assert self._recorder is not None
        sizes = json.dumps([job.scalars, job.dims])
        if sizes not in self._workspaces:
            asked = self._ask(self._recorder, "workspace", LAUNCH_LIMIT_S, scalars=job.scalars, dims=job.dims)
            self._workspaces[sizes] = asked["bytes"]
        wanted = self._workspaces[sizes]
        place = self._call("set_up", LAUNCH_LIMIT_S, job=payload, workspace_bytes=wanted, alone=timed)
        answer = self._ask(
            self._recorder,
            "record",
            LAUNCH_LIMIT_S,
            job={"scalars": job.scalars, "dims": job.dims},
            rows=place["rows"],
            workspace=place["workspace"],
            nbytes=wanted,
        )
        records = [json.loads(one["nodes"]) for one in answer["records"]]
        for nodes, row in zip(records, place["rows"], strict=True):
            readable, writable = job.ranges(row, place["workspace"], wanted)
            if found := record.refused(nodes, readable, writable):
                raise LaunchFailed(found, Fault.FORBIDDEN)
        if timed:
            self._recorder.stop()
        self._call("take", LAUNCH_LIMIT_S, records=records)
        return list(answer["records"])

    def _in_worker(self, payload: dict[str, Any], timed: bool) -> list[dict[str, Any]] | None:
        """None where a baseline's call can't be recorded, and nothing is timed: then it is called."""
        self._call("set_up", LAUNCH_LIMIT_S, job=payload, workspace_bytes=None, alone=timed)
        if self.candidate.origin is not Origin.NAIVE:
            self._call("prepare", LAUNCH_LIMIT_S, anew=timed)
        try:
            answer = self._call("record", LAUNCH_LIMIT_S)
        except LaunchFailed as error:
            if timed or not self._is_baseline or error.kind != Fault.FORBIDDEN or not self.alive:
                raise
            return None
        for one in answer["records"]:
            if found := record.refused_of_library(
                json.loads(one["nodes"]), self._binary, declared=not self._is_baseline
            ):
                raise LaunchFailed(found, Fault.FORBIDDEN)
        return list(answer["records"])
