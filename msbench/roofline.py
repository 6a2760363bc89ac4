"""A device's limits: a case's minimum time, and impossible times.

A roofline (Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model") of measured
ceilings, so that the fraction of it compares a kernel with what this device really reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from msbench.model import Ceilings

TOLERANCE = 0.9
"""How much below a limit a time may be before it is impossible: ceilings are measured, and clocks vary."""


@dataclass(frozen=True)
class Bound:
    """The least time for a case, and what sets it: ``"memory"``, ``"L2"``, ``"compute"`` or ``"launch"``."""

    time_ns: float
    term: str


def bound_ns(nbytes: float, flops: float, compute: str, ceilings: Ceilings, gathered: float = 0) -> Bound:
    """max(bytes / copy bandwidth, operations / rate, an empty launch timed in the same way), in ns.

    Where reads are irregular, also (bytes + gathered bytes) / copy bandwidth within L2: all of them cross from L2 to the
    multiprocessors.

    Args:
        nbytes: bytes that any kernel must move (``Operator.nbytes``).
        flops: operations of the definition (``Operator.flops``).
        compute: whose rate counts: ``"fp32"``, ``"tf32"``, ``"bf16"`` or ``"fp64"`` (``Operator.compute_in``).
        ceilings: what the device was measured to reach.
        gathered: bytes of sectors that irregular reads move again and again (``Operator.gathered``).
    """
    terms = {
        "memory": nbytes / ceilings.copy_bytes_per_s * 1e9,
        "compute": flops / ceilings.flops(compute) * 1e9,
        "launch": ceilings.launch_ns,
    }
    if gathered and ceilings.l2_copy_bytes_per_s:
        terms["L2"] = (nbytes + gathered) / ceilings.l2_copy_bytes_per_s * 1e9
    term = max(terms, key=lambda name: terms[name])
    return Bound(terms[term], term)


def fraction(time_ns: float, bound: Bound) -> float:
    """The fraction of the roofline that a time reaches: 1 is the device's measured ceiling."""
    return bound.time_ns / time_ns


def impossible(
    time_ns: float, *, nbytes: float, flops: float, ceilings: Ceilings, l2_bytes: int, floor_ns: float | None
) -> str | None:
    """Why a cold time can't be the whole of the work, as a sentence; None where it can.

    This is a weaker limit than ``bound_ns``, since an honest kernel may beat a roofline: what it writes may still be in
    the L2 cache when it ends, and fp32 work may be done exactly enough on tensor cores. So only the bytes that don't
    fit the cache count, at the highest bandwidth, and operations at the highest of all rates. A time far below
    ``floor_ns``, what a launch that does nothing takes when it is timed in the same way, means that the work was
    elsewhere: on another stream, or not done.
    """
    bandwidth = max(ceilings.copy_bytes_per_s, ceilings.read_bytes_per_s, ceilings.write_bytes_per_s)
    rate = max(ceilings.fp32_flops, ceilings.tf32_flops, ceilings.bf16_flops, ceilings.fp64_flops)
    limits = [
        (max(0.0, nbytes - l2_bytes) / bandwidth * 1e9, f"moving {nbytes:.4g} bytes takes at this device's bandwidth"),
        (flops / rate * 1e9, f"{flops:.4g} operations take at this device's highest rate"),
        ((floor_ns or 0.0) / 2, "half an empty launch takes"),
    ]
    limit, what = max(limits)
    if time_ns >= TOLERANCE * limit:
        return None
    return f"{time_ns:.4g} ns is less than the {limit:.4g} ns that {what}: the work was not done where it is timed."
