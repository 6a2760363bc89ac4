"""A candidate's process on the cpu executor: loads its library and calls it on shared memory.

Started as ``python -m msbench.executors._cpu_worker``. Under AddressSanitizer everything in a mapped arena but the arrays
themselves is poisoned, so that the first access beside an array is reported where it happens.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
from typing import Any

from msbench.harness.sandbox import wire

_STREAM = ctypes.c_void_p(0x10)
"""What a launcher is given: not the default stream, so that it is told from it, and nothing that is ever looked into."""
_REDZONE = 4096
_GUARD = 0xCB
_POISON = 0xFF  # NaN in every float format


class LaunchError(Exception):
    """The launcher returned an error; ``log`` is the runtime's failure as JSON, or empty."""

    def __init__(self, kind: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.log = log


class _Memory:
    """A stretch of this process's memory, with what may be accessed in it under AddressSanitizer."""

    def __init__(self, buffer: mmap.mmap) -> None:
        self.buffer = buffer
        self._view = (ctypes.c_char * len(buffer)).from_buffer(buffer)
        self.address = ctypes.addressof(self._view)

    def fence(self, allowed: list[tuple[int, int]]) -> None:
        """Poison all but these (offset, bytes)."""
        process = ctypes.CDLL(None)
        poison = getattr(process, "__asan_poison_memory_region", None)
        if poison is None:
            return  # AddressSanitizer is not loaded
        # getattr, since a plain attribute of that name would be mangled inside a class
        unpoison = getattr(process, "__asan_unpoison_memory_region")
        end = 0
        for offset, nbytes in [*allowed, (len(self.buffer), 0)]:
            poison(ctypes.c_void_p(self.address + end), ctypes.c_size_t(offset - end))
            unpoison(ctypes.c_void_p(self.address + offset), ctypes.c_size_t(nbytes))
            end = offset + nbytes

    def close(self) -> None:
        self.fence([(0, len(self.buffer))])
        del self._view
        self.buffer.close()


class _Candidate:
    """The loaded library and the memory that it is called on."""

    def __init__(self) -> None:
        self._arenas: dict[int, _Memory] = {}
        self._workspace: _Memory | None = None
        self._workspace_bytes = 0

    def open(self, library: str, workers: int, time_limit_s: float, any_stream: bool) -> dict[str, Any]:
        """Load it. ``any_stream``: its calling convention has none, so kernels may be launched on the default one."""
        wire.confine()
        self._library = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self._library.msbench_workspace.restype = ctypes.c_size_t
        self._workers = workers
        self._time_limit_s = time_limit_s
        self._any_stream = any_stream
        return {}

    def map(self, arena: int, slots: list[tuple[int, int]]) -> dict[str, Any]:
        """Map the arena whose descriptor came along; ``slots``: (offset, bytes) of each array."""
        file = wire.take_file()
        try:
            memory = _Memory(mmap.mmap(file, 0))
        finally:
            os.close(file)
        memory.fence(slots)
        self._arenas[arena] = memory
        return {"address": memory.address}

    def unmap(self, arena: int) -> None:
        self._arenas.pop(arena).close()

    def reserve(self, scalars: list[float], dims: list[int]) -> dict[str, Any]:
        """Allocate the workspace that the candidate asks for."""
        nbytes = self._library.msbench_workspace(_doubles(scalars), _integers(dims))
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None
        self._workspace_bytes = nbytes
        if nbytes:
            try:
                self._workspace = _Memory(mmap.mmap(-1, nbytes + 2 * _REDZONE))
            except (OSError, ValueError, OverflowError) as error:
                raise LaunchError(
                    "out_of_memory", f"the kernel asks for {nbytes} bytes of workspace: {error}"
                ) from error
            self._workspace.fence([(_REDZONE, nbytes)])
        address = self._workspace.address + _REDZONE if self._workspace else 0
        return {"address": address, "nbytes": nbytes}

    def launch(
        self,
        arena: int,
        offsets: list[int],
        scalars: list[float],
        dims: list[int],
        order: int,
        seed: int,
        fresh: bool,
    ) -> dict[str, Any]:
        """Call the launcher once; its blocks have run when it returns. ``fresh``: overwrite the workspace first."""
        base = self._arenas[arena].address
        arrays = (ctypes.c_void_p * len(offsets))(*(base + offset for offset in offsets))
        self._library.msbench_cpu_configure(
            order, ctypes.c_uint64(seed), self._workers, ctypes.c_double(self._time_limit_s)
        )
        if fresh:
            self._fill_workspace()
        workspace = ctypes.c_void_p(self._workspace.address + _REDZONE if self._workspace else None)
        code = self._library.msbench_launch(
            arrays, _doubles(scalars), _integers(dims), workspace, ctypes.c_size_t(self._workspace_bytes), _STREAM
        )
        text = ctypes.create_string_buffer(8192)
        self._library.msbench_cpu_failure(text, ctypes.c_size_t(len(text)))
        failure = text.value.decode(errors="replace")
        if failure or code:
            number = json.loads(failure)["error"] if failure else code
            raise LaunchError("launch", f"the launcher returned error {number}", failure)
        if self._library.msbench_cpu_default_stream() and not self._any_stream:
            raise LaunchError(
                "forbidden", "the launcher put work on another stream than the one it was given: the default one"
            )
        if self._library.msbench_cpu_index_written():
            raise LaunchError("forbidden", "the launcher left threadIdx, blockIdx, blockDim or gridDim changed")
        self._look_at_workspace()
        return {}

    def live_bytes(self) -> dict[str, Any]:
        """What the candidate holds at the moment."""
        self._library.msbench_live_bytes.restype = ctypes.c_int64
        return {"bytes": self._library.msbench_live_bytes()}

    def _fill_workspace(self) -> None:
        if self._workspace is None:
            return
        start, nbytes = self._workspace.address, self._workspace_bytes
        self._workspace.fence([(0, nbytes + 2 * _REDZONE)])
        ctypes.memset(start, _GUARD, _REDZONE)
        ctypes.memset(start + _REDZONE, _POISON, nbytes)
        ctypes.memset(start + _REDZONE + nbytes, _GUARD, _REDZONE)
        self._workspace.fence([(_REDZONE, nbytes)])

    def _look_at_workspace(self) -> None:
        if self._workspace is None:
            return
        guard, end = bytes([_GUARD]) * _REDZONE, _REDZONE + self._workspace_bytes
        self._workspace.fence([(0, end + _REDZONE)])
        before, after = self._workspace.buffer[:_REDZONE], self._workspace.buffer[end : end + _REDZONE]
        self._workspace.fence([(_REDZONE, self._workspace_bytes)])
        if before != guard or after != guard:
            side = "after" if after != guard else "before"
            raise LaunchError(
                "out_of_bounds", f"the kernel wrote outside its workspace, {side} its {self._workspace_bytes} bytes"
            )


def _doubles(values: list[float]) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * max(1, len(values)))(*values)


def _integers(values: list[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


if __name__ == "__main__":
    candidate = _Candidate()
    commands = (
        candidate.open,
        candidate.map,
        candidate.unmap,
        candidate.reserve,
        candidate.launch,
        candidate.live_bytes,
    )
    wire.serve({command.__name__: command for command in commands})
