"""Classifies a kernel's bottleneck: counters or static facts in, a bottleneck with evidence out. Pure functions.

The rules are those of Nsight Compute's "speed of light" section: a unit above 60 % of its peak is the
bottleneck; below that on both sides it is unhidden latency (Nsight Compute, "Profiling Guide", section "Roofline
charts and speed of light").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.model import BuildResult, Ceilings, Profile

BUSY_PCT = 60.0
"""From here on a unit is busy: it, and not latency, limits the kernel."""

_COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
_L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
_L1 = "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"
_MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
_THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_WAVES = "launch__waves_per_multiprocessor"
_LOADS = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
_STORES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"
_LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_TENSOR = (
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
)
_STALL = "smsp__average_warps_issue_stalled_"

_WORDS: Mapping[str, tuple[str, str]] = {
    "profiled_kernels": ("kernels that were profiled, the first of the call", ""),
    "gpu__time_duration.sum": ("time under the profiler", "ns"),
    _COMPUTE: ("busiest compute pipe", "%"),
    _MEMORY: ("busiest part of the memory system", "%"),
    _DRAM: ("DRAM bandwidth", "% of peak"),
    _L2: ("L2 cache throughput", "% of peak"),
    _L1: ("L1 cache throughput", "% of peak"),
    "dram__bytes_read.sum": ("bytes read from DRAM", "bytes"),
    "dram__bytes_write.sum": ("bytes written to DRAM", "bytes"),
    "lts__t_sectors_op_write.sum": ("sectors of 32 bytes written to L2", ""),
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": ("fp32 additions executed", ""),
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": ("fp32 multiplications executed", ""),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("fp32 fused multiply-adds executed", ""),
    "lts__t_sector_hit_rate.pct": ("L2 hit rate", "%"),
    "l1tex__t_sector_hit_rate.pct": ("L1 hit rate", "%"),
    _OCCUPANCY: ("achieved occupancy", "%"),
    _THEORETICAL: ("theoretical occupancy", "%"),
    _ISSUE: ("cycles in which a scheduler issued", "%"),
    "smsp__warps_eligible.avg.per_cycle_active": ("eligible warps a scheduler and cycle", ""),
    _LANES: ("active threads an instruction, of 32", ""),
    "smsp__inst_executed.sum": ("warp instructions", ""),
    _LOADS: ("useful part of each sector loaded", "%"),
    _STORES: ("useful part of each sector stored", "%"),
    _CONFLICTS: ("shared-memory bank conflicts", ""),
    _TENSOR[0]: ("tensor cores, warpgroup instructions", "% of peak"),
    _TENSOR[1]: ("tensor cores, warp instructions", "% of peak"),
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": ("FMA pipe", "% of peak"),
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active": ("ALU pipe", "% of peak"),
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": ("load and store pipe", "% of peak"),
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": ("special-function pipe", "% of peak"),
    _WAVES: ("waves of blocks a multiprocessor", ""),
    "launch__grid_size": ("blocks", ""),
    "launch__block_size": ("threads a block", ""),
    "launch__registers_per_thread": ("registers a thread", ""),
    "launch__occupancy_limit_registers": ("blocks a multiprocessor, limited by registers", ""),
    "launch__occupancy_limit_shared_mem": ("blocks a multiprocessor, limited by shared memory", ""),
    "launch__occupancy_limit_warps": ("blocks a multiprocessor, limited by warps", ""),
    "launch__shared_mem_per_block_static": ("static shared memory a block", "bytes"),
    "launch__shared_mem_per_block_dynamic": ("dynamic shared memory a block", "bytes"),
    "achieved_bandwidth_pct": ("bytes that must move, over the measured copy bandwidth", "%"),
    "achieved_compute_pct": ("operations, over the measured rate", "%"),
    "time_over_launch_floor": ("cold time over an empty launch's", ""),
    "static_registers": ("registers a thread", ""),
    "static_shared_bytes": ("static shared memory a block", "bytes"),
    "static_spill_bytes": ("register spills", "bytes"),
    "static_stack_bytes": ("stack frame", "bytes"),
    "sass_wide_global_access_pct": ("global accesses that are 16 bytes wide, of the instructions in the code", "%"),
    "sass_tensor_instructions": ("tensor-core instructions in the code", ""),
}

_FOR_PROMPT: Mapping[str, tuple[str, ...]] = {
    "memory": (
        _DRAM, _L2, _L1, "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_sector_hit_rate.pct",
        "l1tex__t_sector_hit_rate.pct", _LOADS, _STORES, _OCCUPANCY, _CONFLICTS,
    ),
    "compute": (
        _COMPUTE, *_TENSOR, "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", _ISSUE, _LANES, "smsp__inst_executed.sum",
        _OCCUPANCY,
    ),
    "latency": (
        _COMPUTE, _MEMORY, _OCCUPANCY, _THEORETICAL, _ISSUE, "smsp__warps_eligible.avg.per_cycle_active", _WAVES,
        "launch__grid_size", "launch__block_size", "launch__registers_per_thread", "launch__occupancy_limit_registers",
        "launch__occupancy_limit_shared_mem", _LANES,
    ),
}  # fmt: skip
_ALWAYS = (
    "profiled_kernels", "gpu__time_duration.sum", "achieved_bandwidth_pct", "achieved_compute_pct", "time_over_launch_floor",
    "static_registers", "static_shared_bytes", "static_spill_bytes", "sass_wide_global_access_pct",
    "sass_tensor_instructions",
)  # fmt: skip


@dataclass(frozen=True)
class Achieved:
    """Where a case's time lies: fractions of the device's copy bandwidth and of the arithmetic's rate."""

    bandwidth: float
    compute: float
    over_floor: float | None

    @classmethod
    def of(
        cls, time_ns: float, nbytes: float, flops: float, arithmetic: str, ceilings: Ceilings, floor_ns: float | None
    ) -> Achieved:
        """From a cold time; ``arithmetic`` as ``Operator.compute_in`` says."""
        return cls(
            bandwidth=nbytes / (time_ns * 1e-9) / ceilings.copy_bytes_per_s,
            compute=flops / (time_ns * 1e-9) / ceilings.flops(arithmetic),
            over_floor=time_ns / floor_ns if floor_ns else None,
        )

    def metrics(self) -> dict[str, float]:
        """As metrics of a profile."""
        found = {"achieved_bandwidth_pct": 100 * self.bandwidth, "achieved_compute_pct": 100 * self.compute}
        return found if self.over_floor is None else found | {"time_over_launch_floor": self.over_floor}


