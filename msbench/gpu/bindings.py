"""The native runner (native/runner.cu) as Python sees it: its structures, its errors in words. Standard library only."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

# As in native/runner/call.cuh: results that are no CUDA errors, and where an error was seen.
BLOCKED, _WORKSPACE_OVERRUN, _WROTE_ELSEWHERE = -1, -2, -4
VARIABLE_CHANGED, UNKNOWN_KERNEL, UNKNOWN_VARIABLE, _FORKS = -6, -7, -8, -9
_SET_UP, _LAUNCHER, _LAST_ERROR, _KERNEL, _CAPTURE, _ELSEWHERE = range(6)

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NOT_SUPPORTED = 801  # cudaErrorNotSupported
_DEVICE_FAULTS = frozenset(
    {700, 702, 710, 714, 715, 716, 717, 718, 719}
)  # illegal address … launch failure: context lost
_CAPTURE_ERRORS = range(900, 909)  # cudaErrorStreamCapture…
_OWN = {
    BLOCKED: ("device", "the host took longer to enqueue a batch than a stream is held"),
    _WORKSPACE_OVERRUN: ("out_of_bounds", "the kernel wrote outside its workspace"),
    _WROTE_ELSEWHERE: ("out_of_bounds", "the kernel wrote to memory far outside its arrays"),
    _FORKS: ("forbidden", "the launcher forks its stream: enqueue all work on the stream that is given, in a row"),
}


class CallFailed(Exception):
    """A call of the runner failed; ``kind`` is a ``model.Fault``'s value."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Call(ctypes.Structure):
    """``struct Call``."""

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
        ("permuted", ctypes.POINTER(ctypes.c_uint64)),
    )

    @classmethod
    def of(
        cls, job: Mapping[str, Any], rows: Sequence[Sequence[int]], workspace_bytes: int, launch: Any = None
    ) -> Call:
        """The call of a job (``runner.Job.payload``) on ``rows`` of arrays, one for each input set."""
        pointers = [pointer for row in rows for pointer in row]
        outputs, permuted = job.get("output_bytes", ()), job.get("permuted") or (0, 0) * len(rows[0])
        return cls(
            launch=ctypes.cast(launch, ctypes.c_void_p) if launch else None,
            scalars=doubles(job["scalars"]),
            dims=integers(job["dims"]),
            workspace_bytes=workspace_bytes,
            sets=len(rows),
            arrays=len(rows[0]),
            outputs=len(outputs),
            poison=int(job.get("poison", False)),
            pointers=(ctypes.c_void_p * len(pointers))(*pointers),
            output_bytes=(ctypes.c_uint64 * max(1, len(outputs)))(*outputs),
            permuted=(ctypes.c_uint64 * len(permuted))(*permuted),
        )


class Node(ctypes.Structure):
    """``struct Node``, of what ``runner_record`` says."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("kind", "early", "cooperative", "scheduling")),
        *((name, ctypes.c_int32) for name in ("max_shared", "carveout", "nonportable")),
        *((name, ctypes.c_uint32 * 3) for name in ("grid", "block", "cluster")),
        *((name, ctypes.c_uint32) for name in ("shared", "value", "element")),
        *((name, ctypes.c_uint64) for name in ("to", "from", "to_pitch", "from_pitch", "width", "height", "bytes")),
        ("name", ctypes.c_char_p),
        ("parameters", ctypes.c_char_p),
    )

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Node:
        """One operation."""
        parameters = bytes.fromhex(node["parameters"])
        made = cls(bytes=len(parameters), name=node["name"].encode(), parameters=parameters)
        for field in cls._fields_:
            if (name := field[0]) not in ("bytes", "name", "parameters"):
                value = node[name]
                setattr(made, name, field[1](*value) if isinstance(value, list) else value)
        return made


def doubles(values: Sequence[float]) -> ctypes.Array[ctypes.c_double]:
    """As C has them."""
    return (ctypes.c_double * max(1, len(values)))(*values)


def integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """As C has them."""
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def load(path: str) -> Any:
    """The runner's library."""
    library = ctypes.CDLL(path)
    for name in ("runner_error_name", "runner_error_text"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def load_candidate(path: str) -> Any:
    """A version's library, with all of its host code. Raises CallFailed."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise CallFailed("link", f"the built kernel can't be loaded: {error}") from error
    library.msbench_workspace.restype = ctypes.c_size_t
    return library


def record(runner: Any, call: Call, workspace: int | None, number: int, *, keep: bool) -> dict[str, Any]:
    """Record one call on input set ``number``; the operations as JSON, and the launcher's time on the host. Raises CallFailed."""
    text, host_ns, stage = ctypes.c_char_p(), ctypes.c_double(), ctypes.c_int()
    code = runner.runner_record(
        ctypes.byref(call),
        ctypes.c_void_p(workspace),
        number,
        int(keep),
        ctypes.byref(text),
        ctypes.byref(host_ns),
        ctypes.byref(stage),
    )
    done(runner, code, stage)
    return {"nodes": (text.value or b"[]").decode(), "host_ns": host_ns.value}


def done(runner: Any, code: int, stage: ctypes.c_int | None = None) -> None:
    """Raise CallFailed unless a call of the runner succeeded."""
    if not code:
        return
    if code in _OWN:
        raise CallFailed(*_OWN[code])
    at, said = stage.value if stage else _SET_UP, describe(runner, code)
    if at == _CAPTURE or (code in _CAPTURE_ERRORS and at != _SET_UP):
        what = "it waits, allocates, copies through the host, or uses another stream than the one that it is given"
        raise CallFailed("forbidden", f"what the launcher does can't be recorded: {what} ({said})")
    if at == _ELSEWHERE:
        raise CallFailed("forbidden", f"the launcher puts work elsewhere than on the stream that it is given ({said})")
    kind = "crash" if code in _DEVICE_FAULTS else "out_of_memory" if code == _OUT_OF_MEMORY else "launch"
    if code == _NOT_SUPPORTED and at == _LAUNCHER:
        kind = "unsupported"
    what = {
        _LAUNCHER: "the launcher returned",
        _LAST_ERROR: "a launch failed, which the launcher did not report:",
        _KERNEL: "the kernel ended with",
    }.get(at, "the harness's own call returned")
    raise CallFailed(kind, f"{what} {said}")


def describe(runner: Any, code: int) -> str:
    """``"cudaErrorIllegalAddress, an illegal memory access was encountered"``."""
    return f"{runner.runner_error_name(code).decode()}, {runner.runner_error_text(code).decode()}"
