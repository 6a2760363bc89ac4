"""Times whole calls, for functions that do what a launcher must not: wait, allocate, copy through the host.

Such a call can't stand behind a held stream. Its time is the host's, from an idle device to an idle device, and all versions
of a group are timed in that way, whatever contract they follow. Rounds, shuffled turns and stopping are those of ``timing``.
"""

from __future__ import annotations

from statistics import median

from msbench.harness.gpu_runner import Batch, GpuRunner, Job

_MOST = 512  # repetitions of one command


class WholeCalls:
    """``track.Subject``: a version whose cold times are those of whole calls, and whose hot ones have no cache emptied."""

    def __init__(self, runner: GpuRunner) -> None:
        self._runner = runner
        self._copies = 1

    @property
    def alive(self) -> bool:
        """Whether its process can still be called."""
        return self._runner.alive

    def prepare(self, job: Job) -> None:
        """Make ``job`` what the following commands call."""
        self._runner.prepare(job)

    def keeps_stream(self, wait_s: float) -> None:
        """Nothing: these calls may use any stream, and wait for it."""

    def cold(
        self,
        first_set: int,
        repetitions: int,
        *,
        held: bool = True,
        limit_s: float = 30.0,
        place: int | None = None,
        stirs: int | None = None,
        last: bool = False,
    ) -> Batch:
        """Whole calls with an emptied L2, always on the inputs as drawn; all but limit and numbers mean nothing here."""
        return self._runner.whole(first_set, min(repetitions, _MOST), limit_s=limit_s)

    def floor(self, repetitions: int, launches: int = 1) -> Batch:
        """So many calls of an empty kernel, each launched and waited for in the same way: as many times what one takes."""
        one = self._runner.whole(0, repetitions, nothing=True)
        return Batch(tuple(launches * ns for ns in one.samples_ns), one.host_ns)

    def capture(self, copies: int) -> int:
        """One operation: no graph is made, since what waits or allocates can't be in one; ``replay`` makes the calls."""
        self._copies = copies
        return 1

    def fresh_ns(self, copies: int, replays: int, samples: int) -> None:
        """Nothing: what such functions keep from call to call is their business."""

    def replay(self, replays: int, samples: int, *, limit_s: float = 30.0) -> tuple[float, ...]:
        """What so many times the captured calls take on the same inputs, with nothing emptied in between."""
        calls = replays * self._copies
        batches = (self._runner.whole(0, min(calls, _MOST), cold=False, limit_s=limit_s) for _ in range(samples))
        return tuple(median(batch.samples_ns) * calls for batch in batches)

    def busy(self, seconds: float) -> None:
        """Keep the device busy, so that its clocks are up."""
        self._runner.busy(seconds)
