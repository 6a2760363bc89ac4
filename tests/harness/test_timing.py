"""How versions are timed against each other: with subjects that make up their times, and once with the real runner."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest

from msbench.errors import LaunchFailed, WorkerCrashed, WorkerTimeout
from msbench.harness import timing
from msbench.harness.gpu_runner import Batch, Job
from msbench.harness.telemetry import Reading, Telemetry
from msbench.harness.track import Again, repetitions_for
from msbench.model import Failure, Fault, Measurement
from msbench.statistics import bootstrap_ratio
from tests.harness.fake_gpu import scale

JOB = Job(sets=({"handle": "", "offsets": []},) * 2, output_bytes=(4,), scalars=(), dims=(), poison=True)


STEADY = Reading(1980.0, 40.0, 300.0, 0)
CAPPED = Reading(1755.0, 70.0, 700.0, 0x04)
CAPPED_NOTE = "clocks were held down by the power cap for 100% of the time"


class Clock:
    """Moves by what is timed."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Made:
    """A subject that takes ``time_ns`` with some noise; ``fails`` maps a command to what it raises."""

    def __init__(
        self,
        clock: Clock,
        time_ns: float,
        noise: float = 0.01,
        nodes: int = 1,
        fails: dict[str, Exception] | None = None,
        log: list[Made] | None = None,
    ) -> None:
        self.clock, self.time_ns, self.noise, self.nodes = clock, time_ns, noise, nodes
        self.fails = fails or {}
        self.log = log if log is not None else []
        self.rng = random.Random(time_ns)
        self.alive = True
        self.batches: list[tuple[int, int, bool]] = []
        self.places: list[int] = []
        self.launch_ns = 2000.0
        self.first_ns = 0.0  # what the first of a row of launches takes besides
        self.graph = 0
        self.remembers = False

    def _run(self, command: str) -> None:
        if command in self.fails:
            raise self.fails[command]

    def prepare(self, job: Job) -> None:
        self._run("prepare")

    def keeps_stream(self, wait_s: float) -> None:
        self._run("keeps_stream")

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
        self._run("cold")
        self.places.append(place or 0)
        self.batches.append((first_set, repetitions, held))
        self.log.append(self)
        samples = tuple(self.time_ns * self.rng.lognormvariate(0, self.noise) for _ in range(repetitions))
        self.clock.now += sum(samples) / 1e9
        return Batch(samples, (1500.0,) * repetitions)

    def floor(self, repetitions: int, launches: int = 1) -> Batch:
        self._run("floor")
        return Batch((self.first_ns + self.launch_ns * launches,) * repetitions, (1000.0,) * repetitions)

    def capture(self, copies: int) -> int:
        self._run("capture")
        self.graph = copies
        return copies * self.nodes

    def replay(self, replays: int, samples: int, *, limit_s: float = 30.0) -> tuple[float, ...]:
        hot_ns = self.time_ns / (20 if self.remembers else 2)
        return (hot_ns * replays * self.graph,) * samples

    def fresh_ns(self, copies: int, replays: int, samples: int) -> float | None:
        return self.time_ns / 2

    def busy(self, seconds: float) -> None:
        self._run("busy")


class Nobody:
    """Looks at nothing that versions write."""

    def while_timed(self, versions: Sequence[Again], turn: int) -> Sequence[Failure | None]:
        return [None] * len(versions)

    def at_the_end(self, versions: Sequence[Again]) -> Sequence[Failure | None]:
        return [None] * len(versions)


def measure(
    subjects: Sequence[Made],
    clock: Clock,
    budget_s: float = 1.0,
    verify: timing.Verify | None = None,
    telemetry: Telemetry | None = None,
    sittings: int = 1,
    suspicious: bool = True,
) -> list[Measurement]:
    return timing.measure_group(
        subjects,
        JOB,
        scale(),
        group="g",
        seed=3,
        budget_s=budget_s,
        half_width=0.01,
        verify=verify or Nobody(),
        telemetry=telemetry or Telemetry(lambda: STEADY),
        sittings=sittings,
        suspicious=suspicious,
        clock=clock,
    )


