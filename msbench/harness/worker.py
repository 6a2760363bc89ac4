"""The measured process: loads the native runner and one candidate, and does what the referee's calls say.

Started as ``python -m msbench.harness.worker``; with ``--once JOB`` it makes one call that a profiler sees, and ends.
It imports little, holds no expected values and no keys, and reaches the referee's device memory through CUDA IPC
handles.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msbench.harness import snapshot, wire
from msbench.harness.confine import Rules, confine

# As in native/runner/call.cuh: results that are no CUDA errors, and where an error was seen.
_BLOCKED, _WORKSPACE_OVERRUN, _ESCAPED, _WROTE_ELSEWHERE, _STARTS_EARLY = -1, -2, -3, -4, -5
_VARIABLE_CHANGED, _UNRECORDED = -6, -7
_SET_UP, _LAUNCHER, _LAST_ERROR, _KERNEL = range(4)

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NOT_PERMITTED = 800  # cudaErrorNotPermitted: native/entry_points.cpp says so
_NOT_SUPPORTED = 801  # cudaErrorNotSupported
_DEVICE_FAULTS = frozenset(
    {700, 702, 710, 714, 715, 716, 717, 718, 719}
)  # illegal address … launch failure: context lost
_OWN = {
    _BLOCKED: (
        "forbidden",
        "the launcher waited for the stream: it synchronises, or calls something that does (cudaFree, a blocking copy)",
    ),
    _WORKSPACE_OVERRUN: ("out_of_bounds", "the kernel wrote outside its workspace"),
    _ESCAPED: ("forbidden", "the launcher put work on another stream than the one it was given"),
    _WROTE_ELSEWHERE: ("out_of_bounds", "the kernel wrote to memory far outside its arrays"),
    _UNRECORDED: (
        "forbidden",
        "the call can't be recorded, so nobody can look at the variables that it may keep on the device: "
        "use the given stream alone, and do not wait, allocate or copy through the host",
    ),
    _STARTS_EARLY: (
        "forbidden",
        "the call's first kernel may start before what precedes it in the stream has ended: "
        "launch it without cudaLaunchAttributeProgrammaticStreamSerialization",
    ),
}
_SETTINGS = (
    "the current device",
    "the cache configuration",
    "the stream's window of persisting L2",
    "the size of the device's printf buffer",
    "the size of the device's heap",
    "the L2 fetch granularity",
    "the size of the persisting L2",
)
_RECORD_BYTES = 1 << 16


class CallFailed(Exception):
    """A call of the runner failed; ``kind`` is a ``model.Fault``'s value."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Call(ctypes.Structure):
    """``struct Call`` of native/runner/call.cuh."""

    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("scalars", ctypes.POINTER(ctypes.c_double)),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("workspace_bytes", ctypes.c_size_t),
        ("sets", ctypes.c_int32),
        ("arrays", ctypes.c_int32),
        ("outputs", ctypes.c_int32),
        ("poison", ctypes.c_int32),
        ("pointers", ctypes.POINTER(ctypes.c_void_p)),
        ("output_bytes", ctypes.POINTER(ctypes.c_uint64)),
        ("stirred", ctypes.POINTER(ctypes.c_uint64)),
    )


