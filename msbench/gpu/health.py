"""Whether a GPU still works after a failure, so that what follows is not blamed on kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msbench.errors import WorkerError
from msbench.gpu.runner import MeasuredProcess
from msbench.model import Fault

_TRIES = 5  # each takes runner.RECOVERY_S and more


def start_and_launch(runner: Path, gpu_uuid: str) -> None:
    """Run a kernel in a new process. One that was killed may hold its memory for some seconds more, so that is waited for.

    Raises:
        WorkerError: it does not come up, or its kernel does not end.
    """
    for left in reversed(range(_TRIES)):
        try:
            process = MeasuredProcess(runner, gpu_uuid, lambda: None, lambda process_lost: None)
        except WorkerError as error:
            if not left or error.kind != Fault.OUT_OF_MEMORY:
                raise
            continue
        try:
            process.floor(1)
        finally:
            process.close()
        return


def computes(xp: Any) -> bool:
    """Whether arithmetic in this process's own context is right."""
    return int((xp.arange(1000, dtype=xp.int64) * 2).sum()) == 999_000