def test_the_ratio_is_found_and_every_sample_kept() -> None:
    clock = Clock()
    fast, slow = Made(clock, 10_000.0), Made(clock, 25_000.0)
    first, second = measure([slow, fast], clock)
    estimate, low, high = bootstrap_ratio(first.samples_ns, second.samples_ns)
    assert low <= 2.5 * 1.01
    assert high >= 2.5 * 0.99
    assert estimate == pytest.approx(2.5, rel=0.01)
    assert not first.noisy
    assert not second.noisy
    assert len(first.samples_ns) == len(second.samples_ns) >= 10
    assert first.hot_ns == pytest.approx(12_500.0)
    assert first.host_ns == 1500.0
    assert first.floor_ns == second.floor_ns == 2000.0
    assert first.group == second.group == "g"
    assert (first.sm_clock_mhz, first.throttle) == (1980.0, "")


class Forger(Made):
    """Tells a tenth of what its calls take."""

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
        told = super().cold(first_set, repetitions, held=held, limit_s=limit_s)
        return Batch(tuple(sample / 10 for sample in told.samples_ns), told.host_ns)


def test_times_far_below_the_referees_clock_are_impossible() -> None:
    clock = Clock()
    forged, honest = measure([Forger(clock, 1e7), Made(clock, 1e7)], clock)
    assert forged.failure is not None
    assert forged.failure.fault is Fault.IMPOSSIBLE
    assert "by the referee's own clock" in forged.failure.message
    assert honest.failure is None


@pytest.mark.parametrize(("capped", "times", "note"), [(0, 1, ""), (3, 2, ""), (1000, 2, CAPPED_NOTE)])
def test_unsteady_clocks_are_measured_once_more_and_then_said(capped: int, times: int, note: str) -> None:
    readings = itertools.chain([CAPPED] * capped, itertools.repeat(STEADY))
    clock = Clock()
    subject = Made(clock, 10_000.0)
    (found,) = measure([subject], clock, telemetry=Telemetry(lambda: next(readings)))
    assert found.throttle == note
    timed = [batch for batch in subject.batches if batch[1] == subject.batches[-1][1]]
    assert len(found.samples_ns) == 10
    assert len(timed) == pytest.approx(10 * times, abs=1)


def test_all_versions_work_at_the_same_places_in_a_round() -> None:
    clock = Clock()
    subjects = [Made(clock, 10_000.0) for _ in range(2)]
    measure(subjects, clock)
    first, second = ([place for place in subject.places if place] for subject in subjects)
    assert first == second
    assert len(set(first)) >= 10


@pytest.mark.parametrize("nodes", [1, 3, 16, 64])
def test_what_launches_cost_in_one_process_is_taken_off(nodes: int) -> None:
    """Two copies of a call of so many kernels, each of which takes 100 ns longer in one process."""
    clock = Clock()
    slow, fast = (Made(clock, (1000.0 + extra) * nodes, nodes=nodes, noise=1e-5) for extra in (100, 0))
    slow.launch_ns, fast.launch_ns = 2100.0, 2000.0
    found = measure([slow, fast], clock)
    ratio, _, _ = bootstrap_ratio(*(one.samples_ns for one in found))
    assert ratio == pytest.approx(1.0, abs=2e-3)


def test_who_makes_empty_kernels_slow_gains_little() -> None:
    clock = Clock()
    slows, honest = (Made(clock, 10_000.0, noise=1e-5) for _ in range(2))
    slows.launch_ns = 8000.0
    slowed, plain = measure([slows, honest], clock)
    assert median(s for row in slowed.samples_ns for s in row) >= 10_000.0 - 401
    assert median(s for row in plain.samples_ns for s in row) <= 10_000.0 + 401


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_the_first_launch_may_cost_other_than_those_behind_it(nodes: int) -> None:
    """Beside a version with another number of launches, whose process is one of those in which they cost less."""
    clock = Clock()
    slow, fast = (Made(clock, 3000.0 + extra, nodes=nodes, noise=1e-5) for extra in (100 + 20 * nodes, 0))
    other = Made(clock, 9000.0, nodes=4, noise=1e-5)
    slow.launch_ns, slow.first_ns = 2020.0, 100.0
    found = measure([slow, other, fast], clock)
    ratio, _, _ = bootstrap_ratio(found[0].samples_ns, found[2].samples_ns)
    assert ratio == pytest.approx(1.0, abs=2e-3)


