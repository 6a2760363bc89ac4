"""Has what checks run on the device compiled ahead, by ``harness.check.compile_checks`` in processes of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msbench import resources
from msbench.errors import WorkerError
from msbench.gpu.runner import worker_environment
from msbench.harness.digest import harness_digest
from msbench.harness.sandbox.process import WorkerProcess
from msbench.model import digest
from msbench.spec import Operator

_LIMIT_S = 180.0


class CheckCompilers:
    """Those for one GPU architecture and release of CuPy, at work on the GPU ``uuid``. Once compiled, it is kept on disk."""

    def __init__(self, uuid: str, arch: str, cupy: str) -> None:
        self._uuid = uuid
        self._for = (arch, cupy)
        self._idle: list[WorkerProcess] = []

    def expect(self, operators: Sequence[Operator]) -> None:
        """These come next: have processes load CuPy meanwhile, as many as there are cores, unless all is compiled. They use no GPU yet."""
        if any(op.folder and not self._done(op).exists() for op in operators):
            self._idle += [self._started() for _ in range(os.cpu_count() or 1)]

    def compile(self, op: Operator, processes: int = 1) -> None:
        """See ``protocols.Compiles``; done once for an operator and harness. A check tells what fails."""
        if not op.folder or (done := self._done(op)).exists():
            return
        with suppress(WorkerError, OSError), ThreadPoolExecutor(processes) as threads:
            parts = range(processes)
            begun = [threads.submit(self._part, op.name, Path(op.folder).parent, n, processes) for n in parts]
            for part in begun:
                part.result()
            done.parent.mkdir(parents=True, exist_ok=True)
            done.touch()

    def close(self) -> None:
        """End what is idle."""
        while self._idle:
            self._idle.pop().close()

    def _done(self, op: Operator) -> Path:
        """What is there once an operator's checks are compiled."""
        return resources.cache_dir() / "checks" / digest("checks", *self._for, harness_digest(op))

    def _part(self, operator: str, folder: Path, part: int, parts: int) -> None:
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._started()
        try:
            process.call("compile", _LIMIT_S, operator=operator, folder=str(folder), part=part, parts=parts)
        except WorkerError:
            process.close()
            raise
        self._idle.append(process)

    def _started(self) -> WorkerProcess:
        """Starting one takes as long as compiling what an operator needs."""
        path = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, **worker_environment(self._uuid), "PYTHONPATH": path}
        return WorkerProcess([sys.executable, "-P", "-m", "msbench.harness.check.compile_checks"], env=environment)