Evidence = tuple[tuple[str, float, float], ...]
"""(metric, value, threshold), the decisive one first."""

_LAUNCH_BOUND = 1.5  # times an empty launch: what is left is no kernel's to gain


def classify(metrics: Mapping[str, float]) -> tuple[str, Evidence]:
    """The bottleneck, ``"compute"``, ``"memory"`` or ``"latency"``, and why.

    ``metrics`` may be counters, or static facts with what was achieved (``static_metrics``), or both; counters decide
    where there are any. With nothing to go by it is latency, without evidence.
    """
    compute = metrics.get(_COMPUTE)
    memory = {name: metrics[name] for name in (_MEMORY, _DRAM, _L2) if name in metrics}
    if compute is not None and memory:
        busiest = max(memory, key=lambda name: memory[name])
        return _verdict((_COMPUTE, compute), (busiest, memory[busiest]), metrics)
    bandwidth, rate = metrics.get("achieved_bandwidth_pct"), metrics.get("achieved_compute_pct")
    if bandwidth is None or rate is None:
        return "latency", ()
    floor = metrics.get("time_over_launch_floor")
    if floor is not None and floor < _LAUNCH_BOUND:
        return "latency", (("time_over_launch_floor", floor, _LAUNCH_BOUND),)
    return _verdict(("achieved_compute_pct", rate), ("achieved_bandwidth_pct", bandwidth), metrics)


def _verdict(
    compute: tuple[str, float], memory: tuple[str, float], metrics: Mapping[str, float]
) -> tuple[str, Evidence]:
    found = [(name, value, BUSY_PCT) for name, value in (compute, memory)]
    if max(compute[1], memory[1]) < BUSY_PCT:
        return "latency", (*found, *_latency_evidence(metrics))
    return (
        ("compute", tuple(found)) if compute[1] > memory[1] else ("memory", (*found[::-1], *_memory_evidence(metrics)))
    )