def test_turns_are_shuffled() -> None:
    clock, log = Clock(), list[Made]()
    subjects = [Made(clock, 10_000.0, noise=0.2, log=log) for _ in range(3)]
    measure(subjects, clock)
    turns = [subjects.index(m) for m in log]
    rounds = [tuple(turns[i : i + 3]) for i in range(len(turns) - 30, len(turns), 3)]
    assert len(set(rounds)) > 1


def test_a_sitting_of_several_has_more_rounds() -> None:
    lengths = []
    for sittings in (1, 4):
        clock = Clock()
        found = measure([Made(clock, 10_000.0, noise=1e-4) for _ in range(2)], clock, sittings=sittings)
        lengths.append(len(found[0].samples_ns))
    assert lengths == [10, 25]


def test_batches_visit_every_place_of_a_launch_equally_often() -> None:
    """runner.cu adds a launch after every fourth repetition; whatever else is launched, the places modulo four balance."""
    for estimate_ns in (2e3, 4e3, 2e4, 1e5, 2e5):
        count = repetitions_for(estimate_ns, 5e3, 1, 1)
        for launches in range(1, 9):
            places = [(i * launches + i // 4) % 4 for i in range(count)]
            assert [places.count(place) for place in range(4)] == [count // 4] * 4
    assert repetitions_for(4e5, 5e3, 1, 1) == 4  # long calls do without: a launch is nothing to them


def test_noise_that_the_budget_cannot_beat_is_labelled() -> None:
    clock = Clock()
    noisy, steady = measure([Made(clock, 4e6, noise=0.5), Made(clock, 3e6, noise=0.5)], clock, budget_s=0.2)
    assert noisy.noisy
    assert steady.noisy
    assert clock.now < 1.0


def test_one_alone_is_judged_by_its_own_time() -> None:
    clock = Clock()
    assert not measure([Made(clock, 10_000.0)], clock)[0].noisy
    assert measure([Made(clock, 4e6, noise=0.6)], clock, budget_s=0.2)[0].noisy


def test_a_very_slow_version_runs_few_times_and_the_fast_ones_go_on() -> None:
    clock = Clock()
    slow, fast, other = Made(clock, 5e8), Made(clock, 1e6, noise=0.3), Made(clock, 1.1e6, noise=0.3)
    measured = measure([slow, fast, other], clock, budget_s=1.0)
    assert len(measured[0].samples_ns) == 3
    assert all(len(round_) == 1 for round_ in measured[0].samples_ns)
    assert measured[0].hot_ns is None
    assert "longer than 0.1 s" in measured[0].hot_note
    assert sum(n for _, n, _ in slow.batches) <= 6
    assert measured[1].hot_ns is not None


@pytest.mark.parametrize("nodes", [1, 2, 17, 300, 5000])
def test_batches_fit_into_the_queue_of_a_held_stream(nodes: int) -> None:
    clock = Clock()
    subject = Made(clock, 3000.0, nodes=nodes)
    measure([subject], clock, budget_s=0.05)
    for _, repetitions, held in subject.batches:
        assert not held or repetitions * (nodes + 4) < 1000
    assert any(held for _, _, held in subject.batches) == (nodes < 600)


@pytest.mark.parametrize(("host_ns", "most"), [(1e3, 120), (1e6, 100), (5e6, 20), (1e9, 1)])
def test_a_batch_is_enqueued_well_before_the_hold_ends(host_ns: float, most: int) -> None:
    assert repetitions_for(1.0, host_ns, nodes=1, outputs=1) <= most


def test_input_sets_rotate() -> None:
    clock = Clock()
    subject = Made(clock, 10_000.0)
    measure([subject], clock)
    held = [(first, n) for first, n, held in subject.batches if held]
    assert all(b[0] == a[0] + a[1] for a, b in itertools.pairwise(held))


@pytest.mark.parametrize("command", ["prepare", "keeps_stream", "cold", "busy", "floor"])
def test_a_failure_is_that_versions_alone(command: str) -> None:
    clock = Clock()
    bad = Made(clock, 5_000.0, fails={command: WorkerCrashed("The worker died of SIGSEGV.", "crash")})
    failed, fine = measure([bad, Made(clock, 10_000.0)], clock)
    assert failed.failure is not None
    assert failed.failure.fault is Fault.CRASH
    assert failed.failure.message == "Case n=1000: The worker died of SIGSEGV."
    assert fine.failure is None
    assert fine.floor_ns == 2000.0
    assert len(fine.samples_ns) >= 10


def test_who_is_not_suspected_is_not_tried() -> None:
    clock = Clock()
    baseline = Made(clock, 5_000.0, fails={"keeps_stream": WorkerCrashed("The worker died of SIGSEGV.", "crash")})
    (measured,) = measure([baseline], clock, suspicious=False)
    assert measured.failure is None
    assert len(measured.samples_ns) >= 10


def test_a_hang_while_timing_is_a_timeout() -> None:
    clock = Clock()
    error = WorkerTimeout("The worker did not finish 'cold' within 30 s and was killed.")
    failure = measure([Made(clock, 5_000.0, fails={"cold": error})], clock)[0].failure
    assert failure is not None
    assert failure.fault is Fault.TIMEOUT


def test_a_version_that_is_fast_on_the_same_inputs_alone_is_refused() -> None:
    clock = Clock()
    honest, tiny, keeper = Made(clock, 100_000.0), Made(clock, 3_000.0), Made(clock, 100_000.0)
    keeper.remembers = True
    passed, small, refused = measure([honest, tiny, keeper], clock)
    assert passed.failure is None and passed.hot_ns == pytest.approx(50_000.0)
    assert small.failure is None and small.hot_ns == pytest.approx(1500.0)
    assert refused.failure is not None and refused.failure.fault is Fault.FORBIDDEN
    assert (
        "5.0 µs after one on the same inputs, and 50.0 µs where nothing is left of that one: it keeps results"
        in refused.failure.message
    )
    assert measure([keeper], clock, suspicious=False)[0].failure is None


def test_what_may_not_be_captured_fails() -> None:
    clock = Clock()
    early = LaunchFailed("the call's first kernel may start before", "forbidden")
    measured = measure([Made(clock, 10_000.0, fails={"capture": early})], clock)[0]
    assert measured.failure is not None and measured.failure.fault is Fault.FORBIDDEN


def test_a_call_that_cannot_be_captured_has_no_hot_time_and_a_reason() -> None:
    clock = Clock()
    error = LaunchFailed("the launcher returned cudaErrorStreamCaptureUnsupported", "launch")
    measured = measure([Made(clock, 10_000.0, fails={"capture": error})], clock)[0]
    assert measured.failure is None
    assert measured.hot_ns is None
    assert "cudaErrorStreamCaptureUnsupported" in measured.hot_note
    assert len(measured.samples_ns) >= 10


def test_wrong_results_of_the_timed_run_fail() -> None:
    clock = Clock()
    wrong = Failure(Fault.MISMATCH, "while it was timed, y[0] is 1.")
    for moment in ("while_timed", "at_the_end"):
        verify = Nobody()
        setattr(verify, moment, lambda versions, turn=0: [None, wrong][: len(versions)])
        measured = measure([Made(clock, 1e4), Made(clock, 2e4)], clock, verify=verify)
        assert measured[0].failure is None
        assert measured[1].failure == Failure(Fault.MISMATCH, "Case n=1000: while it was timed, y[0] is 1.")


def test_nobody_knows_after_which_round_somebody_looks() -> None:
    """Nor how many calls a batch has that is looked at: any number up to that of those that are timed."""
    moments, lengths = set(), set()

    class Looks(Nobody):
        def while_timed(self, versions: Sequence[Again], turn: int) -> Sequence[Failure | None]:
            moments.add(sum(batch[1:] == (16, True) for batch in subject.batches))
            number = len(lengths) % 2
            first, count = versions[0].cold(number, 7, secrets.randbits(64), last=False)
            assert subject.batches[-1][1] == count
            assert subject.batches[-1][0] % 2 == first
            assert (first + count - 1) % 2 == number
            lengths.add(count)
            return super().while_timed(versions, turn)

    for _ in range(60):
        subject = Made(clock := Clock(), 10_000.0)
        (found,) = measure([subject], clock, verify=Looks())
        assert found.failure is None
    assert len(moments) >= 8
    assert len(lengths) >= 8
    assert max(lengths) > 8


class Rounds(Nobody):
    """Notes after how many rounds there is a look, and on which inputs."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, int]] = []
        self.subject: Made | None = None

    def while_timed(self, versions: Sequence[Again], turn: int) -> Sequence[Failure | None]:
        assert self.subject is not None
        self.looks.append((sum(batch[1:] == (16, True) for batch in self.subject.batches), turn))
        return super().while_timed(versions, turn)


def test_each_part_of_the_rounds_is_looked_at_and_each_set_of_inputs() -> None:
    """Parts of 5, 5, 10, 20, 40 … rounds: whoever is let off after one look meets the next."""
    verify, clock = Rounds(), Clock()
    verify.subject = Made(clock, 10_000.0, noise=2.0)
    (found,) = measure([verify.subject], clock, verify=verify, budget_s=60.0)
    ends = [0, 5, 10, 20, 40, 80, 160, 320]
    parts = [(first, last) for first, last in pairwise(ends) if first < len(found.samples_ns)]
    assert len(parts) > 4
    assert [sum(first < rounds <= last for rounds, _ in verify.looks) for first, last in parts] == [1] * len(parts)
    turns = [turn for _, turn in verify.looks]
    assert turns == list(range(turns[0], turns[0] + len(parts)))


def test_rounds_that_are_repeated_for_their_clocks_are_looked_at_too() -> None:
    verify, clock = Rounds(), Clock()
    verify.subject = Made(clock, 10_000.0)
    measure([verify.subject], clock, verify=verify, telemetry=Telemetry(lambda: CAPPED))
    assert len(verify.looks) == 4


def test_batches_of_versions_that_are_alike_are_looked_at_at_the_same_place() -> None:
    """So that what must come out is worked out once for all of them."""
    found = []

    class Looks(Nobody):
        def while_timed(self, versions: Sequence[Again], turn: int) -> Sequence[Failure | None]:
            length = secrets.randbits(64)
            found.append({version.cold(0, 7, length, last=False) for version in versions})
            return super().while_timed(versions, turn)

        def at_the_end(self, versions: Sequence[Again]) -> Sequence[Failure | None]:
            return self.while_timed(versions, 0)

    clock = Clock()
    measure([Made(clock, 10_000.0 + number) for number in range(4)], clock, verify=Looks())
    assert len(found) >= 2
    assert all(len(batches) == 1 for batches in found)


def test_cold_calls_far_below_hot_ones_are_impossible() -> None:
    class Sparing(Made):
        def replay(self, replays: int, samples: int, *, limit_s: float = 30.0) -> tuple[float, ...]:
            return (4 * self.time_ns * replays * self.graph,) * samples

        def fresh_ns(self, copies: int, replays: int, samples: int) -> float | None:
            return 4 * self.time_ns

    clock = Clock()
    refused, honest = measure([Sparing(clock, 10_000.0), Made(clock, 10_000.0)], clock)
    assert refused.failure is not None and refused.failure.fault is Fault.IMPOSSIBLE
    assert "10.0 µs where nothing is cached, and 40.0 µs where everything is" in refused.failure.message
    assert honest.failure is None


# ------------------------------------------------------------------ with the real runner, on the fake runtime
