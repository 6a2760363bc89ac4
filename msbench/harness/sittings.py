"""Joins what several sittings measured: the same versions on the same case, each time in new processes.

How long the launch of a kernel takes differs from process to process by about a hundredth of the shortest calls, and
stays so for the life of the process. More rounds don't make that smaller, and no interval from one sitting shows it;
several sittings do both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from msbench.model import Measurement
from msbench.statistics import converged, median

SHORT_NS = 2e4
"""Cases on which some version is faster than this are measured in several sittings."""


def is_short(measurements: Sequence[Measurement]) -> bool:
    """Whether the fastest of a group is so fast that its launch matters."""
    return any(time is not None and time < SHORT_NS for time in map(_time_ns, measurements))


def join(sittings: Sequence[Sequence[Measurement]], half_width: float) -> list[Measurement]:
    """One measurement a version from those of its sittings, each in the same order; they become one group."""
    if len(sittings) == 1:
        return list(sittings[0])
    lengths = [max((len(one.samples_ns) for one in sitting), default=0) for sitting in sittings]
    joined = [_joined(parts, max(lengths)) for parts in zip(*sittings, strict=True)]
    return _judged(joined, half_width)


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
        failure=next((part.failure for part in parts if part.failure), None),
    )


def _judged(group: list[Measurement], half_width: float) -> list[Measurement]:
    """As within one sitting: who is noisy is whose ratio to the fastest is not known to ±``half_width``."""
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
