"""Stages add up to a group's time, whoever records them; nobody pays where nobody listens."""

from __future__ import annotations

import pickle
import threading

import pytest

from msbench.harness.spans import OTHER, Spans, span


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_stage_is_charged_without_the_stages_within_it(clock: Clock) -> None:
    spans = Spans(clock)
    with spans.recording():
        clock.passes(1)
        with span("compare"):
            clock.passes(2)
            for _ in range(3):
                with span("launch"):
                    clock.passes(10)
            clock.passes(4)
    assert spans.seconds == {OTHER: 1, "compare": 6, "launch": 30}
    assert (spans.elapsed_s, spans.ahead_s, spans.waiting_s) == (37, 0, 0)


def test_the_stages_of_a_phase_bear_its_name(clock: Clock) -> None:
    spans = Spans(clock)
    with spans.recording("check"), span("compare"):
        clock.passes(1)
    with spans.recording("measure"):
        clock.passes(2)
        with span("compare"):
            clock.passes(3)
    assert {name: s for name, s in spans.seconds.items() if s} == {
        "check: compare": 1,
        f"measure: {OTHER}": 2,
        "measure: compare": 3,
    }


def test_what_raises_is_charged_too_and_ends_its_stage(clock: Clock) -> None:
    spans = Spans(clock)
    with pytest.raises(KeyError), spans.recording(), span("launch"):
        clock.passes(5)
        raise KeyError
    with spans.recording():
        clock.passes(1)
    assert spans.seconds == {"launch": 5, OTHER: 1}


def test_between_its_stages_a_group_waits(clock: Clock) -> None:
    spans = Spans(clock)
    with spans.alongside():
        clock.passes(2)
    clock.passes(1)
    with spans.recording(), span("check"):
        clock.passes(3)
    clock.passes(8)
    with spans.recording(), span("measure"):
        clock.passes(4)
    assert (spans.ahead_s, spans.waiting_s, spans.overlapped_s) == (3, 8, 2)
    assert spans.elapsed_s == spans.ahead_s + spans.waiting_s + sum(spans.seconds.values()) == 18


def test_what_another_process_recorded_is_added(clock: Clock) -> None:
    mine, theirs = Spans(clock), Spans(clock)
    with mine.alongside():
        clock.passes(2)
    for stage in ("check", "measure"):
        clock.passes(1)
        with theirs.recording(), span("launch"), span(stage):
            clock.passes(3)
        mine.absorb(pickle.loads(pickle.dumps(theirs.hand_over())))
    assert theirs.seconds == {} and theirs.elapsed_s == 0
    with mine.recording(), span("store"):
        clock.passes(1)
    assert mine.seconds == {"launch": 0, OTHER: 0, "check": 3, "measure": 3, "store": 1}
    assert (mine.elapsed_s, mine.ahead_s, mine.waiting_s, mine.overlapped_s) == (11, 3, 1, 2)


def test_threads_record_each_for_its_own_group(clock: Clock) -> None:
    mine, theirs = Spans(clock), Spans(clock)

    def elsewhere() -> None:
        with span("unheard"):
            pass
        with theirs.recording(), span("launch"):
            pass

    with mine.recording(), span("compare"):
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    assert set(mine.seconds) == {OTHER, "compare"}
    assert set(theirs.seconds) == {OTHER, "launch"}


def test_where_nobody_listens_nothing_is_made() -> None:
    assert span("launch") is span("compare")
    with span("launch"):
        pass
