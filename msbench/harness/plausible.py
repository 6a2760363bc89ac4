"""Looks for signs that a version's times are not those of its work: clocks, kept results, calls that are too fast."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from msbench.errors import LaunchFailed
from msbench.harness.track import FLOOR_LAUNCHES, HOT_NODES, Track
from msbench.model import Fault

# How far the worker's times may lie below the referee's wall clock: outputs and workspace are overwritten besides, which takes
# no longer than writing them does in the call, and each of these commands has a launch.
_CLOCK_TRIALS = 3
_CLOCK_FACTOR = 4.0
_CLOCK_EACH_NS = 6e4
_CLOCK_ONCE_NS = 5e6

_COLD_SHARE = 0.4
"""What part of its hot time a call takes at least where nothing is cached. (Copies that the caches can take are faster where
nothing else has to be written back: 0.64 has been seen.)"""
_COLD_NS = 5e3
_COLD_TRIALS = 3

# How much longer than hot a call may take where nothing is left that an earlier one wrote.
_FRESH_TRIALS = 3
_FRESH_FACTOR = 2.0
_FRESH_NS = 5e3
_FRESH_SAMPLES = 3
_FRESH_COMMANDS = 8  # of such a call, besides its own: outputs, workspace, inputs
_FRESH_LONG_NS = 1e7  # longer calls are sampled once


def compare_clocks(track: Track, clock: Callable[[], float]) -> None:
    """See that the times which the worker tells are not far below what this process's own clock allows.

    Raises:
        LaunchFailed: they are; kind ``impossible``.
    """
    for _ in range(_CLOCK_TRIALS):
        start = clock()
        batch = track.batch()
        between = clock()
        floor = track.subject.floor(len(batch.samples_ns), min(track.nodes or 1, FLOOR_LAUNCHES))
        mine_ns = ((between - start) - (clock() - between)) * 1e9
        told_ns = sum(batch.samples_ns) - sum(floor.samples_ns) + sum(batch.host_ns)
        allowed_ns = _CLOCK_FACTOR * max(told_ns, 0.0) + _CLOCK_EACH_NS * len(batch.samples_ns) + _CLOCK_ONCE_NS
        if mine_ns <= allowed_ns:
            return
    raise LaunchFailed(
        "the times that its process tells are far below what its calls take by the referee's own clock",
        Fault.IMPOSSIBLE,
    )


def is_possible(track: Track, hot_ns: float, time_again: Callable[[], float]) -> None:
    """See that cold calls are not far faster than hot ones: then they don't do what those do.

    ``time_again``: another ``hot_ns``, what a call takes hot.

    Raises:
        LaunchFailed: they are; kind ``impossible``.
    """
    cold_ns = median(sample for samples in track.rounds for sample in samples)
    for _ in range(_COLD_TRIALS):
        if cold_ns + _COLD_NS >= _COLD_SHARE * hot_ns:
            return
        hot_ns = time_again()
    raise LaunchFailed(
        f"a call takes {cold_ns / 1e3:.1f} µs where nothing is cached, and {hot_ns / 1e3:.1f} µs where everything is",
        Fault.IMPOSSIBLE,
    )


def needs_nothing(track: Track, hot_ns: float, copies: int, replays: int) -> None:
    """See that hot times do not come from what an earlier call left.

    Hot, calls have the same inputs, and nothing is overwritten between them. A version that keeps a checksum of its inputs
    beside its results, or counts calls and stops after some, can be right in every check and look fast.

    Raises:
        LaunchFailed: they do; kind ``forbidden``.
    """
    samples = 1 if hot_ns > _FRESH_LONG_NS else _FRESH_SAMPLES
    copies = max(1, min(copies, HOT_NODES // (track.commands + _FRESH_COMMANDS)))
    took_ns = 0.0
    for _ in range(_FRESH_TRIALS):
        own_ns = track.subject.fresh_ns(copies, replays, samples)
        if own_ns is None or own_ns <= _FRESH_FACTOR * hot_ns + _FRESH_NS:
            return
        took_ns = own_ns
    raise LaunchFailed(
        f"a call takes {hot_ns / 1e3:.1f} µs after one on the same inputs, and {took_ns / 1e3:.1f} µs where nothing is left of "
        f"that one: it keeps results between calls",
        Fault.FORBIDDEN,
    )
