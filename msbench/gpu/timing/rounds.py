"""Times versions against each other: short batches in shuffled order, until their ratios are known well enough.

A *round* has one batch of every version, back to back, so that disturbances (clocks, temperature) affect all
of them; ratios are taken within a round. Every sample is kept. The worker does the timing itself (native/runner.cu).
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median
from typing import Protocol

from msbench.errors import WorkerError, WorkerTimeout
from msbench.gpu.job import Job
from msbench.gpu.telemetry import Telemetry
from msbench.gpu.timing.track import (
    BEHIND,
    BUSY_S,
    FAR_BEHIND,
    OTHER_COMMANDS,
    OVERHEAD_NS,
    OWN_BATCH_NS,
    PLACES,
    SLOW_NS,
    Subject,
    Track,
    repetitions_for,
)
from msbench.harness.check.case import fault_of
from msbench.harness.protocols import ONLY_TURN, Turn
from msbench.harness.sessions import number_of
from msbench.model import Failure, Measurement
from msbench.spec import Case
from msbench.statistics import converged

MAX_ROUNDS = 200

_MIN_ROUNDS = 10  # of calls that are fast
_MIN_ROUNDS_OF_FEW_CASES = 25  # in each of several sessions: starting its processes takes longer than these
_FEW_CASES = 3
_LONG_ROUND_NS = 5e7
_HOT_SAMPLES = 3
_FLOOR_REPETITIONS = PLACES
_FLOOR_ROUNDS = range(0, _MIN_ROUNDS, 2)  # that have floors, which take as long as a short call's batch
_MOST_SHIFT_NS = 400.0  # 323 were the most in 5885 groups on an H200, 2026-11-20 to 22
_ROUNDS_A_READING = 8  # of the GPU's clocks, which takes some milliseconds


class Comparison(Protocol):
    """One batch of each of some versions, on the same inputs, of which one repetition is compared. It takes the turns that it needs."""

    def batch(self, track: Track) -> tuple[tuple[float, ...], Failure | None]:
        """Its times, and what is wrong with what the repetition wrote."""

    def hot(self, track: Track) -> Failure | None:
        """Calls in a row, behind such a batch: what is wrong with what the last one wrote."""


class Verify(Protocol):
    """Draws what is compared."""

    def timed(self, turn: int) -> Comparison:
        """On inputs like those that are timed: with each ``turn`` on the next set of them."""

    def with_outliers(self) -> Comparison:
        """On the first set of inputs, with outliers among them."""


@dataclass(frozen=True)
class Settings:
    """How a group is measured.

    ``budget_s`` and ``half_width``: see ``Enough``. ``sittings``: which share the budget. ``cases``: of the task. ``suspicious``: of each version, whether its
    timed repetitions are compared. ``hot``: see ``protocols.Plan``. ``on_device``: outputs are compared there, which others wait for, so in fewer rounds.
    """

    group: str
    seed: int
    budget_s: float
    half_width: float
    sittings: int = 1
    cases: int = 1
    suspicious: Sequence[bool] | None = None  # all are
    hot: bool = True
    on_device: bool = False


@dataclass(frozen=True)
class Enough:
    """When rounds may stop: ratios known well enough after ``min_rounds`` fast rounds, or ``budget_s`` spent.

    Well enough is to ±``half_width`` near 1, see ``statistics.tolerance``.

    ``floor_rounds`` have floors besides: in the first group of its versions' processes.
    """

    budget_s: float
    half_width: float
    min_rounds: int
    floor_rounds: range

    @classmethod
    def of(cls, budget_s: float, half_width: float, sittings: int, cases: int) -> Enough:
        """What is enough in each of this many sessions of so many cases, which share ``budget_s``."""
        if sittings == 1:
            return cls(budget_s, half_width, _MIN_ROUNDS, _FLOOR_ROUNDS)
        rounds = _MIN_ROUNDS_OF_FEW_CASES if cases <= _FEW_CASES else _MIN_ROUNDS
        return cls(budget_s / sittings, half_width, rounds, range(rounds))


def measure_group(
    subjects: Sequence[Subject],
    job: Job,
    case: Case,
    settings: Settings,
    verify: Verify,
    telemetry: Telemetry,
    clock: Callable[[], float] = time.monotonic,
    turn: Turn = ONLY_TURN,
) -> list[Measurement]:
    """Measure versions on one case; one measurement each, in their order.

    Outputs are compared in unpredictable rounds, and at the end.

    Stops when the ratio of each to the fastest is known well enough (see ``Enough``), or after ``budget_s`` seconds of
    rounds, which then are labelled noisy; a case that is measured in several ``sittings`` has its part of that in each.
    Under clocks that were held down or that drifted all rounds are measured once more; what disturbs them again is kept
    with the samples. A version that fails is left out from there on. Its ``turn`` is taken alone, and left so.
    """
    suspicious = settings.suspicious or [True] * len(subjects)
    tracks = [Track(*pair, len(job.sets)) for pair in zip(subjects, suspicious, strict=True)]
    turn.take(alone=True)
    for track in tracks:
        _guarded(track, partial(_warm_up, job=job, case=case))
    alive = [track for track in tracks if track.alive]
    for track in alive:
        fastest_ns = _fastest(alive).estimate_ns
        track.far_behind = track.estimate_ns > FAR_BEHIND * fastest_ns
        track.few_rounds = track.far_behind or (not track.suspicious and track.estimate_ns > BEHIND * fastest_ns)
    sittings = number_of([track.estimate_ns for track in alive], settings.sittings)
    enough = Enough.of(settings.budget_s, settings.half_width, sittings, settings.cases)
    if all(track.subject.floors for track in alive):
        enough = replace(enough, floor_rounds=range(0))
    rng = random.Random(
        f"{settings.seed} {settings.group}"
    )  # other turns in each sitting: what goes with a turn is not to go with a version

    def looks() -> _Looks | None:
        least = _least_rounds(tracks, enough)
        return _Looks(verify, least if settings.on_device else -(-least // 2)) if any(suspicious) else None

    _interleave(tracks, rng, enough, telemetry, clock, turn, looks())
    if telemetry.conditions().unsteady:
        telemetry.forget()
        _interleave(tracks, rng, enough, telemetry, clock, turn, looks())
    turn.take(alone=True)
    for track in tracks:
        _guarded(track, _hot if settings.hot else _not_hot)
    if any(suspicious):
        last = verify.with_outliers()
        for track in filter(lambda track: track.suspicious, tracks):
            _guarded(track, partial(_look_at_the_end, comparison=last))
    conditions = telemetry.conditions()
    shifts = _shifts(tracks)
    return [
        Measurement(
            case=case,
            group=settings.group,
            seed=settings.seed,
            samples_ns=tuple(_shifted(samples, shift) for samples in track.rounds),
            hot_ns=track.hot_ns,
            host_ns=track.subject.host_ns,
            floor_ns=track.floor_ns(),
            noisy=track.noisy,
            sm_clock_mhz=conditions.sm_clock_mhz,
            temperature_c=conditions.temperature_c,
            power_w=conditions.power_w,
            throttle=conditions.throttle,
            hot_note=track.hot_note,
            failure=track.failure and _named(track.failure, case),
        )
        for track, shift in zip(tracks, shifts, strict=True)
    ]


def _shifts(tracks: Sequence[Track]) -> list[float]:
    """What is added to each version's times so that launches cost the same in all processes, in ns.

    A launch takes longer in one process than in another, for as long as it lives; as many empty kernels in a row as a call
    has operations show by how much. The group keeps its mean. No more than ``_MOST_SHIFT_NS`` a launch: who makes empty
    kernels slow in its process is not to gain by it.
    """
    shifts = []
    for track in tracks:
        launches = max(1, track.nodes)
        floor = track.floor_ns(launches)
        known = [other for other in (one.floor_ns(launches) for one in tracks) if other is not None]
        most = _MOST_SHIFT_NS * launches
        shifts.append(0.0 if floor is None else min(most, max(-most, fmean(known) - floor)))
    return shifts


def _shifted(samples: Sequence[float], shift: float) -> tuple[float, ...]:
    """Whole nanoseconds: events tick in steps of 32."""
    return tuple(float(round(sample + shift)) for sample in samples)


def _warm_up(track: Track, job: Job, case: Case) -> None:
    """Untimed calls: every kernel is loaded, every library set up, on each input set; and how long a call takes."""
    subject = track.subject
    track.nodes = max(1, subject.prepare(job, case))
    first = subject.cold(0, 1, held=False)
    if first[0] > OWN_BATCH_NS:
        track.estimate_ns = subject.cold(1, 1, held=False)[0]  # the first may have loaded a library
        if track.estimate_ns > OWN_BATCH_NS:
            return
    track.estimate_ns = min(subject.cold(0, 2 * len(job.sets), held=False))
    outputs = len(job.output_bytes) + OTHER_COMMANDS
    track.repetitions = repetitions_for(track.estimate_ns, track.nodes, outputs)
    track.estimate_ns = min(track.batch(min(track.repetitions, 8)))
    track.repetitions = min(max(1, track.most), repetitions_for(track.estimate_ns, track.nodes, outputs))


class _Looks:
    """What is compared: one round in each part of the rounds, which is drawn.

    The ``first`` part is the fewest rounds that there can be, or half of them; each later one is as long as all before it. So
    a version that skips work in a share of a part's calls is found with about that probability.
    """

    def __init__(self, verify: Verify, first: int) -> None:
        self._verify = verify
        self._turn = 0  # the first set's, which is compared in the end: so each is, however few rounds are
        self._begin(0, max(1, first))

    def _begin(self, rounds: int, length: int) -> None:
        """A part of so many rounds, after so many."""
        self._before, self._end = rounds, rounds + length
        self._due: int | None = rounds + secrets.randbelow(length)

    def take(self, rounds: int) -> Comparison | None:
        """For the round after so many: if it is one that is compared."""
        if rounds == self._end:
            self._begin(rounds, rounds)
        return self._look() if rounds == self._due else None

    def finish(self, rounds: int) -> Comparison | None:
        """After the last round: unless one of the part that it belongs to was compared."""
        return self._look() if self._due is not None and rounds > self._before else None

    def _look(self) -> Comparison:
        self._due = None
        self._turn += 1
        return self._verify.timed(self._turn)


def _look_at_the_end(track: Track, comparison: Comparison) -> None:
    track.failure = comparison.batch(track)[1]
    if track.alive and track.hot_ns is not None:
        track.failure = comparison.hot(track)


def _interleave(
    tracks: Sequence[Track],
    rng: random.Random,
    enough: Enough,
    telemetry: Telemetry,
    clock: Callable[[], float],
    turn: Turn,
    looks: _Looks | None,
) -> None:
    turn.take(alone=True)
    for track in tracks:
        track.rounds.clear()
        if enough.floor_rounds:
            track.subject.floors.clear()
    _keep_clocks_up(tracks)
    started, rounds = clock(), 0
    spent = {id(track): 0.0 for track in tracks}
    for number in range(MAX_ROUNDS):
        due = [t for t in tracks if t.alive and not _had_its_share(t, spent[id(t)], tracks, enough.budget_s)]
        if not due:
            break
        rng.shuffle(due)
        before = clock()
        comparison = looks.take(rounds) if looks else None
        for track in due:
            if comparison is None:
                before = clock()
            _guarded(track, partial(_round, floor_rounds=enough.floor_rounds, comparison=comparison, turn=turn))
            if comparison is None:
                spent[id(track)] += clock() - before
        if comparison is not None:
            turn.take(alone=True)
            started += clock() - before
        if number % _ROUNDS_A_READING == 0:
            telemetry.sample()
        rounds += 1
        alive = [t for t in tracks if t.alive]
        over = clock() - started > enough.budget_s
        if _enough_rounds(alive, enough, over) and (number < 12 or number % 4 == 0 or over):
            _judge(alive, enough.half_width)
            if over or not any(t.noisy for t in alive):
                break
    else:
        _judge([t for t in tracks if t.alive], enough.half_width)
    telemetry.sample()
    if looks and (comparison := looks.finish(rounds)):
        for track in filter(lambda track: track.suspicious, tracks):
            _guarded(track, partial(_look_at_the_end, comparison=comparison))


def _keep_clocks_up(tracks: Sequence[Track]) -> None:
    """One version for all; what follows goes on with it."""
    for track in [track for track in tracks if track.alive][:1]:
        _guarded(track, lambda track: track.subject.busy(BUSY_S))


def _round(track: Track, floor_rounds: range, comparison: Comparison | None, turn: Turn) -> None:
    if comparison is None or not track.suspicious:
        turn.take(alone=True)
        batch = track.batch()
    else:
        batch, track.failure = comparison.batch(track)
    if len(track.rounds) in floor_rounds:
        turn.take(alone=True)
        track.time_floors(_FLOOR_REPETITIONS)
    track.rounds.append(batch)


def _fastest(tracks: Sequence[Track]) -> Track:
    return min(tracks, key=lambda t: t.estimate_ns)


def _had_its_share(track: Track, spent_s: float, tracks: Sequence[Track], budget_s: float) -> bool:
    """Whether a slow version may stop: it has its rounds and its part of the budget; the fastest goes on to the end."""
    alive = [t for t in tracks if t.alive]
    if len(alive) < 2 or track is _fastest(alive):
        return False
    if track.few_rounds and len(track.rounds) >= track.min_rounds:
        return True
    return len(track.rounds) >= track.min_rounds and spent_s > budget_s / len(alive)


def _enough_rounds(alive: Sequence[Track], enough: Enough, over: bool) -> bool:
    long = over or _long(alive)
    return all(len(t.rounds) >= (t.min_rounds if long or t.few_rounds else enough.min_rounds) for t in alive)


def _least_rounds(tracks: Sequence[Track], enough: Enough) -> int:
    """How many rounds there will be at least, unless the budget is spent before."""
    alive = [track for track in tracks if track.alive]
    return max((t.min_rounds for t in alive), default=1) if _long(alive) else enough.min_rounds


def _long(alive: Sequence[Track]) -> bool:
    """Whether a round takes so long that few must do."""
    return sum(t.repetitions * (t.estimate_ns + OVERHEAD_NS) for t in alive) > _LONG_ROUND_NS


def _judge(alive: Sequence[Track], half_width: float) -> None:
    """Set who is noisy: whose ratio to the fastest is not known well enough; of one alone, its own time."""
    if not alive:
        return
    fastest = _fastest(alive)
    others = [t for t in alive if t is not fastest]
    for track in others:
        track.noisy = not converged(track.rounds, fastest.rounds, half_width)
    if others:
        fastest.noisy = all(t.noisy for t in others)
    else:
        fastest.noisy = not converged(fastest.rounds, [(fastest.estimate_ns,)] * len(fastest.rounds), half_width)


def _hot(track: Track) -> None:
    """Calls in a row with nothing in between: inputs and code are in the caches where they fit."""
    if track.estimate_ns > SLOW_NS:
        track.hot_note = "Not timed hot: a call takes longer than 0.1 s."
    elif track.far_behind:
        track.hot_note = f"Not timed hot: a call takes more than {FAR_BEHIND:g} times as long as the fastest version's."
    elif not track.held:
        track.hot_note = f"Not timed hot: a call has {track.nodes} operations, more than a held stream takes."
    else:
        plays = track.hot_plays
        if samples := track.subject.hot(plays, _HOT_SAMPLES):
            track.hot_ns = median(samples) / plays
        else:
            track.hot_note = "Not timed hot: its calls take longer to enqueue than a stream is held."


def _not_hot(track: Track) -> None:
    track.hot_note = "Not timed hot: this measurement compares cold calls only."


def _guarded(track: Track, step: Callable[[Track], None]) -> None:
    """Do a step of one version; what its worker suffers is that version's failure."""
    if not track.alive:
        return
    try:
        step(track)
    except WorkerError as error:
        why = " while it was timed" if isinstance(error, WorkerTimeout) else ""
        track.failure = Failure(fault_of(error), f"{str(error).rstrip('.')}{why}.", error.log)


def _named(failure: Failure, case: Case) -> Failure:
    return Failure(failure.fault, f"Case {case.id}: {failure.message}", failure.log)
