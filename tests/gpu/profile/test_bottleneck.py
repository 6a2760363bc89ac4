"""What holds a kernel back: the classification, its evidence, and what an agent is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.gpu.profile import bottleneck as profile
from msbench.gpu.profile import ncu
from msbench.gpu.profile.bottleneck import BUSY_PCT, Achieved, classify, select_for_prompt
from msbench.model import BuildResult, Ceilings, Profile
from msbench.spec import Case, Split

COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
LONG_SCOREBOARD = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
NOT_SELECTED = "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio"
LOADS = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"

CEILINGS = Ceilings(
    copy_bytes_per_s=4e12,
    read_bytes_per_s=4e12,
    write_bytes_per_s=4e12,
    fp32_flops=5e13,
    tf32_flops=4e14,
    bf16_flops=8e14,
    fp64_flops=6e13,
    launch_ns=2000.0,
    graph_node_ns=900.0,
    l2_copy_bytes_per_s=6e12,
    measured_at="2026-01-01T00:00:00+00:00",
)


@pytest.mark.parametrize(
    ("metrics", "bottleneck", "decisive"),
    [
        ({COMPUTE: 20.0, MEMORY: 91.0, DRAM: 90.0}, "memory", MEMORY),
        ({COMPUTE: 20.0, DRAM: 90.0}, "memory", DRAM),
        ({COMPUTE: 85.0, MEMORY: 70.0}, "compute", COMPUTE),
        ({COMPUTE: 10.0, MEMORY: 12.0}, "latency", COMPUTE),
        ({"achieved_bandwidth_pct": 88.0, "achieved_compute_pct": 2.0}, "memory", "achieved_bandwidth_pct"),
        ({"achieved_bandwidth_pct": 5.0, "achieved_compute_pct": 72.0}, "compute", "achieved_compute_pct"),
        ({"achieved_bandwidth_pct": 5.0, "achieved_compute_pct": 3.0}, "latency", "achieved_compute_pct"),
        (
            {"achieved_bandwidth_pct": 70.0, "achieved_compute_pct": 3.0, "time_over_launch_floor": 1.1},
            "latency",
            "time_over_launch_floor",
        ),
        (
            {COMPUTE: 10.0, MEMORY: 12.0, "achieved_bandwidth_pct": 99.0, "achieved_compute_pct": 1.0},
            "latency",
            COMPUTE,
        ),
    ],
)
def test_the_bottleneck_and_what_decides_it(metrics: dict[str, float], bottleneck: str, decisive: str) -> None:
    found, evidence = classify(metrics)
    assert found == bottleneck
    assert evidence[0][:2] == (decisive, metrics[decisive])


def test_nothing_known_is_latency_without_evidence() -> None:
    assert classify({}) == ("latency", ())


def test_latency_names_low_occupancy_and_the_worst_stall() -> None:
    metrics = {COMPUTE: 10.0, MEMORY: 20.0, OCCUPANCY: 22.0, LONG_SCOREBOARD: 9.0, NOT_SELECTED: 30.0}
    names = [name for name, _, _ in classify(metrics)[1]]
    assert OCCUPANCY in names
    assert LONG_SCOREBOARD in names
    assert NOT_SELECTED not in names


def test_memory_names_accesses_that_waste_sectors() -> None:
    evidence = classify({COMPUTE: 10.0, MEMORY: 90.0, LOADS: 12.5})[1]
    assert (LOADS, 12.5, 80.0) in evidence


percentages = st.floats(0, 100)


@given(percentages, percentages)
def test_the_threshold_divides(compute: float, memory: float) -> None:
    bottleneck, evidence = classify({COMPUTE: compute, MEMORY: memory})
    assert (bottleneck == "latency") == (max(compute, memory) < BUSY_PCT)
    if bottleneck != "latency":
        assert evidence[0][1] == max(compute, memory)


def test_where_a_time_lies() -> None:
    achieved = Achieved.of(1e6, nbytes=2e9, flops=1e9, arithmetic="fp32", ceilings=CEILINGS, floor_ns=2000.0)
    assert achieved.metrics() == pytest.approx(
        {"achieved_bandwidth_pct": 50.0, "achieved_compute_pct": 2.0, "time_over_launch_floor": 500.0}
    )
    assert "time_over_launch_floor" not in Achieved.of(1e6, 1, 1, "fp32", CEILINGS, None).metrics()


def built(kernels: tuple[dict[str, object], ...], sass: dict[str, int] | None) -> BuildResult:
    return BuildResult("b", "c", "nvcc", (), 1.0, False, kernels=kernels, sass=sass)


def test_static_facts() -> None:
    kernels = (
        {"registers": 40, "shared_bytes": 100, "spill_store_bytes": 8, "spill_load_bytes": 4, "stack_bytes": 16},
        {"registers": 255, "shared_bytes": 0, "spill_store_bytes": 0, "spill_load_bytes": 0, "stack_bytes": 0},
    )
    found = profile.static_metrics(built(kernels, {"LDG.128": 3, "STG.32": 1, "HGMMA": 8, "FFMA": 2}), None)
    assert found == {
        "static_registers": 255.0,
        "static_shared_bytes": 100.0,
        "static_spill_bytes": 12.0,
        "static_stack_bytes": 16.0,
        "sass_wide_global_access_pct": 75.0,
        "sass_tensor_instructions": 8.0,
    }
    assert profile.static_metrics(built((), None), None) == {}


def shown(bottleneck: str, metrics: dict[str, float], kernels: tuple[dict[str, object], ...] = ()) -> str:
    case = Case((("n", 1),), Split.PAPER)
    return "\n".join(select_for_prompt(Profile(case, "ncu", metrics, bottleneck, (), kernels=kernels)))


def test_an_agent_sees_what_bears_on_the_bottleneck() -> None:
    metrics = {DRAM: 91.5, LONG_SCOREBOARD: 3.2, "launch__waves_per_multiprocessor": 0.2, "static_registers": 40.0}
    text = shown("memory", metrics)
    assert "DRAM bandwidth: 91.5% of peak" in text
    assert "stalled for long scoreboard (warps an instruction issued): 3.2" in text
    assert "registers a thread: 40" in text
    assert "waves" not in text
    assert "waves of blocks a multiprocessor: 0.2" in shown("latency", metrics)
    assert "stalled" not in shown("compute", metrics)


def test_an_agent_sees_which_kernels_take_the_time() -> None:
    kernels = ({"name": "a", "time_ns": 75.0}, {"name": "b", "time_ns": 25.0})
    assert "kernel a: 75% of the time" in shown("memory", {}, kernels)
    assert "kernel" not in shown("memory", {}, kernels[:1])


def test_every_metric_has_words() -> None:
    for name in (*ncu.METRICS, *ncu.LAUNCH_METRICS):
        assert profile.describe_metric(name) != name or name == "launch__occupancy_limit_blocks"
    for names in profile._FOR_PROMPT.values():
        assert all(name in profile._WORDS for name in names)
        assert all(name in (*ncu.METRICS, *ncu.LAUNCH_METRICS) for name in names)
