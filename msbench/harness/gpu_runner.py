"""The referee's handle on a measured process: a candidate loaded by ``worker.py``, and what can be asked of it."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench import limits
from msbench.errors import DeviceError, LaunchFailed, WorkerCrashed, WorkerError, WorkerTimeout
from msbench.harness import build as building
from msbench.harness.arena import Arena, Slot
from msbench.harness.confine import Rules
from msbench.harness.process import FREED_BYTE, Watch, WorkerProcess
from msbench.harness.screen import is_library
from msbench.harness.shared_memory import Block
from msbench.harness.stirring import movable
from msbench.model import Candidate, Fault, Origin
from msbench.spec import Case, Operator
from msbench.statistics import median

START_LIMIT_S = 120.0
"""Starting Python, creating a CUDA context and loading a vendor library may take this long."""

LAUNCH_LIMIT_S = 30.0
"""One untimed call may take this long; a kernel that hangs is killed then."""

HOLD_S = 0.5
"""How long the stream is held for a launcher that waits for it, before that is reported."""

RECOVERY_S = 1.0
"""How long a version that found no memory waits for another one to be ended, until it tries again."""

FLUSH_FACTOR = 2.0
"""How many times the L2 cache's size is read over between cold repetitions."""

CONFINED = True
"""Whether a version on a GPU is held to ``confine.Rules``; False for a driver that needs what they forbid."""

CONFINED_PROFILES = True
"""The same for the process that a profiler watches, which is held to the rules for libraries."""

_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_CACHE_PATH")


@dataclass(frozen=True)
class Job:
    """One call: where each array of each input set lies, and the scalars and dimensions in the prototype's order.

    ``stirred``: of each array how many elements may change places between cold repetitions, and an element's bytes.
    ``workspace``: memory for all versions' workspaces, where they fit; otherwise each has its own.
    """

    sets: tuple[Mapping[str, Any], ...]
    output_bytes: tuple[int, ...]
    scalars: tuple[float, ...]
    dims: tuple[int, ...]
    poison: bool
    stirred: tuple[int, ...] = ()
    workspace: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        op: Operator,
        case: Case,
        arenas: Sequence[Arena],
        *,
        poison: bool = False,
        workspace: Block | None = None,
    ) -> Job:
        """The job of a case on one or more arenas; ``poison``: cold repetitions overwrite the outputs first."""
        return cls(
            sets=tuple({"handle": a.handle, "offsets": list(a.layout.offsets)} for a in arenas),
            output_bytes=tuple(s.nbytes for s in arenas[0].layout.outputs),
            scalars=tuple(float(v) for v in op.scalar_values(case).values()),
            dims=tuple(case.dim(d.name) for d in op.dims),
            poison=poison,
            stirred=tuple(n for s in arenas[0].layout.slots for n in _stirred(s)),
            workspace={"handle": workspace.handle, "nbytes": workspace.nbytes} if workspace else None,
        )

    def payload(self) -> dict[str, Any]:
        """As the worker wants it."""
        return {
            "sets": list(self.sets),
            "output_bytes": self.output_bytes,
            "scalars": self.scalars,
            "dims": self.dims,
            "poison": self.poison,
            "stirred": self.stirred,
            "workspace": self.workspace,
        }


@dataclass(frozen=True)
class Batch:
    """Repetitions that ran back to back: device time and the launcher's host time of each, in ns."""

    samples_ns: tuple[float, ...]
    host_ns: tuple[float, ...]


