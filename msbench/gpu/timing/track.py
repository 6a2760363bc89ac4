"""One version while it is timed: its batches, their lengths, and its measurements so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from msbench.gpu.job import Job
from msbench.model import Failure
from msbench.spec import Case
from msbench.statistics import round_centres

BATCH_NS = 2e6
"""How long a batch takes, unless one repetition takes longer."""

QUEUE = 600
"""Commands of a batch behind a held stream; a stream takes about a thousand before it makes the host wait."""

OWN_BATCH_NS = 2 * BATCH_NS
"""A call that takes this long is a batch of its own, and needs no further ones to tell that."""

SLOW_NS = 1e8
"""A call that takes this long is repeated no more than its figure needs, and is not timed hot."""

FAR_BEHIND = 20.0
"""A version that takes so many times as long as the fastest of its group has few rounds, and is not timed hot."""

BEHIND = 3.0
"""A baseline that takes so many times as long as the fastest of its group has few rounds: nobody asks for that ratio to a hundredth.
Of a version whose timed outputs are compared, fewer rounds would be fewer comparisons."""

BATCH_REPETITIONS = 16
"""A batch has no more than this: short calls gain more from further rounds."""

PLACES = 16
"""A multiple of so many repetitions has calls launched equally often at each place (native/runner.cu, ``cold``)."""

OVERHEAD_NS = 6e4
"""Of a cold repetition: scrubbing, emptying L2 and two events."""

OTHER_COMMANDS = 5
"""Of a repetition besides its outputs: its workspace, variables, shared and local memory, and two elements of its inputs."""

FLOOR_LAUNCHES = 4
"""Empty kernels in a row, which tell what longer calls pay; one alone tells what the shortest do."""

BUSY_S = 0.001
"""How long the device is kept busy before anything is timed, and behind a pause in which outputs were compared, so that its clocks are up."""

_FIXED_COMMANDS = 5
"""Of a repetition, besides the call's own: two events, two that empty L2, and a launch after every fourth."""

_MIN_LONG_ROUNDS = 5
_MIN_SLOW_ROUNDS = 3
_HOT_NS = 2e6
_HOT_PLAYS = 200


class Subject(Protocol):
    """What is timed: ``GpuRunner``, or a test's stand-in.

    ``floors``: what empty kernels took in its process, by how many in a row; for as long as it lives, so measured but once.
    """

    floors: dict[int, list[float]]

    @property
    def alive(self) -> bool: ...

    @property
    def host_ns(self) -> float | None: ...

    def prepare(self, job: Job, case: Case) -> int: ...

    def cold(
        self,
        first_set: int,
        repetitions: int,
        *,
        held: bool = True,
        limit_s: float = 30.0,
        drawn: int | None = None,
        kept: int = -1,
    ) -> tuple[float, ...]: ...

    def floor(self, repetitions: int, launches: int = 1) -> tuple[float, ...]: ...

    def hot(self, plays: int, samples: int, *, warm: bool = True, limit_s: float = 30.0) -> tuple[float, ...]: ...

    def busy(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Compared:
    """A repetition that is compared: its input set, of a batch that began with that; its number there, and how many there were."""

    kept: int
    repetitions: int


@dataclass
class Track:
    """One version on its way through a measurement."""

    subject: Subject
    suspicious: bool = True  # its timed repetitions are compared
    sets: int = 1
    nodes: int = 1  # device operations of a call
    estimate_ns: float = 0.0
    repetitions: int = 1
    most: int = (
        BATCH_REPETITIONS  # repetitions that the host enqueues while the stream is held; 0 if that is not even one
    )
    turn: int = 0
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    hot_ns: float | None = None
    hot_note: str = ""
    noisy: bool = True
    few_rounds: bool = False
    far_behind: bool = False
    failure: Failure | None = None

    @property
    def alive(self) -> bool:
        """Whether it still takes part."""
        return self.failure is None

    def floor_ns(self, launches: int = 1) -> float | None:
        """What so many empty kernels in a row took in this version's process, in the same rounds as in the others'.

        Of one and of ``FLOOR_LAUNCHES`` it is measured, between and beyond them it is on a line with these, and with nothing.
        """
        floors = self.subject.floors
        if not floors.get(1) or not floors.get(FLOOR_LAUNCHES):
            return None
        one, several = (round_centres([floors[number]]).item() for number in (1, FLOOR_LAUNCHES))
        if launches >= FLOOR_LAUNCHES:
            return several * launches / FLOOR_LAUNCHES
        return one + (several - one) * (launches - 1) / (FLOOR_LAUNCHES - 1)

    @property
    def held(self) -> bool:
        """Whether its call fits into a held stream's queue."""
        return self.most > 0 and self.nodes + _FIXED_COMMANDS < QUEUE

    @property
    def min_rounds(self) -> int:
        """How many rounds it needs at least."""
        return _MIN_SLOW_ROUNDS if self.estimate_ns > SLOW_NS else _MIN_LONG_ROUNDS

    @property
    def hot_plays(self) -> int:
        """How many calls are played in a row when it is timed hot."""
        return max(1, min(int(_HOT_NS / self.estimate_ns), QUEUE // self.nodes - self.sets, _HOT_PLAYS))

    def time_floors(self, repetitions: int) -> None:
        """Time empty kernels, beside a batch."""
        for launches in (1, FLOOR_LAUNCHES):
            self.subject.floors.setdefault(launches, []).extend(self.subject.floor(repetitions, launches))

    def batch(self, repetitions: int | None = None, *, drawn: int | None = None, kept: int = -1) -> tuple[float, ...]:
        """One batch on the next input sets; see ``Subject.cold``. No times where one with ``kept`` took the host too long."""
        count = repetitions or self.repetitions
        while True:
            limit_s = 30.0 + 10 * count * (self.estimate_ns + OVERHEAD_NS) / 1e9
            samples = self.subject.cold(self.turn, count, held=self.held, limit_s=limit_s, drawn=drawn, kept=kept)
            self.turn += count
            if samples:
                return samples
            self._shorten(count)
            if kept >= 0:
                return samples
            count = min(count, self.repetitions)

    def _shorten(self, count: int) -> None:
        """After a batch of ``count`` that the host could not enqueue in time: large parameters fill a stream's queue, too."""
        self.most = min(self.most, count // 2)
        self.repetitions = min(self.repetitions, max(1, self.most))

    def compared(self, number: int, drawn: int, which: int) -> tuple[tuple[float, ...], Compared]:
        """A batch like any other that begins with input set ``number``, and what is left of it: one repetition on that set.

        ``which``, any number, picks it: the same for all versions whose batches are as long. ``drawn``: see ``Subject.cold``.
        """
        self.turn = number
        turns = range(0, self.repetitions, self.sets)
        told = Compared(turns[which % len(turns)], self.repetitions)
        return self.batch(drawn=drawn, kept=told.kept), told


def repetitions_for(estimate_ns: float, nodes: int, outputs: int) -> int:
    """How many repetitions a batch has: about BATCH_NS of them, and no more than a held stream takes.

    A multiple of PLACES, where it is that many, or could be within twice that time.
    """
    each_ns = estimate_ns + OVERHEAD_NS
    by_time = int(BATCH_NS / each_ns)
    if by_time < PLACES and each_ns * PLACES <= 2 * BATCH_NS:
        by_time = PLACES
    by_queue = QUEUE // (_FIXED_COMMANDS + nodes + outputs)
    count = max(1, min(by_time, by_queue, BATCH_REPETITIONS))
    return count - count % PLACES if count > PLACES else count
