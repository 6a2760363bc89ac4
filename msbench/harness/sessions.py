"""Joins the measurements of several sessions: the same versions on the same case, each time in new processes.

How long a kernel takes differs a little from process to process, and stays so for the life of the process. More rounds
don't reduce that, and no interval from one session shows it; several sessions do both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from msbench.model import Measurement
from msbench.statistics import converged, estimate, log_ratios, median, sittings_needed, tolerance

SHORT_NS = 2e5
"""A case on which some version is faster than this is measured in all sessions: its launches matter."""

LONG_NS = 2e7
"""A case on which all are slower than that, and some slower than this, is measured once: more would take long, and tell little."""

FEW = 4
"""The most sessions for any other case."""

SETTLED = 0.007
"""Half of a ratio's 95 % interval that is narrow enough near 1: identical versions are then told to be so, to a hundredth."""

MOST = 4
"""A case has at most this many times the requested sessions."""


def number_of(times_ns: Sequence[float], most: int) -> int:
    """The number of sessions for versions that take this long, at most the given number."""
    if not times_ns or (min(times_ns) >= SHORT_NS and max(times_ns) >= LONG_NS):
        return 1
    return most if min(times_ns) < SHORT_NS else min(most, FEW)


def number_for(measurements: Sequence[Measurement], most: int) -> int:
    """The number of sessions for a group that was measured once."""
    return number_of([time for time in map(_time_ns, measurements) if time is not None], most)


def number_needed(sittings: Sequence[Sequence[Measurement]]) -> int:
    """The number of sessions, these included, that settles a group's ratios to its fastest version; at most ``MOST`` times these.

    The versions' needs are averaged, since estimates from a few sessions vary a lot.
    """
    number = len(sittings)
    timed = [one for one in _side_by_side(sittings) if not one.failure and _time_ns(one) is not None]
    fastest = min(timed, key=lambda one: _time_ns(one) or 0.0, default=None)
    others = [log_ratios(one.samples_ns, fastest.samples_ns, number) for one in timed if fastest and one is not fastest]
    needs = [
        sittings_needed(logs, tolerance(math.exp(estimate(logs)), SETTLED)) for logs in others if len(logs) == number
    ]
    return min(max(number, math.ceil(fmean(needs or [0]))), MOST * number)


def join(sittings: Sequence[Sequence[Measurement]], half_width: float) -> list[Measurement]:
    """One measurement per version from those of its sessions, each in the same order; they become one group."""
    return list(sittings[0]) if len(sittings) == 1 else _judged(_side_by_side(sittings), half_width)


def _side_by_side(sittings: Sequence[Sequence[Measurement]]) -> list[Measurement]:
    rounds = max((len(one.samples_ns) for sitting in sittings for one in sitting), default=0)
    return [_joined(parts, rounds) for parts in zip(*sittings, strict=True)]


def _joined(parts: Sequence[Measurement], rounds: int) -> Measurement:
    """The parts in a row, each filled up with empty rounds, so that those of other versions pair with them by index."""
    samples = [part.samples_ns + ((),) * (rounds - len(part.samples_ns)) for part in parts]
    return replace(
        parts[0],
        samples_ns=tuple(one for part in samples for one in part),
        sittings=len(parts),
        hot_ns=_mean([part.hot_ns for part in parts]),
        host_ns=_mean([part.host_ns for part in parts]),
        floor_ns=_mean([part.floor_ns for part in parts]),
        sm_clock_mhz=_mean([part.sm_clock_mhz for part in parts]),
        temperature_c=max((part.temperature_c for part in parts if part.temperature_c is not None), default=None),
        power_w=max((part.power_w for part in parts if part.power_w is not None), default=None),
        throttle=_disturbances([part.throttle for part in parts]),
        failure=next((part.failure for part in parts if part.failure), None),
    )


def _disturbances(notes: Sequence[str | None]) -> str | None:
    """What disturbed which session; None if nothing is known."""
    if all(note is None for note in notes):
        return None
    return "; ".join(f"session {number} of {len(notes)}: {note}" for number, note in enumerate(notes, 1) if note)


def _judged(group: list[Measurement], half_width: float) -> list[Measurement]:
    """As within one session: a version is noisy if its ratio to the fastest is not known well enough."""
    timed = [one for one in group if not one.failure and _time_ns(one) is not None]
    if len(timed) < 2:
        return group
    fastest = min(timed, key=lambda one: _time_ns(one) or 0.0)
    noisy = {
        id(one): not converged(one.samples_ns, fastest.samples_ns, half_width, sittings=one.sittings)
        for one in timed
        if one is not fastest
    }
    noisy[id(fastest)] = all(noisy.values())
    return [replace(one, noisy=noisy.get(id(one), one.noisy)) for one in group]


def _time_ns(one: Measurement) -> float | None:
    samples = [sample for samples in one.samples_ns for sample in samples]
    return median(samples) if samples else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
