"""How long verdicts take, per group of a stream and overall, and where the time goes.

Two figures, which say different things. The *latency* of a group is the time from the first thing done for it, usually
the start of a compilation, to the moment that its verdict is committed; waiting for others in between is part of it.
The *pace* is how many candidates an hour the stream brings to their verdicts, whatever overlaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from msbench.harness.batch.job import Job
from msbench.model import Study, Trial

LIMIT_S = 5.0
"""A verdict on a memory-bound kernel is to take no longer, in the median."""

AHEAD = "built ahead of its turn"
WAITING = "wait for its turn"


@dataclass(frozen=True)
class Passage:
    """One group's way: its ``cases`` measured, ``seconds`` from ``began`` to its committed verdict, by stage.

    ``spans`` adds up to ``seconds``. ``overlapped_s`` is what compilers did for it in other threads.
    """

    task: str
    cases: int
    candidates: int
    began: float
    seconds: float
    overlapped_s: float
    spans: Mapping[str, float]

    @classmethod
    def of(cls, job: Job) -> Passage:
        """Of a job that is finished, and whose ``spans`` were kept."""
        assert job.spans is not None
        return cls(
            task=job.task.id,
            cases=len(job.plan.cases),
            candidates=len(job.candidates),
            began=job.spans.began or 0.0,
            seconds=job.spans.elapsed_s,
            overlapped_s=job.spans.overlapped_s,
            spans={**job.spans.seconds, AHEAD: job.spans.ahead_s, WAITING: job.spans.waiting_s},
        )


@dataclass(frozen=True)
class Throughput:
    """A stream of groups, in the order of their verdicts.

    The first one prepares what the others find (CuPy compiles its kernels): no figure but ``first_s`` counts it, unless
    it is the only one.
    """

    passages: tuple[Passage, ...]

    @property
    def first_s(self) -> float:
        """The first group's latency."""
        return self.passages[0].seconds

    @property
    def steady(self) -> tuple[Passage, ...]:
        """The groups that count."""
        return self.passages[1:] or self.passages

    @property
    def wall_s(self) -> float:
        """From the first verdict to the last: the time in which the groups that count were finished."""
        ends = [passage.began + passage.seconds for passage in self.passages]
        return ends[-1] - ends[0] if len(ends) > 1 else self.first_s

    @property
    def median_s(self) -> float:
        """The median latency of a candidate; all of a group have the group's."""
        return median(self._latencies())

    @property
    def p90_s(self) -> float:
        """The latency that nine candidates of ten stay below."""
        return float(np.quantile(self._latencies(), 0.9))

    @property
    def candidates_per_hour(self) -> float:
        """The pace."""
        return 3600 * len(self._latencies()) / self.wall_s

    def by_stage(self) -> dict[str, float]:
        """Seconds of each stage in the groups that count, the longest first."""
        total: dict[str, float] = {}
        for passage in self.steady:
            for stage, seconds in passage.spans.items():
                total[stage] = total.get(stage, 0.0) + seconds
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def _latencies(self) -> list[float]:
        return [passage.seconds for passage in self.steady for _ in range(passage.candidates)]


def trials(stream: Throughput, *, device_id: str, harness: str, command: str, created_at: str) -> Iterator[Trial]:
    """What is kept of a stream: a trial for each group that counts, and one of all of them."""

    def trial(subject: str, expected: str, outcome: str, held: bool, details: Mapping[str, object]) -> Trial:
        return Trial(
            Study.THROUGHPUT, subject, expected, outcome, held, details, device_id, harness, command, created_at
        )

    for number, passage in enumerate(stream.steady, 1):
        yield trial(
            f"{passage.task} #{number}",
            f"stored verdicts within {LIMIT_S:g} s",
            f"{passage.candidates} in {passage.seconds:.2f} s",
            passage.seconds < LIMIT_S,
            {
                "task": passage.task,
                "cases": passage.cases,
                "candidates": passage.candidates,
                "seconds": passage.seconds,
                "overlapped_s": passage.overlapped_s,
                "spans": dict(passage.spans),
            },
        )
    yield trial(
        "all",
        f"a stored verdict within {LIMIT_S:g} s in the median",
        f"{stream.median_s:.2f} s, nine of ten within {stream.p90_s:.2f} s; {stream.candidates_per_hour:.0f} an hour",
        stream.median_s < LIMIT_S,
        {
            "groups": len(stream.steady),
            "candidates": sum(passage.candidates for passage in stream.steady),
            "median_s": stream.median_s,
            "p90_s": stream.p90_s,
            "first_s": stream.first_s,
            "wall_s": stream.wall_s,
            "candidates_per_hour": stream.candidates_per_hour,
            "spans": stream.by_stage(),
        },
    )
