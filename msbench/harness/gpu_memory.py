"""Running out of memory: a case too large for the device, or a version that takes memory others need.

CUDA has no limit on what a process allocates. A version may allocate nothing at all (the contract), and one that does so
openly is refused by what it links; ``MemoryWatch`` is for those that do it otherwise, and for vendor libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from msbench.errors import DeviceFull
from msbench.harness.protocols import Executor
from msbench.spec import Problem

_LOW = 1 / 50  # of the device's memory: less than this free is trouble for the others
_FRESH_S = 0.5  # how long what is free before a call is taken for known
_MUCH = 1 / 10  # of the device's memory: taking more than this makes a process the cause


@contextmanager
def memory_for(what: str, executor: Executor, problem: Problem) -> Iterator[None]:
    """For a part of an evaluation: where the device has no room for it, say what to do."""
    try:
        yield
    except MemoryError as error:
        raise DeviceFull(
            f"{executor.device().name} has not enough memory to {what} {problem.task.id} at {problem.case.id}. "
            "Choose smaller cases with --cases."
        ) from error


@dataclass
class MemoryWatch:
    """Looks at the device while a worker is at work, so that what fills it is ended and named before others find none.

    ``memory`` gives its (free, all) bytes, ``processes`` what each process has, by its id; both None where NVML does not
    tell. Inside a container NVML may know processes by other ids; then the process at work while memory ran out is blamed.
    """

    memory: Callable[[], tuple[int, int] | None]
    processes: Callable[[], dict[int, int] | None]
    clock: Callable[[], float] = time.monotonic
    _free_before: int = 0
    _looked_at: float = float("-inf")

    def begin(self) -> None:
        """Remember what is free: a call is about to begin. Asking takes as long as some calls, so not for each of a row."""
        if self.clock() - self._looked_at < _FRESH_S:
            return
        self._looked_at = self.clock()
        found = self.memory()
        self._free_before = found[0] if found else 0

    def __call__(self, pid: int) -> str | None:
        """Why the worker has to be killed; see ``WorkerProcess.watch``."""
        found = self.memory()
        if found is None:
            return None
        free, total = found
        if free >= total * _LOW:
            return None
        taken = (self.processes() or {}).get(pid, self._free_before - free)
        if taken <= total * _MUCH:
            return None
        return f"took {taken / 2**30:.3g} GiB of the GPU's memory, of which {free / 2**30:.2g} GiB were left,"