def worker_environment(gpu_uuid: str) -> dict[str, str]:
    """What a measured process sees: the one GPU, where msbench is, and no keys."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    package = Path(__file__).resolve().parents[2]
    return kept | {
        "CUDA_VISIBLE_DEVICES": gpu_uuid,
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "MALLOC_PERTURB_": FREED_BYTE,
    }


class MeasuredProcess:
    """A worker process on one GPU, with the commands that measuring needs.

    ``before_call`` runs before each command: the referee finishes its own device work there, so that a kernel finds its
    inputs written and nothing else on the device. After an error that costs the process its CUDA context, the process
    is ended and later calls raise WorkerCrashed. ``require_health`` is called after each failure, told whether that cost
    the process, and raises DeviceError where the device itself has suffered. ``watch``: see ``WorkerProcess``. Until ``load``
    there are only the empty kernels.
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
        argv = [sys.executable, "-m", "msbench.harness.worker"]
        self._process = WorkerProcess(
            argv,
            env=worker_environment(gpu_uuid),
            memory_bytes=limits.memory(),
            rules=rules if CONFINED else None,
        )
        try:
            self._call("open", START_LIMIT_S, runner=str(runner), flush_factor=FLUSH_FACTOR, hold_seconds=HOLD_S)
        except BaseException:
            self.close()
            raise

    def load(self, binary: Path) -> None:
        """Load a build, which is watched from here on; the process ends where that fails."""
        self._process.watch = self._watch
        try:
            self._call("load", START_LIMIT_S, binary=str(binary), variables=building.variables(binary))
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Whether it can still be called."""
        return self._process.alive

    def prepare(self, job: Job) -> None:
        """Make ``job`` what the following commands call."""
        self._call("prepare", LAUNCH_LIMIT_S, job=job.payload())

    def keeps_stream(self, wait_s: float) -> None:
        """See that the launcher's work waits for its stream. Raises LaunchFailed (kind ``forbidden``) otherwise."""
        self._call("keeps_stream", LAUNCH_LIMIT_S + wait_s, wait_seconds=wait_s)

    def cold(
        self,
        first_set: int,
        repetitions: int,
        *,
        held: bool = True,
        limit_s: float = LAUNCH_LIMIT_S,
        place: int | None = None,
        stirs: int | None = None,
        last: bool = False,
    ) -> Batch:
        """Time cold repetitions on the prepared job's input sets, in turn.

        ``stirs``, below 2^64: which two elements of each input change places before each repetition (see ``stirring``).
        ``place``, likewise: where the workspace lies, where that is lent. Both are drawn unless they are given. ``last``: see
        also whether any batch has left something changed in the process or on the device.
        """
        repeated = {
            "first_set": first_set,
            "repetitions": repetitions,
            "held": held,
            "place": _given(place),
            "stirs": _given(stirs),
            "last": last,
        }
        return _batch(self._call("cold", limit_s, **repeated))

    def floor(self, repetitions: int, launches: int = 1) -> Batch:
        """Time so many empty kernels in a row in the same way."""
        asked = {"repetitions": repetitions, "launches": launches, "stirs": _given(None)}
        return _batch(self._call("floor", LAUNCH_LIMIT_S, **asked))

    def whole(
        self,
        first_set: int,
        repetitions: int,
        *,
        cold: bool = True,
        nothing: bool = False,
        limit_s: float = LAUNCH_LIMIT_S,
    ) -> Batch:
        """Time whole calls of the prepared job (of an empty kernel, for ``nothing``), from an idle device to an idle one."""
        asked = {"first_set": first_set, "repetitions": repetitions, "cold": cold, "nothing": nothing}
        ns = tuple(self._call("whole", limit_s, **asked)["ns"])
        return Batch(ns, ns)

    def live_bytes(self) -> int:
        """See ``protocols.CountsMemory``."""
        return int(self._call("live_bytes", LAUNCH_LIMIT_S)["bytes"])

    def capture(self, copies: int, *, nothing: bool = False, fresh: bool = False) -> int:
        """Capture calls (of an empty kernel, for ``nothing``) in a graph; how many device operations it has.

        ``fresh``: before each, outputs and workspace are overwritten, and the inputs become slightly different ones.
        """
        asked = {"copies": copies, "place": _given(None), "stirs": _given(None), "nothing": nothing, "fresh": fresh}
        return int(self._call("capture", LAUNCH_LIMIT_S, **asked)["nodes"])

    def replay(self, replays: int, samples: int, *, limit_s: float = LAUNCH_LIMIT_S) -> tuple[float, ...]:
        """The device time of ``replays`` replays of the captured graph, in ns, ``samples`` times."""
        return tuple(ms * 1e6 for ms in self._call("replay", limit_s, replays=replays, samples=samples)["ms"])

    def fresh_ns(self, copies: int, replays: int, samples: int) -> float | None:
        """The device time of a call before which all that an earlier one wrote is overwritten and inputs change, in ns.

        As many calls as ``replays`` of a graph of ``copies`` have; what the overwriting takes by itself is taken off.
        """
        took = []
        for nothing in (False, True):
            self.capture(copies, nothing=nothing, fresh=True)
            took.append(median(self.replay(replays, samples)) / (replays * copies))
        return took[0] - took[1]

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._call("busy", LAUNCH_LIMIT_S, seconds=seconds)

    def rest(self) -> None:
        """See ``protocols.Rests``; harmless without a process."""
        if self.alive:
            self._call("rest", LAUNCH_LIMIT_S)

    def untimed_ns(self) -> float:
        """See ``protocols.Prepares``."""
        return float(self._call("untimed_ns", LAUNCH_LIMIT_S)["ns"])

    def forget(self, handle: str) -> None:
        """Let go of shared memory that is about to be freed; harmless where it is not mapped, or without a process."""
        if self._process.alive:
            try:
                self._process.call("unmap", LAUNCH_LIMIT_S, handle=handle)
            except WorkerError:
                self._process.close()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def _call(self, command: str, limit_s: float, **payload: Any) -> dict[str, Any]:
        self._before_call()
        try:
            try:
                return self._process.call(command, limit_s, **payload)
            except WorkerError as error:
                # Not what is timed: a version could have a batch taken again that it does not like.
                if not self.alive or error.kind != Fault.OUT_OF_MEMORY or command == "cold":
                    raise
            time.sleep(RECOVERY_S)  # who took the memory may be about to be ended
            return self._process.call(command, limit_s, **payload)
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
    """One candidate in a process of its own, once it is loaded: ``protocols.Runner``."""

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
        self._binary: Path | None = None
        rules = Rules.LIBRARY if candidate.origin is Origin.LIBRARY else Rules.GPU
        super().__init__(runner, gpu_uuid, before_call, require_health, watch, rules)

    def load(self, binary: Path) -> None:
        """Load the candidate's build; the process ends where that fails."""
        self._binary = binary
        super().load(binary)

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        """See ``protocols.Runner``."""
        self._call("launch", LAUNCH_LIMIT_S, job=Job.of(self.op, case, [arena]).payload(), fresh=fresh)

    def record(self, arena: Arena, case: Case) -> bool:
        """See ``protocols.Recorder``."""
        if self.candidate.entry is not None:
            return False  # which may wait and allocate
        try:
            answer = self._call("record", LAUNCH_LIMIT_S, job=Job.of(self.op, case, [arena]).payload())
        except LaunchFailed as error:
            if not self.alive or error.kind == "forbidden":
                raise
            if is_library(self.candidate):
                return False
            raise _unrecorded(error) from error
        if is_library(self.candidate):
            return True
        assert self._binary is not None
        if found := forbidden_work(answer["nodes"], self._binary):
            raise LaunchFailed(found, "forbidden")
        self._call("starts_in_turn", LAUNCH_LIMIT_S)
        return True

    def capture(self, copies: int, *, nothing: bool = False, fresh: bool = False) -> int:
        """As any; a version of one's own fails with kind ``forbidden`` where its calls can't be captured, or may overlap.

        Libraries are trusted.
        """
        try:
            nodes = super().capture(copies, nothing=nothing, fresh=fresh)
        except LaunchFailed as error:
            if not self.alive or error.kind in (Fault.FORBIDDEN, Fault.OUT_OF_MEMORY) or is_library(self.candidate):
                raise
            raise _unrecorded(error) from error
        if not (nothing or fresh or is_library(self.candidate)):
            self._call("starts_in_turn", LAUNCH_LIMIT_S)
        return nodes

    def replay_record(self) -> None:
        """See ``protocols.Recorder``."""
        self._call("replay_record", LAUNCH_LIMIT_S)


