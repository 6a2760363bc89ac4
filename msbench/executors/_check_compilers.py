"""Has what checks run on the device compiled ahead, by ``harness.check.compile_checks`` in processes of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
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
        self._busy: set[WorkerProcess] = set()
        self._closed = False
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="msbench-compiling")
        self._lock = threading.Lock()

    def expect(self, operators: Sequence[Operator]) -> None:
        """These come next, beside others: have processes load CuPy meanwhile, as many as there are cores, unless all is compiled. They use no GPU yet."""
        if any(op.folder and not self._is_done(op, beside_others=True) for op in operators):
            self._idle += [self._started() for _ in range(os.cpu_count() or 1)]

    def compile(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        """See ``protocols.Compiles``; done once for an operator and harness, whatever the seed. A check tells what fails."""
        beside_others = seed is not None
        whole = Future[None]()
        if not op.folder or self._is_done(op, beside_others):
            whole.set_result(None)
            return whole
        asked = {"operator": op.name, "folder": str(Path(op.folder).parent), "parts": processes, "seed": seed}
        parts = [self._pool.submit(self._part, **asked, part=part) for part in range(processes)]
        left = len(parts)

        def count(_: Future[None]) -> None:
            nonlocal left
            with self._lock:
                left -= 1
                is_last = not left
            if is_last:
                self._conclude(whole, parts, self._done(op, beside_others))

        for part in parts:
            part.add_done_callback(count)
        return whole

    def _conclude(self, whole: Future[None], parts: Sequence[Future[None]], done: Path) -> None:
        try:
            with suppress(WorkerError, OSError, CancelledError):
                for part in parts:
                    part.result()
                done.parent.mkdir(parents=True, exist_ok=True)
                done.touch()
            whole.set_result(None)
        except BaseException as error:
            whole.set_exception(error)

    def rest(self) -> None:
        """End what is idle."""
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        """Begin nothing more, and end all: a part takes seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._closed = True
            for process in self._busy:
                process.kill()
        self.rest()

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
        with self._lock:
            self._busy.add(process)
        try:
            if self._closed:
                raise CancelledError
            process.call("compile", _LIMIT_S, **asked)
        except BaseException:
            with self._lock:
                self._busy.remove(process)
            process.close()
            raise
        with self._lock:
            self._busy.remove(process)
            if not self._closed:
                self._idle.append(process)
                return
        process.close()

    def _started(self) -> WorkerProcess:
        """Starting one takes as long as compiling what an operator needs."""
        path = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, **worker_environment(self._uuid), "PYTHONPATH": path}
        return WorkerProcess([sys.executable, "-P", "-m", "msbench.harness.check.compile_checks"], env=environment)
