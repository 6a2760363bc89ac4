"""Counters in plain words: what a profiler's metric means to a reader who does not know its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from msbench.sitegen import format as fmt

if TYPE_CHECKING:
    from msbench.store.tables import ProfileRow


def _plain(value: float) -> str:
    """A whole number in full: rounded, two figures of one launch would contradict each other."""
    return fmt.count(value) if abs(value) < 1e15 and value == round(value) else fmt.digits(value)


@dataclass(frozen=True)
class Meaning:
    """A metric's name for people and what it says. ``percent``: its values run from 0 to 100."""

    name: str
    says: str
    show: Callable[[float], str] = _plain
    percent: bool = False


def _percent(value: float) -> str:
    return fmt.percent(value / 100)


def _pct(name: str, says: str) -> Meaning:
    return Meaning(name, says, _percent, percent=True)


_STALL = "smsp__average_warps_issue_stalled"
_STALLS = {
    "barrier": ("at a barrier", "the other warps of the block, at __syncthreads."),
    "branch_resolving": ("on a branch", "the target of a branch."),
    "dispatch_stall": ("on dispatch", "the dispatcher, which delays the instruction."),
    "drain": ("on stores at the end", "their last stores to drain; many small stores at the kernel's end cause it."),
    "gmma": ("on the tensor cores", "a warpgroup matrix instruction."),
    "imc_miss": ("on constants", "the constant cache."),
    "lg_throttle": (
        "on the load queue",
        "room in the queue of global memory instructions: fewer, wider accesses help.",
    ),
    "long_scoreboard": ("on global memory", "a load from L2 or DRAM: more loads in flight, or reuse, would hide it."),
    "math_pipe_throttle": ("on busy pipes", "an arithmetic pipe that is busy."),
    "membar": ("on a memory fence", "a memory fence."),
    "mio_throttle": ("on the memory-I/O queue", "room in the queue of shared-memory and special instructions."),
    "no_instruction": ("on instructions", "the instruction cache, or after a jump."),
    "not_selected": ("behind other warps", "their turn, as another warp was issued: no loss."),
    "short_scoreboard": ("on shared memory", "shared memory or the special-function unit."),
    "sleeping": ("asleep", "the end of a __nanosleep."),
    "tex_throttle": ("on the texture queue", "room in the queue of texture instructions."),
    "wait": ("on fixed latency", "the fixed latency of the previous instruction."),
}

