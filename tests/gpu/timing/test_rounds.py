"""How versions are timed against each other: with subjects that make up their times, and once with the real runner."""

from __future__ import annotations

import itertools
import random
import secrets
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import pytest

from msbench.errors import WorkerCrashed, WorkerTimeout
from msbench.gpu.job import Job
from msbench.gpu.telemetry import Reading, Telemetry
from msbench.gpu.timing import rounds as timing
from msbench.gpu.timing.track import Compared, Track, repetitions_for
from msbench.model import Failure, Fault, Measurement
from msbench.spec import Case
from msbench.statistics import bootstrap_ratio
from tests.gpu.fake_gpu import scale

JOB = Job(
    sets=({"handle": "", "offsets": []},) * 2, input_bytes=(), output_bytes=(4,), scalars=(), dims=(), poison=True
)


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

    host_ns = 1500.0

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
        self.kept: list[int] = []
        self.launch_ns = 2000.0
        self.floors: dict[int, list[float]] = {}
        self.first_ns = 0.0  # what the first of a row of launches takes besides
        self.most_held = 1000  # repetitions that the host enqueues while a stream is held

    def _run(self, command: str) -> None:
        if command in self.fails:
            raise self.fails[command]

    def prepare(self, job: Job, case: Case) -> int:
        self._run("prepare")
        return self.nodes

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
        self._run("cold")
        self.batches.append((first_set, repetitions, held))
        self.kept.append(kept)
        self.log.append(self)
        if held and repetitions > self.most_held:
            return ()
        samples = tuple(self.time_ns * self.rng.lognormvariate(0, self.noise) for _ in range(repetitions))
        self.clock.now += sum(samples) / 1e9
        return samples

    def floor(self, repetitions: int, launches: int = 1) -> tuple[float, ...]:
        self._run("floor")
        return (self.first_ns + self.launch_ns * launches,) * repetitions

    def hot(self, plays: int, samples: int, *, warm: bool = True, limit_s: float = 30.0) -> tuple[float, ...]:
        assert plays * self.nodes < 1000
        if not self.most_held:
            return ()
        return (plays * self.time_ns / 2,) * samples

    def busy(self, seconds: float) -> None:
        self._run("busy")


class Look:
    """One batch, of which nothing is compared; ``failure`` is what is said of the versions that it names."""

    def __init__(self, which: int = 0, failure: Failure | None = None, wrong: object = None) -> None:
        self.which, self.failure, self.wrong = which, failure, wrong
        self.told: list[Compared] = []

    def batch(self, track: Track) -> tuple[tuple[float, ...], Failure | None]:
        samples, told = track.compared(0, 7, self.which)
        self.told.append(told)
        return samples, self.failure if track.subject is self.wrong else None

    def hot(self, track: Track) -> Failure | None:
        return None


class Nobody:
    """Looks at nothing that versions write."""

    def __init__(self) -> None:
        self.turns: list[int] = []

    def timed(self, turn: int) -> timing.Comparison:
        self.turns.append(turn)
        return Look()

    def with_outliers(self) -> timing.Comparison:
        return Look()


