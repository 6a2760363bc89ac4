"""What a device allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.model import Ceilings
from msbench.roofline import Bound, bound_ns, fraction, impossible

CEILINGS = Ceilings(
    copy_bytes_per_s=4e12,
    read_bytes_per_s=4.2e12,
    write_bytes_per_s=4.5e12,
    fp32_flops=50e12,
    tf32_flops=400e12,
    bf16_flops=800e12,
    fp64_flops=60e12,
    launch_ns=2e3,
    graph_node_ns=1e3,
    l2_copy_bytes_per_s=6e12,
    measured_at="2026-01-01T00:00:00+00:00",
)
L2 = 60 * 2**20


@pytest.mark.parametrize(
    ("nbytes", "flops", "compute", "time_ns", "term"),
    [
        (4e9, 1e9, "fp32", 1e6, "memory"),
        (1e6, 50e9, "fp32", 1e6, "compute"),
        (1e6, 50e9, "bf16", 62_500, "compute"),
        (10, 10, "fp32", 2e3, "launch"),
    ],
)
def test_bound(nbytes: float, flops: float, compute: str, time_ns: float, term: str) -> None:
    bound = bound_ns(nbytes, flops, compute, CEILINGS)
    assert (bound.time_ns, bound.term) == (pytest.approx(time_ns), term)
    assert fraction(2 * time_ns, bound) == pytest.approx(0.5)


def test_a_time_below_the_bandwidth_is_impossible() -> None:
    reason = impossible(1e5, nbytes=4e9, flops=1, ceilings=CEILINGS, l2_bytes=L2, floor_ns=None)
    assert reason is not None
    assert "4e+09 bytes" in reason


def test_a_time_below_every_rate_is_impossible() -> None:
    arguments = {"nbytes": 1e6, "flops": 8e11, "ceilings": CEILINGS, "l2_bytes": L2, "floor_ns": 2e3}
    assert impossible(0.8e6, **arguments) is not None
    assert impossible(1.2e6, **arguments) is None  # faster than fp32 units, as split products on tensor cores are


def test_a_time_far_below_an_empty_launch_is_impossible() -> None:
    arguments = {"nbytes": 100, "flops": 100, "ceilings": CEILINGS, "l2_bytes": L2}
    assert impossible(400, **arguments, floor_ns=2e3) is not None
    assert impossible(1900, **arguments, floor_ns=2e3) is None
    assert impossible(400, **arguments, floor_ns=None) is None


def test_what_fits_the_cache_may_beat_the_memory() -> None:
    assert impossible(2e3, nbytes=L2, flops=1, ceilings=CEILINGS, l2_bytes=L2, floor_ns=1e3) is None


@given(nbytes=st.floats(1, 1e11), flops=st.floats(1, 1e15), compute=st.sampled_from(["fp32", "tf32", "bf16", "fp64"]))
def test_what_reaches_the_roofline_is_possible(nbytes: float, flops: float, compute: str) -> None:
    bound = bound_ns(nbytes, flops, compute, CEILINGS)
    assert impossible(bound.time_ns, nbytes=nbytes, flops=flops, ceilings=CEILINGS, l2_bytes=L2, floor_ns=1e3) is None


def test_sectors_that_irregular_reads_move_are_bounded_by_l2() -> None:
    assert bound_ns(3e9, 1e9, "fp32", CEILINGS, gathered=9e9) == Bound(pytest.approx(2e6), "L2")
    assert bound_ns(3e9, 1e9, "fp32", CEILINGS, gathered=1e9).term == "memory"
    unmeasured = replace(CEILINGS, l2_copy_bytes_per_s=0.0)
    assert bound_ns(3e9, 1e9, "fp32", unmeasured, gathered=9e9).term == "memory"