_KNOWN: dict[str, Meaning] = {
    # Nsight Compute: what the device counted
    "gpu__time_duration": Meaning("Time under the profiler", "One profiled launch; not a measurement.", fmt.time),
    "sm__throughput": _pct("Busiest compute pipe", "Of its peak; above 60 % the kernel is compute-bound."),
    "gpu__compute_memory_throughput": _pct("Busiest part of the memory system", "Of its peak, caches included."),
    "gpu__dram_throughput": _pct("DRAM bandwidth in use", "Of its peak; above 60 % the kernel is memory-bound."),
    "dram__throughput": _pct("DRAM bandwidth in use", "Of its peak; above 60 % the kernel is memory-bound."),
    "dram__bytes_read": Meaning(
        "Bytes read from DRAM", "Above the inputs' size, data is read more than once.", fmt.size
    ),
    "dram__bytes_write": Meaning(
        "Bytes written to DRAM", "Above the outputs' size, lines are written twice.", fmt.size
    ),
    "lts__t_sectors_op_write": Meaning(
        "Sectors written to L2", "32 bytes each. Data still in L2 at the end is not counted in DRAM bytes.", fmt.count
    ),
    "smsp__sass_thread_inst_executed_op_fadd_pred_on": Meaning("fp32 additions", "By all threads.", fmt.count),
    "smsp__sass_thread_inst_executed_op_fmul_pred_on": Meaning("fp32 multiplications", "By all threads.", fmt.count),
    "smsp__sass_thread_inst_executed_op_ffma_pred_on": Meaning(
        "fp32 fused multiply-adds", "By all threads; each is two operations.", fmt.count
    ),
    "lts__throughput": _pct("L2 in use", "Of the L2 cache's peak."),
    "l1tex__throughput": _pct("L1 in use", "Of the peak of L1 and shared memory."),
    "lts__t_sector_hit_rate": _pct("L2 hit rate", "Sectors found in L2 instead of DRAM."),
    "l1tex__t_sector_hit_rate": _pct("L1 hit rate", "Sectors found in the multiprocessor's own cache."),
    "sm__warps_active": _pct(
        "Achieved occupancy", "Resident warps, of the maximum; too few can't hide memory latency."
    ),
    "sm__maximum_warps_per_active_cycle": _pct(
        "Theoretical occupancy", "What registers, shared memory and blocks allow."
    ),
    "smsp__issue_active": _pct("Cycles with an instruction issued", "Low: all resident warps are waiting."),
    "smsp__warps_eligible": Meaning("Warps ready to issue", "Per scheduler and cycle; below 1 there is often none."),
    "smsp__thread_inst_executed_per_inst_executed": Meaning(
        "Active threads per instruction", "Of 32; fewer means divergence."
    ),
    "smsp__inst_executed": Meaning(
        "Warp instructions", "Wider loads and less index arithmetic reduce them.", fmt.count
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld": _pct(
        "Useful part of each sector loaded", "Of its 32 bytes; low: loads are not coalesced."
    ),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st": _pct(
        "Useful part of each sector stored", "Of its 32 bytes; low: stores are not coalesced."
    ),
    "l1tex__data_bank_conflicts": Meaning(
        "Shared-memory bank conflicts", "Accesses repeated because lanes hit the same bank.", fmt.count
    ),
    "sm__inst_executed_pipe_tensor_op_hmma": _pct("Tensor cores, warp instructions", "Of their peak."),
    "sm__inst_executed_pipe_tensor_op_gmma": _pct("Tensor cores, warpgroup instructions", "Of their peak."),
    "sm__pipe_fma_cycles_active": _pct("FMA pipe in use", "Of the peak of fp32 multiply-adds."),
    "sm__inst_executed_pipe_alu": _pct("ALU pipe in use", "Integer and logic: much of it is index arithmetic."),
    "sm__inst_executed_pipe_lsu": _pct("Load and store pipe in use", "Memory instructions; wider ones need fewer."),
    "sm__inst_executed_pipe_xu": _pct("Special-function pipe in use", "exp, sqrt, conversions and the like."),
    "launch__registers_per_thread": Meaning(
        "Registers per thread", "More registers allow fewer resident warps.", fmt.count
    ),
    "launch__shared_mem_per_block_static": Meaning(
        "Static shared memory", "Per block; more allows fewer resident blocks.", fmt.size
    ),
    "launch__shared_mem_per_block_dynamic": Meaning(
        "Dynamic shared memory", "Per block; more allows fewer resident blocks.", fmt.size
    ),
    "launch__shared_mem_per_block": Meaning("Shared memory per block", "Static, dynamic and the driver's.", fmt.size),
    "launch__shared_mem_per_block_driver": Meaning(
        "Shared memory reserved by the driver", "Per block; the same for every kernel.", fmt.size
    ),
    "launch__shared_mem_config_size": Meaning(
        "Shared memory per multiprocessor", "As this launch splits it from L1.", fmt.size
    ),
    "launch__stack_size": Meaning("Stack limit per thread", "A setting of the process.", fmt.size),
    "launch__persisting_l2_cache_size": Meaning("L2 set aside", "For persisting data.", fmt.size),
    "launch__grid_size": Meaning("Blocks", "Fewer than multiprocessors leaves some idle.", fmt.count),
    "launch__block_size": Meaning("Threads per block", "They share memory and barriers.", fmt.count),
    "launch__waves_per_multiprocessor": Meaning("Waves", "Blocks over what fits at once; below 1 the GPU is not full."),
    "launch__occupancy_limit_blocks": Meaning("Blocks that fit, by block limit", "On a multiprocessor.", fmt.count),
    "launch__occupancy_limit_registers": Meaning("Blocks that fit, by registers", "On a multiprocessor.", fmt.count),
    "launch__occupancy_limit_shared_mem": Meaning(
        "Blocks that fit, by shared memory", "On a multiprocessor.", fmt.count
    ),
    "launch__occupancy_limit_warps": Meaning("Blocks that fit, by warps", "On a multiprocessor.", fmt.count),
    **{
        f"{_STALL}_{reason}": Meaning(f"Stalled {where}", f"Warps per issue waiting for {what}")
        for reason, (where, what) in _STALLS.items()
    },
    # without counters: the compiler's report, the binary, and what was achieved
    "achieved_bandwidth_pct": _pct("Achieved bandwidth", "Compulsory bytes over time, of the measured copy bandwidth."),
    "achieved_compute_pct": _pct("Achieved rate", "The definition's operations over time, of the measured rate."),
    "time_over_launch_floor": Meaning("Time over an empty launch", "Near 1 there is nothing left to gain.", fmt.ratio),
    "static_registers": Meaning("Registers per thread", "More registers allow fewer resident warps.", fmt.count),
    "static_shared_bytes": Meaning("Static shared memory", "Per block; more allows fewer resident blocks.", fmt.size),
    "static_spill_bytes": Meaning("Spilled registers", "Registers spilled to memory: each use is a load.", fmt.size),
    "static_stack_bytes": Meaning("Stack frame", "Arrays that the compiler could not keep in registers.", fmt.size),
    "sass_wide_global_access_pct": _pct("Global accesses of 16 bytes", "Of those in the code; wider ones need fewer."),
    "sass_tensor_instructions": Meaning(
        "Tensor-core instructions", "In the code; none means idle tensor cores.", fmt.count
    ),
}