def measure(
    subjects: Sequence[Made],
    clock: Clock,
    budget_s: float = 1.0,
    verify: timing.Verify | None = None,
    telemetry: Telemetry | None = None,
    sittings: int = 1,
    cases: int = 1,
    suspicious: Sequence[bool] | None = None,
    hot: bool = True,
    on_device: bool = False,
) -> list[Measurement]:
    return timing.measure_group(
        subjects,
        JOB,
        scale(),
        timing.Settings("g", 3, budget_s, 0.01, sittings, cases, suspicious, hot, on_device),
        verify or Nobody(),
        telemetry or Telemetry(lambda: STEADY),
        clock,
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


@pytest.mark.parametrize("nodes", [1, 3, 16, 64])
def test_what_launches_cost_in_one_process_is_taken_off(nodes: int) -> None:
    """Two copies of a call of so many kernels, each of which takes 100 ns longer in one process."""
    clock = Clock()
    slow, fast = (Made(clock, (1000.0 + extra) * nodes, nodes=nodes, noise=1e-5) for extra in (100, 0))
    slow.launch_ns, fast.launch_ns = 2100.0, 2000.0
    found = measure([slow, fast], clock)
    ratio, _, _ = bootstrap_ratio(*(one.samples_ns for one in found))
    assert ratio == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(("most", "repetitions", "held"), [(5, 4, True), (1, 1, True), (0, 1, False)])
def test_a_call_that_fills_the_streams_queue_is_timed_in_shorter_batches(
    most: int, repetitions: int, held: bool
) -> None:
    clock = Clock()
    subject = Made(clock, 10_000.0)
    subject.most_held = most
    (found,) = measure([subject], clock)
    assert found.failure is None
    assert subject.batches[-1][1:] == (repetitions, held)
    assert all(samples for samples in found.samples_ns)
    assert (found.hot_ns is None) is bool(found.hot_note) is (most == 0)


def test_floors_are_those_of_a_process_and_timed_in_its_first_group() -> None:
    clock = Clock()
    old, other = Made(clock, 10_000.0), Made(clock, 20_000.0)
    measure([old, other], clock)
    old.launch_ns = other.launch_ns = 9000.0  # nobody asks any more
    assert [one.floor_ns for one in measure([old, other], clock)] == [2000.0] * 2
    started_anew = Made(clock, 20_000.0)
    old.launch_ns = started_anew.launch_ns = 3000.0
    assert [one.floor_ns for one in measure([old, started_anew], clock)] == [3000.0] * 2  # in the same rounds
    assert {len(times) for times in (*old.floors.values(), *started_anew.floors.values())} == {5 * 16}


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


def test_sessions_of_few_cases_have_more_rounds_since_their_processes_take_longest() -> None:
    lengths = []
    for sittings, cases in ((1, 1), (4, 1), (4, 12)):
        clock = Clock()
        found = measure([Made(clock, 10_000.0, noise=1e-4) for _ in range(2)], clock, sittings=sittings, cases=cases)
        lengths.append(len(found[0].samples_ns))
    assert lengths == [10, 25, 10]


@pytest.mark.parametrize(("suspicious", "rounds"), [(False, 5), (True, 10)])
def test_a_slower_baseline_has_few_rounds_and_a_version_whose_outputs_are_compared_has_not(
    suspicious: bool, rounds: int
) -> None:
    clock = Clock()
    made = [Made(clock, us, noise=1e-4) for us in (10_000.0, 12_000.0, 50_000.0)]
    found = measure(made, clock, suspicious=[True, True, suspicious])
    assert [len(one.samples_ns) for one in found] == [10, 10, rounds]


def test_batches_visit_every_place_of_a_launch_equally_often() -> None:
    """runner.cu adds a launch after every fourth repetition; whatever else is launched, the places modulo four balance."""
    for estimate_ns in (2e3, 4e3, 2e4, 1e5, 1.9e5):
        count = repetitions_for(estimate_ns, 1, 1)
        for launches in range(1, 9):
            places = [(i * launches + i // 4) % 4 for i in range(count)]
            assert [places.count(place) for place in range(4)] == [count // 4] * 4
    assert repetitions_for(4e5, 1, 1) == 4  # long calls do without: a launch is nothing to them


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
    assert sum(n for _, n, _ in slow.batches) <= 7
    assert measured[1].hot_ns is not None


@pytest.mark.parametrize("nodes", [1, 2, 17, 300, 5000])
def test_batches_fit_into_the_queue_of_a_held_stream(nodes: int) -> None:
    clock = Clock()
    subject = Made(clock, 3000.0, nodes=nodes)
    measure([subject], clock, budget_s=0.05)
    for _, repetitions, held in subject.batches:
        assert not held or repetitions * (nodes + 4) < 1000
    assert any(held for _, _, held in subject.batches) == (nodes < 600)


def test_input_sets_rotate() -> None:
    clock = Clock()
    subject = Made(clock, 10_000.0)
    measure([subject], clock)
    held = [(first, n) for first, n, held in subject.batches if held]
    following = zip(itertools.pairwise(held), subject.kept[-len(held) + 1 :], strict=True)
    assert all(b[0] == a[0] + a[1] for (a, b), kept in following if kept < 0)


@pytest.mark.parametrize("command", ["prepare", "cold", "busy", "floor"])
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


def test_a_hang_while_timing_is_a_timeout() -> None:
    clock = Clock()
    error = WorkerTimeout("The worker did not finish 'cold' within 30 s and was killed.")
    failure = measure([Made(clock, 5_000.0, fails={"cold": error})], clock)[0].failure
    assert failure is not None
    assert failure.fault is Fault.TIMEOUT


def test_a_call_of_more_operations_than_a_stream_holds_has_no_hot_time() -> None:
    clock = Clock()
    (measured,) = measure([Made(clock, 10_000.0, nodes=5000)], clock)
    assert measured.hot_ns is None and "5000 operations" in measured.hot_note


@pytest.mark.parametrize("moment", ["timed", "with_outliers"])
def test_wrong_results_of_the_timed_run_fail(moment: str) -> None:
    clock = Clock()
    right, wrong = Made(clock, 1e4), Made(clock, 2e4)
    verify = Nobody()
    failure = Failure(Fault.MISMATCH, "while it was timed, y[0] is 1.")
    setattr(verify, moment, lambda turn=0: Look(failure=failure, wrong=wrong))
    measured = measure([right, wrong], clock, verify=verify)
    assert measured[0].failure is None
    assert measured[1].failure == Failure(Fault.MISMATCH, "Case n=1000: while it was timed, y[0] is 1.")


def test_nobody_knows_which_round_and_which_repetition_is_compared() -> None:
    rounds, kept = set(), set()
    for which in range(60):

        class Looks(Nobody):
            def timed(self, turn: int, which: int = which) -> timing.Comparison:
                return Look(which)

        subject = Made(clock := Clock(), 10_000.0)
        (found,) = measure([subject], clock, verify=Looks())
        assert found.failure is None
        full = [one for one, batch in zip(subject.kept, subject.batches, strict=True) if batch[1:] == (16, True)]
        rounds.add(next(number for number, one in enumerate(full) if one >= 0))
        kept.update(one for one in full if one >= 0)
        assert len(found.samples_ns) == 10  # of which the compared ones are part
    assert len(rounds) >= 4
    assert kept == set(range(0, 16, 2))  # of the input set whose turn it is


@pytest.mark.parametrize("on_device", [False, True])
def test_each_part_of_the_rounds_is_compared_and_each_set_of_inputs(on_device: bool) -> None:
    """Parts of 5, 5, 10, 20, 40 … rounds, or of 10, 10, 20 …: whoever is let off after one look meets the next."""
    verify, clock = Nobody(), Clock()
    subject = Made(clock, 10_000.0, noise=2.0)
    (found,) = measure([subject], clock, verify=verify, budget_s=60.0, on_device=on_device)
    full = [one for one, batch in zip(subject.kept, subject.batches, strict=True) if batch[1:] == (16, True)]
    compared = [number for number, kept in enumerate(full[: len(found.samples_ns)]) if kept >= 0]
    ends = [0, *[5][on_device:], 10, 20, 40, 80, 160, 320]
    parts = [(first, last) for first, last in pairwise(ends) if last <= len(found.samples_ns)]
    assert len(parts) > 4 - on_device
    assert [sum(first <= number < last for number in compared) for first, last in parts] == [1] * len(parts)
    assert verify.turns == [number + 1 for number in range(len(verify.turns))]


def test_rounds_that_are_repeated_for_their_clocks_are_compared_too() -> None:
    verify, clock = Nobody(), Clock()
    measure([Made(clock, 10_000.0)], clock, verify=verify, telemetry=Telemetry(lambda: CAPPED))
    assert len(verify.turns) == 4


def test_who_is_not_suspected_is_not_compared() -> None:
    verify, clock = Nobody(), Clock()
    (measured,) = measure([Made(clock, 5_000.0)], clock, verify=verify, suspicious=[False])
    assert measured.failure is None
    assert verify.turns == []


def test_beside_one_that_is_suspected_others_are_not_compared_either() -> None:
    clock = Clock()
    trusted, suspected = Made(clock, 5_000.0), Made(clock, 5_100.0)
    measure([trusted, suspected], clock, suspicious=[False, True])
    assert [sum(kept >= 0 for kept in one.kept) for one in (trusted, suspected)] == [0, 3]


def test_calls_in_a_row_are_timed_only_where_they_are_asked_for() -> None:
    (hot,), (cold,) = (measure([Made(clock := Clock(), 10_000.0)], clock, hot=wanted) for wanted in (True, False))
    assert hot.hot_ns is not None and not hot.hot_note
    assert cold.hot_ns is None and "cold calls only" in cold.hot_note and cold.samples_ns


def test_a_version_that_is_far_behind_takes_few_rounds_and_is_compared_all_the_same() -> None:
    clock = Clock()
    slow, fast = Made(clock, 1e6), Made(clock, 1e4, noise=0.3)
    of_slow, of_fast = measure([slow, fast], clock)
    assert (len(of_slow.samples_ns), of_slow.noisy) == (5, False)
    assert len(of_fast.samples_ns) >= 10
    assert of_slow.hot_ns is None and "more than 20 times" in of_slow.hot_note
    assert of_fast.hot_ns is not None
    assert sum(kept >= 0 for kept in slow.kept) == 2  # in its rounds, and at the end


def test_batches_of_versions_that_are_alike_are_compared_at_the_same_place() -> None:
    """So that what must come out is worked out once for all of them."""
    looks = []

    class Looks(Nobody):
        def timed(self, turn: int) -> timing.Comparison:
            looks.append(Look(secrets.randbits(64)))
            return looks[-1]

    clock = Clock()
    measure([Made(clock, 10_000.0 + number) for number in range(4)], clock, verify=Looks())
    assert len(looks) >= 2
    assert all(len(look.told) == 4 and len(set(look.told)) == 1 for look in looks)
