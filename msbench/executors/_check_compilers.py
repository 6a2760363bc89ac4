"""Has what checks run on the device compiled ahead, by ``harness.check.compile_checks`` in processes of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

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
        """These come next, beside others: have processes load CuPy meanwhile, as many as there are cores, unless all is compiled. They use no GPU yet."""
        if any(op.folder and not self._is_done(op, beside_others=True) for op in operators):
            self._idle += [self._started() for _ in range(os.cpu_count() or 1)]

    def compile(self, op: Operator, processes: int = 1, seed: int | None = None) -> None:
        """See ``protocols.Compiles``; done once for an operator and harness, whatever the seed. A check tells what fails."""
        beside_others = seed is not None
        if not op.folder or self._is_done(op, beside_others):
            return
        with suppress(WorkerError, OSError), ThreadPoolExecutor(processes) as threads:
            folder, parts = str(Path(op.folder).parent), range(processes)
            asked = {"operator": op.name, "folder": folder, "parts": processes, "seed": seed}
            begun = [threads.submit(self._part, **asked, part=part) for part in parts]
            for part in begun:
                part.result()
            done = self._done(op, beside_others)
            done.parent.mkdir(parents=True, exist_ok=True)
            done.touch()

    def close(self) -> None:
        """End what is idle."""
        while self._idle:
            self._idle.pop().close()

    def _is_done(self, op: Operator, beside_others: bool) -> bool:
        return self._done(op, False).exists() or (beside_others and self._done(op, True).exists())

    def _done(self, op: Operator, beside_others: bool) -> Path:
        """What is there once an operator's checks are compiled, all or those that are computed on the device beside others."""
        kind = "checks beside others" if beside_others else "checks"
        return resources.cache_dir() / "checks" / digest(kind, *self._for, harness_digest(op))

    def _part(self, **asked: Any) -> None:
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._started()
        try:
            process.call("compile", _LIMIT_S, **asked)
        except WorkerError:
            process.close()
            raise
        self._idle.append(process)

    def _started(self) -> WorkerProcess:
        """Starting one takes as long as compiling what an operator needs."""
        path = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, **worker_environment(self._uuid), "PYTHONPATH": path}
        return WorkerProcess([sys.executable, "-P", "-m", "msbench.harness.check.compile_checks"], env=environment)
