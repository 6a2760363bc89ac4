"""Times whole calls, for functions that do what a launcher must not: synchronise, allocate, copy through the host.

Such a call can't be recorded. Its time is the host's, from an idle device to an idle device, and all versions of a group are timed
in that way, whatever contract they follow. Rounds, shuffled order and stopping are those of ``timing``. Such functions run in
the process that times them: cheating is searched for, not excluded.
"""

from __future__ import annotations

from statistics import median

from msbench.gpu.job import Job
from msbench.gpu.runner import GpuRunner
from msbench.spec import Case

_MOST = 512  # repetitions of one command


class WholeCalls:
    """``track.Subject``: a version whose cold times are those of whole calls, and whose hot ones have no cache emptied."""

    host_ns: float | None = None

    def __init__(self, runner: GpuRunner) -> None:
        self._runner = runner
        self.floors: dict[int, list[float]] = {}

    @property
    def alive(self) -> bool:
        """Whether its process can still be called."""
        return self._runner.alive

    def prepare(self, job: Job, case: Case) -> int:
        """Make ``job`` what the following commands call: one operation, as far as is known."""
        self._runner.prepare_whole(job)
        return 1

    def cold(
        self,
        first_set: int,
        repetitions: int,
        *,
        held: bool = True,
        limit_s: float = 30.0,
        drawn: int | None = None,
        kept: int = -1,
    ) -> tuple[float, ...]:
        """Whole calls with an emptied L2, always on the inputs as drawn; all but limit and numbers mean nothing here."""
        return self._runner.whole(first_set, min(repetitions, _MOST), limit_s=limit_s)

    def floor(self, repetitions: int, launches: int = 1) -> tuple[float, ...]:
        """So many calls of an empty kernel, each launched and waited for in the same way: as many times what one takes."""
        return tuple(launches * ns for ns in self._runner.whole(0, repetitions, nothing=True))

    def hot(self, plays: int, samples: int, *, warm: bool = True, limit_s: float = 30.0) -> tuple[float, ...]:
        """What so many calls take on the same inputs, with nothing emptied in between."""
        rows = (self._runner.whole(0, min(plays, _MOST), cold=False, limit_s=limit_s) for _ in range(samples))
        return tuple(median(row) * plays for row in rows)

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._runner.busy(seconds)