@cache
def meaning(metric: str) -> Meaning:
    """The meaning of a metric: its own, or that of the longest known beginning of its id; else the id itself."""
    known = [stem for stem in _KNOWN if metric == stem or metric.startswith((f"{stem}.", f"{stem}_"))]
    if not known:
        percent = ".pct" in metric or metric.endswith("_pct")
        return Meaning(metric, "", _percent if percent else fmt.size if "__bytes" in metric else _plain, percent)
    stem = max(known, key=len)
    return _KNOWN[stem]


@dataclass(frozen=True)
class Change:
    """One counter before and after; ``weight`` orders changes by how much they tell."""

    metric: str
    meaning: Meaning
    before: float | None
    after: float | None
    weight: float

    @property
    def times(self) -> str:
        """How the value moved: ``×3.1`` or, for percentages, the difference in points."""
        if self.before is None or self.after is None:
            return fmt.NONE
        if self.meaning.percent:
            points = f"{self.after - self.before:+.0f}"
            return f"{points} point" if points in ("+1", "-1") else f"{points} points"
        if self.before == 0 or self.after == 0:
            return fmt.NONE if self.before == self.after else "from none" if self.before == 0 else "to none"
        return f"×{fmt.digits(self.after / self.before)}"


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> list[Change]:
    """The counters of two profiles, those that changed the most first.

    A percentage's weight is its difference in points over 25; another's is the absolute logarithm (base 2) of its
    ratio, so that a doubling weighs like 25 points. A metric that only one profile has comes last. Where the profiler
    gives several forms of one counter (``.min``, ``.sum`` …), the one that its meaning is told in stands for all.
    """
    found = []
    for metric in _one_form_each(set(before) | set(after)):
        old, new = before.get(metric), after.get(metric)
        found.append(Change(metric, meaning(metric), old, new, _weight(meaning(metric), old, new)))
    return sorted(found, key=lambda c: (-c.weight, not c.meaning.says, c.metric))


@dataclass(frozen=True)
class Counter:
    """One counter of one profile."""

    metric: str
    meaning: Meaning
    value: float

    @property
    def shown(self) -> str:
        """Its value with its unit."""
        return self.meaning.show(self.value)


def counters(profile: Mapping[str, float]) -> list[Counter]:
    """The counters of one profile, each in one form, in the order in which :data:`_KNOWN` explains them; the others last."""
    place = {what.name: i for i, what in enumerate(_KNOWN.values())}
    found = [Counter(metric, meaning(metric), float(profile[metric])) for metric in _one_form_each(profile)]
    return sorted(found, key=lambda c: (place.get(c.meaning.name, len(place)), c.metric))


_OF_THE_MACHINE = ("c2clink__", "device__", "numa__", "nvlink__", "profiler__")
"""Facts that some profiles hold beside the kernel's."""


def evidence(profile: ProfileRow) -> list[str]:
    """Why the classifier named that bottleneck: ``Memory bandwidth in use is 87 % (threshold 60 %)``."""
    found = [(meaning(str(name)), float(value), float(limit)) for name, value, limit in profile.evidence]
    return [f"{what.name} is {what.show(value)} (threshold {what.show(limit)})" for what, value, limit in found]


def _one_form_each(metrics: Iterable[str]) -> list[str]:
    """Of each counter the form that stands for it: :data:`_KNOWN` tells which forms are one; else the id before its form."""
    chosen: dict[tuple[str, bool], str] = {}
    for metric in sorted(metrics, key=_form):
        if not metric.startswith(_OF_THE_MACHINE):
            what = meaning(metric)
            name = what.name if what.says else metric.partition(".")[0]
            chosen.setdefault((name, what.percent), metric)
    return sorted(chosen.values())


def _form(metric: str) -> tuple[int, str]:
    """How well a form of a counter stands for it: an average for shares, a sum for counts."""
    _, _, form = metric.partition(".")
    if meaning(metric).percent:
        order: tuple[str, ...] = ("pct", "ratio", "avg.pct", "avg")
    else:
        order = ("avg", "ratio") if "per_cycle" in form else ("sum", "avg", "ratio")
    rank = next((i for i, start in enumerate(order) if form.startswith(start)), len(order))
    return (-1 if not form else rank), metric


def _weight(what: Meaning, old: float | None, new: float | None) -> float:
    if old is None or new is None:
        return -1.0
    if what.percent:
        return abs(new - old) / 25
    if old == new:
        return 0.0
    if old <= 0 or new <= 0:
        return 2.0
    return min(6.0, abs(math.log2(new / old)))
