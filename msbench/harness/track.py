"""One version while it is timed: its batches, how long they are, and what has been measured of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from msbench.harness.gpu_runner import Batch, Job
from msbench.model import Failure
from msbench.statistics import round_centres

BATCH_NS = 2e6
"""How long a batch takes, unless one repetition takes longer."""

QUEUE = 600
"""Commands of a batch behind a held stream; a stream takes about a thousand before it makes the host wait."""

SLOW_NS = 1e8
"""A call that takes this long is repeated no more than its figure needs, and is not timed hot."""

BATCH_REPETITIONS = 16
"""A batch has no more than this: short calls gain more from further rounds."""

PLACES = 16
"""A multiple of so many repetitions has calls launched equally often at each place (native/runner.cu, ``runner_cold``)."""

OVERHEAD_NS = 3.5e4
"""Of a cold repetition: reading over L2 and two events."""

OTHER_COMMANDS = 3
"""Of a repetition with inputs, a workspace and variables: two elements change places, it is overwritten, they are put back."""

FLOOR_LAUNCHES = 4
"""Empty kernels in a row, which tell what longer calls pay; one alone tells what the shortest do."""

HOT_NODES = 512
"""Of a graph of calls that are timed hot."""

_FIXED_COMMANDS = (
    4  # of a repetition, besides the call's own: two events, the read over L2, and a launch after every fourth
)
_UNKNOWN_NODES = 16  # of a call that can't be captured
_MIN_LONG_ROUNDS = 5
_MIN_SLOW_ROUNDS = 3
_ENQUEUE_NS = 1e8  # that the host may take for a batch, well below gpu_runner.HOLD_S
_HOT_GRAPH_NS = 2e5


class Subject(Protocol):
    """What is timed: ``GpuRunner``, and what tests put in its place."""

    def prepare(self, job: Job) -> None: ...

    def keeps_stream(self, wait_s: float) -> None: ...

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
    ) -> Batch: ...

    def floor(self, repetitions: int, launches: int = 1) -> Batch: ...

    def capture(self, copies: int) -> int: ...

    def replay(self, replays: int, samples: int, *, limit_s: float = 30.0) -> tuple[float, ...]: ...

    def fresh_ns(self, copies: int, replays: int, samples: int) -> float | None: ...

    def busy(self, seconds: float) -> None: ...

    @property
    def alive(self) -> bool: ...


class Again(Protocol):
    """Runs a version as it is timed, so that it can't tell that somebody looks."""

    def cold(self, number: int, stirs: int, length: int, *, last: bool) -> tuple[int, int]:
        """A batch whose last repetition is on input set ``number``; its first set, and how many repetitions it had.

        ``length``, any number, picks one of the possible ones: the same for all versions whose batches are alike.
        ``stirs``, ``last``: see ``Subject.cold``.
        """

    def hot(self) -> bool:
        """Calls on input set 0, as hot ones are timed; False if none were."""


@dataclass
class Track:
    """One version on its way through a measurement."""

    subject: Subject
    sets: int = 1
    nodes: int | None = None  # device operations of a call, where it can be captured
    estimate_ns: float = 0.0
    repetitions: int = 1
    turn: int = 0
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    host_ns: list[float] = field(default_factory=list)
    floors: dict[int, list[float]] = field(default_factory=dict)
    hot_ns: float | None = None
    hot_note: str = ""
    noisy: bool = True
    failure: Failure | None = None

    @property
    def alive(self) -> bool:
        """Whether it still takes part."""
        return self.failure is None

    @property
    def commands(self) -> int:
        """How many commands a call enqueues, as far as is known."""
        return self.nodes or _UNKNOWN_NODES

    def floor_ns(self, launches: int = 1) -> float | None:
        """What so many empty kernels in a row took in this version's process, in the same rounds.

        Of one and of ``FLOOR_LAUNCHES`` it is measured, between and beyond them it is on a line with these, and with nothing.
        """
        if 1 not in self.floors or FLOOR_LAUNCHES not in self.floors:
            return None
        one, several = (round_centres([self.floors[number]]).item() for number in (1, FLOOR_LAUNCHES))
        if launches >= FLOOR_LAUNCHES:
            return several * launches / FLOOR_LAUNCHES
        return one + (several - one) * (launches - 1) / (FLOOR_LAUNCHES - 1)

    @property
    def held(self) -> bool:
        """Whether its call fits into a held stream's queue."""
        return self.commands + _FIXED_COMMANDS < QUEUE

    @property
    def min_rounds(self) -> int:
        """How many rounds it needs at least."""
        return _MIN_SLOW_ROUNDS if self.estimate_ns > SLOW_NS else _MIN_LONG_ROUNDS

    @property
    def copies(self) -> int:
        """How many calls are captured in one graph."""
        return max(1, min(int(_HOT_GRAPH_NS / self.estimate_ns), HOT_NODES // self.commands))

    def start_over(self) -> None:
        """Forget what was timed."""
        self.rounds.clear()
        self.host_ns.clear()
        self.floors.clear()

    def batch(
        self, repetitions: int | None = None, *, place: int | None = None, stirs: int | None = None, last: bool = False
    ) -> Batch:
        """One batch on the next input sets; see ``Subject.cold``."""
        count = repetitions or self.repetitions
        limit_s = 30.0 + 10 * count * (self.estimate_ns + OVERHEAD_NS) / 1e9
        batch = self.subject.cold(
            self.turn, count, held=self.held, limit_s=limit_s, place=place, stirs=stirs, last=last
        )
        self.turn += count
        return batch

    def cold(self, number: int, stirs: int, length: int, *, last: bool) -> tuple[int, int]:
        """See ``Again``. It begins like any batch, and how long it is no call can know before it is over."""
        lengths = [n for n in range(1, self.repetitions + 1) if (self.turn + n - 1) % self.sets == number]
        if not lengths:
            self.turn, lengths = number, [1]
        first, count = self.turn, lengths[length % len(lengths)]
        self.batch(count, stirs=stirs, last=last)
        return first % self.sets, count

    def hot(self) -> bool:
        """See ``Again``."""
        if self.hot_ns is None:
            return False
        self.subject.capture(self.copies)
        self.subject.replay(1, 1)
        return True


def repetitions_for(estimate_ns: float, host_ns: float, nodes: int, outputs: int) -> int:
    """How many repetitions a batch has: about BATCH_NS of them, and no more than a held stream can wait for or take.

    A multiple of PLACES, where it is that many, or could be within twice that time.
    """
    each_ns = estimate_ns + OVERHEAD_NS
    by_time = int(BATCH_NS / each_ns)
    if by_time < PLACES and each_ns * PLACES <= 2 * BATCH_NS:
        by_time = PLACES
    by_host = int(_ENQUEUE_NS / max(host_ns, 1.0))
    by_queue = QUEUE // (_FIXED_COMMANDS + nodes + outputs)
    count = max(1, min(by_time, by_host, by_queue, BATCH_REPETITIONS))
    return count - count % PLACES if count > PLACES else count