def _latency_evidence(metrics: Mapping[str, float]) -> Evidence:
    found = [
        (name, metrics[name], threshold)
        for name, threshold in ((_OCCUPANCY, 50.0), (_WAVES, 1.0), (_ISSUE, BUSY_PCT), (_LANES, 24.0))
        if name in metrics and metrics[name] < threshold
    ]
    # Warps stalled for a reason, per instruction issued: from 1 on, each instruction waits a cycle of a warp for it.
    stalls = {name: value for name, value in metrics.items() if name.startswith(_STALL) and "not_selected" not in name}
    if stalls:
        worst = max(stalls, key=lambda name: stalls[name])
        if stalls[worst] >= 1.0:
            found.append((worst, stalls[worst], 1.0))
    return tuple(found)


def _memory_evidence(metrics: Mapping[str, float]) -> Evidence:
    return tuple((name, metrics[name], 80.0) for name in (_LOADS, _STORES) if metrics.get(name, 100.0) < 80.0)


def static_metrics(build: BuildResult, achieved: Achieved | None) -> dict[str, float]:
    """What is known without counters: the compiler's report, the instruction mix, and what was achieved."""
    found: dict[str, float] = {}
    if build.kernels:
        found["static_registers"] = float(max(k.get("registers", 0) for k in build.kernels))
        found["static_shared_bytes"] = float(max(k.get("shared_bytes", 0) for k in build.kernels))
        found["static_spill_bytes"] = float(
            sum(k.get("spill_store_bytes", 0) + k.get("spill_load_bytes", 0) for k in build.kernels)
        )
        found["static_stack_bytes"] = float(max(k.get("stack_bytes", 0) for k in build.kernels))
    if build.sass:
        accesses = {name: n for name, n in build.sass.items() if name.partition(".")[0] in ("LDG", "STG", "LDGSTS")}
        if accesses:
            wide = sum(n for name, n in accesses.items() if name.endswith(".128"))
            found["sass_wide_global_access_pct"] = 100.0 * wide / sum(accesses.values())
        found["sass_tensor_instructions"] = float(
            sum(n for name, n in build.sass.items() if name in ("HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "DMMA"))
        )
    return found | (achieved.metrics() if achieved else {})


def select_for_prompt(profile: Profile) -> tuple[str, ...]:
    """What an agent is shown: the metrics that bear on the bottleneck, the worst stalls, the largest kernels."""
    names = [*_ALWAYS, *_FOR_PROMPT.get(profile.bottleneck, ())]
    lines = [_line(name, profile.metrics[name]) for name in names if name in profile.metrics]
    if profile.bottleneck != "compute":
        stalls = sorted(
            ((value, name) for name, value in profile.metrics.items() if name.startswith(_STALL)), reverse=True
        )
        lines += [_line(name, value) for value, name in stalls[:3] if value >= 0.05]
    if len(profile.kernels) > 1:
        lines += _kernel_lines(profile.kernels)
    return tuple(lines)


def describe_all(profile: Profile) -> tuple[str, ...]:
    """Every counter, by its words where it has some."""
    return tuple(f"{describe_metric(name)}: {value:.4g}" for name, value in sorted(profile.metrics.items()))


def describe_metric(name: str) -> str:
    """A metric in words: ``"DRAM bandwidth (% of peak)"``; its own name where there are none."""
    if name.startswith(_STALL):
        reason = name.removeprefix(_STALL).partition("_per_issue_active")[0].replace("_", " ")
        return f"stalled for {reason} (warps an instruction issued)"
    words, unit = _WORDS.get(name, (name, ""))
    return f"{words} ({unit})" if unit else words


def _line(name: str, value: float) -> str:
    if name.startswith(_STALL):
        return f"{describe_metric(name)}: {value:.3g}"
    words, unit = _WORDS[name]
    return f"{words}: {value:.4g}{'' if unit.startswith('%') or not unit else ' '}{unit}"


def _kernel_lines(kernels: Sequence[Mapping[str, Any]]) -> list[str]:
    timed = [k for k in kernels if k.get("time_ns")]
    total = sum(k["time_ns"] for k in timed)
    largest = sorted(timed, key=lambda k: k["time_ns"], reverse=True)[:5]
    return [f"kernel {k['name'][:80]}: {100 * k['time_ns'] / total:.0f}% of the time" for k in largest]