class Worker:
    """One candidate on one device. A ``job`` describes a call (see ``gpu_runner.Job``)."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._candidate: Any = None
        self._mapped: dict[str, int] = {}
        self._call = _Call()
        self._before: dict[str, str] = {}  # the state in which the current job was prepared
        self._variables: list[str] = []  # on the device, by their names there
        self._found = False  # whether it is known where they lie
        self._confine: Callable[[], object] = wire.confine

    def handlers(self) -> dict[str, wire.Handler]:
        """What the referee may ask for."""
        names = (
            "open",
            "load",
            "launch",
            "record",
            "starts_in_turn",
            "replay_record",
            "prepare",
            "keeps_stream",
            "cold",
            "capture",
            "replay",
            "busy",
            "floor",
            "whole",
            "live_bytes",
            "untimed_ns",
            "unmap",
            "rest",
            "alive",
        )
        return {name: getattr(self, name) for name in names}

    def open(self, runner: str, flush_factor: float, hold_seconds: float) -> None:
        """Create the CUDA context."""
        self._runner = ctypes.CDLL(runner)
        for name in ("runner_error_name", "runner_error_text"):
            getattr(self._runner, name).restype = ctypes.c_char_p
        self._runner.runner_nothing.restype = ctypes.c_void_p
        try:
            self._done(self._runner.runner_open(ctypes.c_double(flush_factor), ctypes.c_double(hold_seconds)))
        except CallFailed as error:  # there is no candidate yet that it could be laid to
            if error.kind != "out_of_memory":
                raise CallFailed(
                    "device", f"the GPU can't be used by a new process: {error}; see nvidia-smi"
                ) from error
            raise

    def load(self, binary: str, variables: Sequence[str] = ()) -> None:
        """Load the candidate, which is held to its rules from here on. ``variables``: those on the device that no call may change."""
        self._variables = list(variables)
        self._confine()
        try:
            self._candidate = ctypes.CDLL(binary)
        except OSError as error:
            raise CallFailed("link", f"the built kernel can't be loaded: {error}") from error
        self._candidate.msbench_workspace.restype = ctypes.c_size_t

    def launch(self, job: dict[str, Any], fresh: bool) -> None:
        """Prepare a job and call the launcher once, with a workspace that is overwritten first (``fresh``) or left."""
        self._map_and_set_up(job)
        before, found = self._state(), self._find_variables()
        self._once(0, fresh)
        self._done(found)  # what the call itself does wrong is said first
        self._unchanged(before)

    def record(self, job: dict[str, Any]) -> dict[str, Any]:
        """Record what one call puts into the stream, without running it; ``nodes``: what that is, in words."""
        self._map_and_set_up(job)
        text, stage = ctypes.create_string_buffer(_RECORD_BYTES), ctypes.c_int()
        call = ctypes.byref(self._call)
        self._done(self._runner.runner_record(call, text, ctypes.c_size_t(len(text)), ctypes.byref(stage)), stage)
        return {"nodes": text.value.decode(errors="replace").splitlines()}

    def starts_in_turn(self) -> None:
        """See that the current job's call waits for what precedes it in its stream."""
        stage = ctypes.c_int()
        self._done(self._runner.runner_starts_in_turn(ctypes.byref(self._call), ctypes.byref(stage)), stage)

    def replay_record(self) -> None:
        """Run what was recorded."""
        stage = ctypes.c_int()
        self._done(self._runner.runner_replay_record(ctypes.byref(self._call), ctypes.byref(stage)), stage)

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make ``job`` the current one, which is about to be timed: a library that has chosen for its sizes chooses anew.

        Any other version has to let go of other jobs' memory, in which it might have left something.
        """
        made = self._map_and_set_up(job)
        if wire.rules() != Rules.LIBRARY:
            self._forget_others(job)
        choose_anew = getattr(self._candidate, "msbench_choose_anew", None)
        if choose_anew and wire.rules() == Rules.LIBRARY:  # no other version is told what is about to come
            choose_anew()
        self._before = self._state()
        self._done(self._find_variables())
        return made

    def keeps_stream(self, wait_seconds: float) -> None:
        """See that the launcher's work waits while the stream is held."""
        stage = ctypes.c_int()
        call, wait = ctypes.byref(self._call), ctypes.c_double(wait_seconds)
        self._done(self._runner.runner_keeps_stream(call, wait, ctypes.byref(stage)), stage)

    def cold(self, first_set: int, repetitions: int, held: bool, place: int, stirs: int, last: bool) -> dict[str, Any]:
        """Time cold repetitions; times in milliseconds as CUDA gives them, host times in nanoseconds.

        ``place``: where in lent memory the workspace lies; the same number is the same place for all that need as much.
        ``stirs``: which elements of the inputs change places before each repetition (see ``stirring``).
        ``last``: see whether any batch since ``prepare`` has left something changed, which takes half as long as a short one.
        """
        self._place(place)
        found = self._cold(self._call, first_set, repetitions, held, stirs)
        if last:
            self._unchanged(self._before)
        return found

    def floor(self, repetitions: int, launches: int, stirs: int) -> dict[str, Any]:
        """Time so many empty kernels in a row the same way."""
        return self._cold(self._nothing(launches), 0, repetitions, True, stirs)

    def whole(self, first_set: int, repetitions: int, cold: bool, nothing: bool = False) -> dict[str, Any]:
        """Time whole calls (of an empty kernel, for ``nothing``), in nanoseconds on the host's clock."""
        call = self._nothing(1) if nothing else self._call
        # An entry of its own may set apart what belongs to the call from what the caller does around it.
        names = () if nothing else ("msbench_call", "msbench_prepare", "msbench_finish")
        found = [getattr(self._candidate, name, None) for name in names] or [None] * 3
        launch, before, after = (ctypes.cast(one, ctypes.c_void_p) if one else None for one in found)
        ns, stage = (ctypes.c_double * repetitions)(), ctypes.c_int()
        code = self._runner.runner_whole(
            ctypes.byref(call),
            launch or ctypes.c_void_p(call.launch),
            before,
            after,
            first_set,
            repetitions,
            int(cold),
            ns,
            ctypes.byref(stage),
        )
        self._done(code, stage)
        return {"ns": list(ns)}

    def live_bytes(self) -> dict[str, Any]:
        """What the candidate has allocated and not freed."""
        self._candidate.msbench_live_bytes.restype = ctypes.c_int64
        return {"bytes": self._candidate.msbench_live_bytes()}

    def untimed_ns(self) -> dict[str, Any]:
        """What a library says that it took to prepare for the arrays of the last call."""
        told = getattr(self._candidate, "msbench_untimed_ns", None)
        if not told or wire.rules() != Rules.LIBRARY:
            return {"ns": 0.0}
        told.restype = ctypes.c_double
        return {"ns": told()}

    def capture(
        self, copies: int, place: int, stirs: int, nothing: bool = False, fresh: bool = False
    ) -> dict[str, Any]:
        """Capture calls (of an empty kernel, for ``nothing``) into the graph that ``replay`` plays.

        ``fresh``: before each of them outputs and workspace are overwritten, and two elements of each input change places.
        ``place``, ``stirs``: as for ``cold``.
        """
        call, before = self._nothing(1) if nothing else self._call, ctypes.byref(self._call) if fresh else None
        self._place(place)
        stage, nodes = ctypes.c_int(), ctypes.c_uint64()
        code = self._runner.runner_capture(
            ctypes.byref(call), before, copies, ctypes.c_uint64(stirs), ctypes.byref(nodes), ctypes.byref(stage)
        )
        self._done(code, stage)
        return {"nodes": nodes.value}

    def replay(self, replays: int, samples: int) -> dict[str, Any]:
        """Time ``samples`` times ``replays`` replays of the captured graph."""
        ms, stage = (ctypes.c_float * samples)(), ctypes.c_int()
        self._done(self._runner.runner_replay(replays, samples, ms, ctypes.byref(stage)), stage)
        return {"ms": list(ms)}

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._done(self._runner.runner_busy(ctypes.c_double(seconds)))

    def unmap(self, handle: str) -> None:
        """Let go of memory that the referee is about to free."""
        pointer = self._mapped.pop(handle, None)
        if pointer is not None:
            self._done(self._runner.runner_unmap(ctypes.c_void_p(pointer)))

    def rest(self) -> None:
        """Give back the workspace, which the next job asks for again."""
        self._done(self._runner.runner_rest())

    def alive(self) -> None:
        """See whether the context still works after an error."""
        self._done(self._runner.runner_alive())

    def once(self, job: dict[str, Any]) -> None:
        """Make a job's memory from a file, and one call that a profiler sees."""
        if job["rules"]:
            self._confine = partial(confine, Rules(job["rules"]), told=False)
        self.open(job["runner"], flush_factor=0.0, hold_seconds=1.0)
        self.load(job["binary"])
        pointer = ctypes.c_void_p()
        self._done(self._runner.runner_allocate(ctypes.c_size_t(job["nbytes"]), ctypes.byref(pointer)))
        path = Path(job["data"])
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
            view = (ctypes.c_char * len(data)).from_buffer(data)
            self._done(self._runner.runner_upload(pointer, view, ctypes.c_size_t(len(data))))
            del view
        self._set_up(job, [[(pointer.value or 0) + offset for offset in job["sets"][0]["offsets"]]])
        stage = ctypes.c_int()
        self._done(self._runner.runner_profile(ctypes.byref(self._call), ctypes.byref(stage)), stage)

    def _map_and_set_up(self, job: dict[str, Any]) -> dict[str, Any]:
        """Map a job's memory, and make room for its workspace."""
        rows = [[self._map(s["handle"]) + offset for offset in s["offsets"]] for s in job["sets"]]
        return self._set_up(job, rows)

    def _set_up(self, job: dict[str, Any], rows: Sequence[Sequence[int]]) -> dict[str, Any]:
        scalars = (ctypes.c_double * max(1, len(job["scalars"])))(*job["scalars"])
        dims = (ctypes.c_int64 * max(1, len(job["dims"])))(*job["dims"])
        outputs = job["output_bytes"]
        pointers = [pointer for row in rows for pointer in row]
        workspace = int(self._candidate.msbench_workspace(scalars, dims))
        lent = job.get("workspace")
        memory = self._map(lent["handle"]) if lent else None
        self._runner.runner_lend(ctypes.c_void_p(memory), ctypes.c_size_t(lent["nbytes"] if lent else 0))
        self._done(self._runner.runner_reserve(ctypes.c_size_t(workspace)))
        self._call = _Call(
            launch=ctypes.cast(self._candidate.msbench_launch, ctypes.c_void_p),
            scalars=scalars,
            dims=dims,
            workspace_bytes=workspace,
            sets=len(rows),
            arrays=len(rows[0]),
            outputs=len(outputs),
            poison=int(job["poison"]),
            pointers=(ctypes.c_void_p * len(pointers))(*pointers),
            output_bytes=(ctypes.c_uint64 * max(1, len(outputs)))(*outputs),
            stirred=(ctypes.c_uint64 * (2 * len(rows[0])))(*job["stirred"]),
        )
        return {"workspace_bytes": workspace}

    def _map(self, handle: str) -> int:
        if handle not in self._mapped:
            pointer = ctypes.c_void_p()
            code = self._runner.runner_map(bytes.fromhex(handle), ctypes.byref(pointer))
            if code:
                raise CallFailed(
                    "device",
                    f"memory can't be shared between processes on this machine ({self._describe(code)}); "
                    "CUDA IPC needs Linux and a whole GPU in one container",
                )
            self._mapped[handle] = pointer.value or 0
        return self._mapped[handle]

    def _forget_others(self, job: dict[str, Any]) -> None:
        lent = job.get("workspace")
        needed = {one["handle"] for one in (*job["sets"], *([lent] if lent else []))}
        for handle in self._mapped.keys() - needed:
            self.unmap(handle)

    def _place(self, place: int) -> None:
        """Move the workspace in lent memory; not that of a library that has prepared for addresses."""
        if not self.untimed_ns()["ns"]:
            self._runner.runner_place(ctypes.c_size_t(self._call.workspace_bytes), ctypes.c_uint64(place))

    def _once(self, input_set: int, fresh: bool) -> None:
        stage = ctypes.c_int()
        call = ctypes.byref(self._call)
        self._done(self._runner.runner_once(call, input_set, int(fresh), ctypes.byref(stage)), stage)

    def _state(self) -> dict[str, str]:
        """What the launcher may not leave changed, in the process and on the device; a library sets itself up as it likes."""
        if wire.rules() == Rules.LIBRARY:
            return {}
        values = (ctypes.c_int64 * len(_SETTINGS))()
        self._runner.runner_settings(values)
        return snapshot.take() | {name: str(value) for name, value in zip(_SETTINGS, values, strict=True)}

    def _find_variables(self) -> int:
        """Have the runner find and save the version's variables, as soon as a call launches a kernel; the runner's code."""
        names = self._variables
        if not names or self._found:
            return 0
        listed = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
        count, missing = ctypes.c_int(len(names)), ctypes.c_int()
        call = ctypes.byref(self._call)
        code = int(self._runner.runner_find_variables(call, listed, ctypes.byref(count), ctypes.byref(missing)))
        if code != _UNRECORDED:
            self._done(code)
            if missing.value >= 0:
                raise CallFailed("forbidden", f"the device variable {names[missing.value]} can't be looked at")
        self._found = count.value > 0
        return code

    def _changed_variable(self) -> str:
        changed = ctypes.c_int()
        self._done(self._runner.runner_changed_variable(ctypes.byref(changed)))
        return self._variables[changed.value]

    def _unchanged(self, before: dict[str, str]) -> None:
        if found := snapshot.changed(before, self._state()):
            raise CallFailed("forbidden", found)

    def _cold(self, call: _Call, first_set: int, repetitions: int, held: bool, stirs: int) -> dict[str, Any]:
        ms, host, stage = (ctypes.c_float * repetitions)(), (ctypes.c_double * repetitions)(), ctypes.c_int()
        code = self._runner.runner_cold(
            ctypes.byref(call),
            first_set,
            repetitions,
            int(held),
            ctypes.c_uint64(stirs),
            ms,
            host,
            ctypes.byref(stage),
        )
        self._done(code, stage)
        return {"ms": list(ms), "host_ns": list(host)}

    def _nothing(self, launches: int) -> _Call:
        return _Call(launch=self._runner.runner_nothing(), sets=1, dims=(ctypes.c_int64 * 1)(launches))

    def _describe(self, code: int) -> str:
        name, text = self._runner.runner_error_name(code), self._runner.runner_error_text(code)
        return f"{name.decode()}, {text.decode()}"

    def _done(self, code: int, stage: ctypes.c_int | None = None) -> None:
        if not code:
            return
        if code == _VARIABLE_CHANGED:
            raise CallFailed("forbidden", f"the launcher left the constant variable {self._changed_variable()} changed")
        if code in _OWN:
            raise CallFailed(*_OWN[code])
        if code == _NOT_PERMITTED and stage is not None and stage.value == _LAUNCHER:
            raise CallFailed(
                "forbidden", "the launcher asked for an entry point of the driver other than for tensor maps"
            )
        kind = "crash" if code in _DEVICE_FAULTS else "out_of_memory" if code == _OUT_OF_MEMORY else "launch"
        if code == _NOT_SUPPORTED and stage is not None and stage.value == _LAUNCHER:
            kind = "unsupported"
        what = {
            _LAUNCHER: "the launcher returned",
            _LAST_ERROR: "a launch failed, which the launcher did not report:",
            _KERNEL: "the kernel ended with",
        }.get(stage.value if stage else _SET_UP, "the harness's own call returned")
        raise CallFailed(kind, f"{what} {self._describe(code)}")


def main(arguments: Sequence[str]) -> int:
    """Serve the referee, or make one call for a profiler; the exit code."""
    worker = Worker()
    if len(arguments) == 2 and arguments[0] == "--once":
        try:
            worker.once(json.loads(Path(arguments[1]).read_text(encoding="utf-8")))
        except CallFailed as error:
            print(f"msbench worker: {error}", file=sys.stderr)
            return 3
        return 0
    wire.serve(worker.handlers())
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # no destructors of vendor libraries: they may wait for a context that is lost
