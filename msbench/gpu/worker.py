"""The measured process: replays and times one candidate's recorded calls, on memory that the referee shares.

Started as ``python -m msbench.gpu.worker``; with ``--profile FILE`` it makes calls that a profiler or a memory checker sees, and ends. From a version's
library it loads only the device code; another process records its launcher (``recorder.py``). Only libraries,
and functions of another contract, run host code here: before anything is timed, unless whole calls are.

It imports little, holds no expected values and no keys, and reaches the referee's device memory through CUDA IPC handles.
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

from msbench.gpu import bindings
from msbench.gpu.bindings import Call, CallFailed, Node, doubles, integers, load_candidate
from msbench.harness.sandbox import wire
from msbench.harness.sandbox.confine import Rules, confine

_TRIES = 2  # of a batch that a busy host could not enqueue in time
_ALIGNMENT = 256  # of what CUDA allocates
_COMMANDS = (
    *(
        "open",
        "load",
        "load_host_code",
        "set_up",
        "take",
        "record",
        "prepare",
        "launch",
        "cold",
        "hot",
        "floor",
        "whole",
        "busy",
    ),
    *("live_bytes", "untimed_ns", "unmap", "rest", "alive"),
)


class Worker:
    """One candidate on one device. A ``job`` describes a call (see ``gpu.runner.Job``)."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._binary = ""
        self._loaded: Any = None  # the candidate's host code, where it may run here
        self._mapped: dict[str, int] = {}
        self._job: dict[str, Any] = {}
        self._rows: list[list[int]] = []
        self._workspace: int | None = None
        self._call = Call()
        self._prepared: set[str] = set()  # what a library has set itself up for
        self._variables: list[str] = []
        self._confine: Callable[[], object] = wire.confine

    def handlers(self) -> dict[str, wire.Handler]:
        """What the referee may ask for."""
        return {name: getattr(self, name) for name in _COMMANDS}

    def open(self, runner: str, flush_factor: float, hold_seconds: float) -> None:
        """Create the CUDA context."""
        self._runner = bindings.load(runner)
        try:
            self._done(self._runner.runner_open(ctypes.c_double(flush_factor), ctypes.c_double(hold_seconds)))
        except CallFailed as error:  # there is no candidate yet that it could be laid to
            if error.kind != "out_of_memory":
                raise CallFailed(
                    "device", f"the GPU can't be used by a new process: {error}; see nvidia-smi"
                ) from error
            raise

    def load(self, binary: str, image: Sequence[int] | None, variables: Sequence[str]) -> None:
        """Load the candidate, which is held to its rules from here on.

        ``image``: where its device code begins in the file and how many bytes it has, which is all that is loaded; None for a
        version whose host code runs here. ``variables``: those of its device code, which no call may change.
        """
        self._binary, self._variables = binary, list(variables)
        self._confine()
        if image is None:
            self.load_host_code()
            return
        offset, size = image
        code = Path(binary).read_bytes()[offset : offset + size]
        names = (ctypes.c_char_p * max(1, len(variables)))(*(name.encode() for name in variables))
        missing = ctypes.c_int()
        failed = self._runner.runner_load(code, ctypes.c_size_t(size), names, len(variables), ctypes.byref(missing))
        if failed == bindings.UNKNOWN_VARIABLE:
            name = self._variables[missing.value]
            raise CallFailed("forbidden", f"the device variable {name} can't be looked at")
        self._done(failed)

    def load_host_code(self) -> None:
        """Load the rest of the candidate, whose whole calls are to be timed."""
        self._loaded = self._loaded or load_candidate(self._binary)

    def set_up(self, job: dict[str, Any], workspace_bytes: int | None, alone: bool) -> dict[str, Any]:
        """Make ``job`` the current one: map its memory and make room for its workspace; where all of that lies.

        ``workspace_bytes``: what the candidate asks for; None where it can be asked here. ``alone``: let go of other jobs'
        memory, in which something might have been left.
        """
        lent = job.get("workspace")
        needed = {one["handle"] for one in (*job["sets"], *([lent] if lent else []))}
        for handle in self._mapped.keys() - needed if alone else ():
            self.unmap(handle)
        rows = [[self._map(s["handle"]) + offset for offset in s["offsets"]] for s in job["sets"]]
        return self._set_up(job, rows, workspace_bytes)

    def take(self, records: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Take what was recorded of the current call, for each input set."""
        self._runner.runner_forget_records()
        for record in records:
            nodes = (Node * max(1, len(record)))(*(Node.of(node) for node in record))
            unknown = ctypes.c_int()
            code = self._runner.runner_take(nodes, len(record), ctypes.byref(unknown))
            if code == bindings.UNKNOWN_KERNEL:
                name = record[unknown.value]["name"]
                raise CallFailed(
                    "forbidden", f"the launcher runs a kernel that its file does not hold: {name}; declare the link"
                )
            self._done(code)

    def prepare(self, anew: bool) -> None:
        """Have a library set itself up for the current call. ``anew``: it is about to be timed, so it chooses once more."""
        if anew and wire.rules() == Rules.LIBRARY and hasattr(self._loaded, "msbench_choose_anew"):
            self._loaded.msbench_choose_anew()
            self._prepared.clear()
        key = json.dumps([self._rows, self._job["scalars"], self._job["dims"]])
        if key not in self._prepared:
            stage = ctypes.c_int()
            self._done(self._runner.runner_prepare(ctypes.byref(self._call), ctypes.byref(stage)), stage)
            self._prepared.add(key)

    def record(self) -> dict[str, Any]:
        """Record a library's call on each input set, to be played here."""
        self._runner.runner_forget_records()
        number = range(len(self._rows))
        return {"records": [bindings.record(self._runner, self._call, self._workspace, n, keep=True) for n in number]}

    def launch(self, fresh: bool, seed: int) -> None:
        """Make the current call once, with a workspace that is redrawn first (``fresh``) or left.

        What is recorded is played; where nothing is, the launcher is called.
        """
        stage = ctypes.c_int()
        call, drawn = ctypes.byref(self._call), ctypes.c_uint64(seed)
        self._done(self._runner.runner_once(call, int(fresh), drawn, ctypes.byref(stage)), stage)

    def cold(self, first_set: int, repetitions: int, held: bool, drawn: int, kept: int) -> dict[str, Any]:
        """Time cold repetitions; times in milliseconds as CUDA gives them.

        ``drawn``: which elements of the inputs are swapped before each repetition (see ``timing.permute``). ``kept``: the
        repetition whose outputs are there at the end, or -1. No times: the host was too slow to enqueue the batch.
        """

        def batch(ms: Any, stage: Any) -> int:
            call, state = ctypes.byref(self._call), ctypes.c_uint64(drawn)
            return int(self._runner.runner_cold(call, first_set, repetitions, int(held), state, kept, ms, stage))

        with self._without_host_code():
            return self._timed(
                batch, repetitions, tries=1 if kept >= 0 else _TRIES
            )  # what is compared moves on but once

    def floor(self, repetitions: int, launches: int, drawn: int) -> dict[str, Any]:
        """Time so many empty kernels in a row the same way."""

        def batch(ms: Any, stage: Any) -> int:
            return int(self._runner.runner_floor(launches, repetitions, ctypes.c_uint64(drawn), ms, stage))

        return self._timed(batch, repetitions)

    def hot(self, plays: int, samples: int, launches: int, warm: bool) -> dict[str, Any]:
        """Time ``samples`` rows of calls with nothing between them (of so many empty kernels, for ``launches``); none as in ``cold``."""

        def rows(ms: Any, stage: Any) -> int:
            return int(self._runner.runner_hot(launches, plays, samples, int(warm), ms, stage))

        with self._without_host_code():
            return self._timed(rows, samples)

    def whole(self, first_set: int, repetitions: int, cold: bool, nothing: bool = False) -> dict[str, Any]:
        """Time whole calls (of an empty kernel, for ``nothing``), in nanoseconds on the host's clock."""
        # An entry of its own may set apart what belongs to the call from what the caller does around it.
        names = () if nothing else ("msbench_call", "msbench_prepare", "msbench_finish")
        found = [getattr(self._loaded, name, None) for name in names] or [None] * 3
        launch, before, after = (ctypes.cast(one, ctypes.c_void_p) if one else None for one in found)
        if not nothing and launch is None:
            launch = ctypes.c_void_p(self._call.launch)
        ns, stage = (ctypes.c_double * repetitions)(), ctypes.c_int()
        call = ctypes.byref(self._call)
        code = self._runner.runner_whole(
            call, launch, before, after, first_set, repetitions, int(cold), ns, ctypes.byref(stage)
        )
        self._done(code, stage)
        return {"ns": list(ns)}

    def live_bytes(self) -> dict[str, Any]:
        """What the candidate has allocated and not freed."""
        self._loaded.msbench_live_bytes.restype = ctypes.c_int64
        return {"bytes": self._loaded.msbench_live_bytes()}

    def untimed_ns(self) -> dict[str, Any]:
        """What a library says that it took to prepare for the arrays of the last call."""
        told = getattr(self._loaded, "msbench_untimed_ns", None)
        if not told or wire.rules() != Rules.LIBRARY:
            return {"ns": 0.0}
        told.restype = ctypes.c_double
        return {"ns": told()}

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._done(self._runner.runner_busy(ctypes.c_double(seconds)))

    def unmap(self, handle: str) -> None:
        """Unmap memory that the referee is about to free."""
        pointer = self._mapped.pop(handle, None)
        if pointer is not None:
            self._done(self._runner.runner_unmap(ctypes.c_void_p(pointer)))

    def rest(self) -> None:
        """Give back the workspace, which the next job asks for again."""
        self._done(self._runner.runner_rest())

    def alive(self) -> None:
        """See whether the context still works after an error."""
        self._done(self._runner.runner_alive())

    def profile(self, version: dict[str, Any]) -> None:
        """For each of a version's ``jobs`` one call that a profiler sees, on a copy of the job's memory.

        A profiler runs a kernel once for each set of counters, and restores in between what it wrote: in a process's own memory, not in
        what it shares with others. A memory checker knows an array's end where an allocation ends: jobs with the arrays' ``bytes`` have each
        array in one of its own.
        """
        if version["rules"]:
            self._confine = partial(confine, Rules(version["rules"]), told=False)
        self.open(version["runner"], flush_factor=0.0, hold_seconds=1.0)
        self.load(version["binary"], None, ())
        together = max(job["nbytes"] for job in version["jobs"])
        pointer = None if "bytes" in version["jobs"][0] else self._allocate(together)
        for number, job in enumerate(version["jobs"]):
            print(f"{version['announce']}{number}", flush=True)
            self._profile(job, pointer)

    def _profile(self, job: dict[str, Any], pointer: int | None) -> None:
        (memory,) = job["sets"]
        shared = self._map(memory["handle"])
        if pointer is None:
            row = [
                self._apart(shared + offset, nbytes)
                for offset, nbytes in zip(memory["offsets"], job["bytes"], strict=True)
            ]
        else:
            self._copy(pointer, shared, job["nbytes"])
            row = [pointer + offset for offset in memory["offsets"]]
        self.unmap(memory["handle"])
        self._set_up(job, [row], None)
        stage = ctypes.c_int()
        self._done(self._runner.runner_profile(ctypes.byref(self._call), ctypes.byref(stage)), stage)

    def _apart(self, source: int, nbytes: int) -> int:
        """A copy of an array, as far from an aligned address, at the end of an allocation."""
        shift = source % _ALIGNMENT
        address = self._allocate(shift + nbytes) + shift
        self._copy(address, source, nbytes)
        return address

    def _allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_void_p()
        self._done(self._runner.runner_allocate(ctypes.c_size_t(nbytes), ctypes.byref(pointer)))
        return pointer.value or 0

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        self._done(self._runner.runner_copy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(nbytes)))

    def _set_up(self, job: dict[str, Any], rows: list[list[int]], workspace_bytes: int | None) -> dict[str, Any]:
        if workspace_bytes is None:
            asked = self._loaded.msbench_workspace(doubles(job["scalars"]), integers(job["dims"]))
            workspace_bytes = int(asked)
        lent, workspace = job.get("workspace"), ctypes.c_void_p()
        memory = self._map(lent["handle"]) if lent else None
        self._runner.runner_lend(ctypes.c_void_p(memory), ctypes.c_size_t(lent["nbytes"] if lent else 0))
        self._done(self._runner.runner_reserve(ctypes.c_size_t(workspace_bytes), ctypes.byref(workspace)))
        self._job, self._rows, self._workspace = job, rows, workspace.value
        launch = self._loaded.msbench_launch if self._loaded else None
        self._call = Call.of(job, rows, workspace_bytes, launch)
        self._runner.runner_forget_records()
        return {"rows": rows, "workspace": workspace.value, "workspace_bytes": workspace_bytes}

    def _map(self, handle: str) -> int:
        if handle not in self._mapped:
            pointer = ctypes.c_void_p()
            code = self._runner.runner_map(bytes.fromhex(handle), ctypes.byref(pointer))
            if code:
                raise CallFailed(
                    "device",
                    f"memory can't be shared between processes on this machine ({bindings.describe(self._runner, code)}); "
                    "CUDA IPC needs Linux and a whole GPU in one container",
                )
            self._mapped[handle] = pointer.value or 0
        return self._mapped[handle]

    def _without_host_code(self) -> HostCode:
        return HostCode(self._binary if self._loaded else "")

    def _timed(self, batch: Callable[[Any, Any], int], count: int, tries: int = _TRIES) -> dict[str, Any]:
        ms, stage = (ctypes.c_float * count)(), ctypes.c_int()
        for _ in range(tries):
            code = batch(ms, ctypes.byref(stage))
            if code != bindings.BLOCKED:
                break
        if code == bindings.BLOCKED:
            return {"ms": []}
        self._done(code, stage)
        return {"ms": list(ms)}

    def _done(self, code: int, stage: ctypes.c_int | None = None) -> None:
        if code == bindings.VARIABLE_CHANGED:
            changed = ctypes.c_int()
            self._done(self._runner.runner_changed_variable(ctypes.byref(changed)))
            name = self._variables[changed.value]
            raise CallFailed("forbidden", f"the device variable {name} is not after a call what it was before it")
        bindings.done(self._runner, code, stage)


class HostCode:
    """Makes a version's own code unreadable for a while: a call from there would end the process. ``path`` "": of none."""

    def __init__(self, path: str) -> None:
        self._spans: list[tuple[int, int]] = []
        if path:
            for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
                span, flags, *_, name = line.split()
                if name == path and "x" in flags:
                    begin, end = (int(part, 16) for part in span.split("-"))
                    self._spans.append((begin, end - begin))

    def __enter__(self) -> None:
        self._protect(0)  # PROT_NONE

    def __exit__(self, *_: object) -> None:
        self._protect(mmap.PROT_READ | mmap.PROT_EXEC)

    def _protect(self, rights: int) -> None:
        for begin, size in self._spans:
            ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin), ctypes.c_size_t(size), rights)


def main(arguments: Sequence[str]) -> int:
    """Serve the referee, or make a version's calls for a profiler or a memory checker; the exit code."""
    worker = Worker()
    if len(arguments) == 2 and arguments[0] == "--profile":
        try:
            worker.profile(json.loads(Path(arguments[1]).read_text(encoding="utf-8")))
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