def _unrecorded(error: LaunchFailed) -> LaunchFailed:
    return LaunchFailed(
        "what the launcher does can't be recorded from its stream, so it uses another stream, waits, allocates or copies "
        f"through the host: {error}",
        "forbidden",
        error.log,
    )


def forbidden_work(nodes: Sequence[str], binary: Path) -> str | None:
    """What a recorded call does that a launcher may not do, as a clause; ``nodes``: as ``runner_record`` says them."""
    if not nodes:
        return "the launcher put nothing into its stream: its work is on another stream, or done by the host"
    own = binary.read_bytes()
    for node in nodes:
        kind, _, name = node.partition(" ")
        if node == "host copy":
            return "the launcher copies through the host"
        if kind == "kernel" and name != "?" and name.encode() not in own:
            return f"the launcher runs a kernel that its file does not hold: {name}"
        if kind not in ("kernel", "memset", "copy", "empty"):
            return f"the launcher puts into its stream what it may not: {node}"
    return None


def _stirred(slot: Slot) -> tuple[int, int]:
    return (0 if slot.output else movable(slot.nbytes, slot.dtype), slot.dtype.itemsize)


def _given(number: int | None) -> int:
    return secrets.randbits(64) if number is None else number


def _batch(answer: Mapping[str, Sequence[float]]) -> Batch:
    return Batch(tuple(ms * 1e6 for ms in answer["ms"]), tuple(answer["host_ns"]))
