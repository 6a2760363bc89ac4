"""Ratios of times with their intervals, of two versions in one session and over several cases."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from msbench import statistics
from msbench.figures.timings import Timing, Timings, TimingSession
from msbench.store.tables import CaseRow


@dataclass(frozen=True)
class Ratio:
    """t_reference / t_version with its 95 % interval: above 1, the version is faster.

    ``reference_id`` is None in a mean over cases that have different references (the fastest library of each).
    """

    value: float
    low: float
    high: float
    reference_id: str | None

    def disagrees(self, other: Ratio) -> bool:
        """Whether the two intervals have nothing in common."""
        return self.high < other.low or other.high < self.low


@dataclass(frozen=True)
class Comparison:
    """A version against another on every case of one session that has both; ``overall``: geometric mean.

    ``measured_at`` is the session's; None where no session has both.
    """

    cases: tuple[tuple[CaseRow, Ratio], ...]
    overall: Ratio | None
    measured_at: str | None


@dataclass(frozen=True)
class Occasion:
    """A version's score in one session, and what the session that it is shown with says on the same ``cases``."""

    measured_at: str
    score: Ratio
    shown: Ratio
    cases: int

    @property
    def disagrees(self) -> bool:
        """Whether the two differ by more than their intervals."""
        return self.score.disagrees(self.shown)


def paired(timings: Timings, timing: Timing, reference: Timing) -> tuple[Ratio, statistics.Logs] | None:
    """The ratio of two times of one case and session, with what its interval is made from; None without common rounds."""
    known = timings.log_ratios(timing, reference)
    if known is None:
        return None
    logs, (low, high) = known
    return Ratio(math.exp(statistics.estimate(logs)), math.exp(low), math.exp(high), reference.version_id), logs


def mean(logs: Sequence[statistics.Logs], reference_id: str | None) -> Ratio | None:
    """The geometric mean over cases; None without any."""
    return Ratio(*statistics.bootstrap_geometric_mean(logs), reference_id) if logs else None


def compare(timings: Timings, session: TimingSession | None, version_id: str, reference_id: str) -> Comparison:
    """A version against another in a session."""
    cases: list[tuple[CaseRow, Ratio]] = []
    logs: list[statistics.Logs] = []
    times = session.times.get(version_id, {}) if session else {}
    for timing in sorted(times.values(), key=lambda one: (one.case.nbytes, one.case.name)):
        reference = session.among([reference_id], timing.case.name) if session else None
        pair = paired(timings, timing, reference) if reference else None
        if pair is not None:
            cases.append((timing.case, pair[0]))
            logs.append(pair[1])
    return Comparison(tuple(cases), mean(logs, reference_id), session.measured_at if session and cases else None)


def occasions(
    timings: Timings, sessions: Iterable[TimingSession], shown: TimingSession, version_id: str, naive: Collection[str]
) -> list[Occasion]:
    """A version's score in each session but the shown one, over the cases on which both have it beside the same kernel."""
    found = []
    for session in sessions:
        own: list[statistics.Logs] = []
        theirs: list[statistics.Logs] = []
        for name, timing in session.times.get(version_id, {}).items() if session is not shown else ():
            other, here, there = (
                shown.times[version_id].get(name),
                session.among(naive, name),
                shown.among(naive, name),
            )
            if other is None or here is None or there is None or here.version_id != there.version_id:
                continue
            one, two = paired(timings, timing, here), paired(timings, other, there)
            if one is not None and two is not None:
                own.append(one[1])
                theirs.append(two[1])
        score, beside = mean(own, None), mean(theirs, None)
        if score is not None and beside is not None:
            found.append(Occasion(session.measured_at, score, beside, len(own)))
    return found
