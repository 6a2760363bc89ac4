"""The figures of a stream of groups, from the ways of its groups."""

from __future__ import annotations

import pytest

from msbench.harness.batch.throughput import Passage, Throughput, trials
from msbench.model import Study


def passage(began: float, seconds: float, candidates: int = 2, **spans: float) -> Passage:
    return Passage("rms_norm/fp32", 6, candidates, began, seconds, 1.5, spans)


STREAM = Throughput(
    (
        passage(0, 60, compare=60),
        passage(55, 8, compare=6, store=2),  # its verdict at 63
        passage(60, 6, candidates=3, compare=1, store=5),  # at 66
        passage(63, 7, compare=7),  # at 70
    )
)


def test_the_first_group_prepares_the_others_and_is_told_apart() -> None:
    assert STREAM.first_s == 60
    assert STREAM.wall_s == 10
    assert STREAM.candidates_per_hour == pytest.approx(3600 * 7 / 10)
    assert STREAM.median_s == 7
    assert STREAM.p90_s == pytest.approx(8)
    assert STREAM.by_stage() == {"compare": 14, "store": 7}


def test_one_group_alone_is_what_there_is() -> None:
    alone = Throughput((passage(3, 4, candidates=1),))
    assert (alone.wall_s, alone.median_s, alone.candidates_per_hour) == (4, 4, 900)


def test_every_group_is_a_trial_and_the_stream_too() -> None:
    *groups, whole = trials(STREAM, device_id="d", harness="h", command="msbench bench", created_at="2025-01-01")
    assert [t.subject for t in groups] == [f"rms_norm/fp32 #{number}" for number in (1, 2, 3)]
    assert not any(t.held for t in groups)
    assert groups[1].details["spans"] == {"compare": 1, "store": 5}
    assert (whole.subject, whole.held, whole.study) == ("all", False, Study.THROUGHPUT)
    assert whole.outcome == "7.00 s, nine of ten within 8.00 s; 2520 an hour"
    assert whole.details["candidates"] == 7


def test_it_holds_where_the_median_is_within_the_limit() -> None:
    quick = Throughput((passage(0, 60), passage(60, 2), passage(62, 3), passage(65, 40, candidates=1)))
    assert [t.held for t in trials(quick, device_id="d", harness="h", command="c", created_at="t")] == [
        True,
        True,
        False,
        True,
    ]
