"""The recording process: loads a version's library and reports what its launcher enqueues on a stream, without running any of it.

Started as ``python -m msbench.gpu.recorder``, and confined before it loads a candidate. It maps no array: pointers belong to the
worker (``worker.py``), which plays what is recorded here. So no host code of a version reads an input or runs
where time is measured; whatever an answer says, it can only name device code of the version's own file.
"""

from __future__ import annotations

from typing import Any

from msbench.gpu.bindings import Call, done, doubles, integers, load, load_candidate, record
from msbench.harness.sandbox import wire


class Recorder:
    """One candidate's host code."""

    def __init__(self) -> None:
        self._runner: Any = None
        self._candidate: Any = None

    def open(self, runner: str) -> None:
        """Create the CUDA context."""
        self._runner = load(runner)
        done(self._runner, self._runner.recorder_open())

    def load(self, binary: str) -> None:
        """Load the candidate, which is held to its rules from here on."""
        wire.confine()
        self._candidate = load_candidate(binary)

    def workspace(self, scalars: list[float], dims: list[int]) -> dict[str, Any]:
        """The bytes of workspace that a call asks for."""
        return {"bytes": int(self._candidate.msbench_workspace(doubles(scalars), integers(dims)))}

    def record(self, job: dict[str, Any], rows: list[list[int]], workspace: int | None, nbytes: int) -> dict[str, Any]:
        """Record one call on each row of arrays; see ``bindings.record``."""
        call = Call.of(job, rows, nbytes, self._candidate.msbench_launch)
        return {"records": [record(self._runner, call, workspace, n, keep=False) for n in range(len(rows))]}


if __name__ == "__main__":
    recorder = Recorder()
    wire.serve({name: getattr(recorder, name) for name in ("open", "load", "workspace", "record")})
