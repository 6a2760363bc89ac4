"""Runs Nsight Compute on one launch and parses its output. Counters the device lacks are absent, never zero."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from msbench.guarded import captured
from msbench.model import digest

METRICS: tuple[str, ...] = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_write.sum",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    "l1tex__t_sector_hit_rate.pct",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__inst_executed.sum",
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    *(
        f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        for reason in (
            "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle",
            "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle", "no_instruction", "not_selected",
            "short_scoreboard", "sleeping", "tex_throttle", "wait",
        )
    ),
)  # fmt: skip
"""What is asked for where the device has it."""

LAUNCH_METRICS: tuple[str, ...] = (
    "launch__block_size",
    "launch__grid_size",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_static",
    "launch__waves_per_multiprocessor",
)
"""Facts of the launch; ``--query-metrics`` does not list these."""

SCRATCH = "msbench-profile-"
"""How folders begin that hold what profiling needs for a while: one that a killed process left, the next profile removes."""

MOST_KERNELS = 12
"""Of a call its first so many are profiled: each takes a third of a second or more, and a call's kernels mostly repeat each other."""

_TIME = "gpu__time_duration.sum"
_OF_THE_MACHINE = ("c2clink__", "device__", "numa__", "nvlink__", "profiler__")  # which ncu adds unasked
_CHIPS = {
    (7, 0): "gv100",
    (7, 5): "tu102",
    (8, 0): "ga100",
    (8, 6): "ga102",
    (8, 9): "ad102",
    (9, 0): "gh100",
    (10, 0): "gb100",
}
_NO_PERMISSION = "ERR_NVGPUCTRPERM"


class NcuError(Exception):
    """Nsight Compute gave no counters; the message says why."""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel of the launch: its demangled name, its metrics in base units (ns, bytes, percent, ratios), and its stream."""

    name: str
    metrics: dict[str, float]
    stream: str = ""

    @property
    def time_ns(self) -> float:
        """How long it took while it was profiled."""
        return self.metrics.get(_TIME, 0.0)


def tool_name(ncu: Path | None) -> str:
    """What ``Profile.tool`` says of counters: ``"Nsight Compute 2025.3.1.0"``, or no version where ncu tells none.

    ncu's path is left out, being specific to this machine.
    """
    try:
        found = re.search(r"^Version (\d\S*)", _version(ncu), re.MULTILINE) if ncu else None
    except NcuError:
        found = None
    return f"Nsight Compute {found[1]}" if found else "Nsight Compute"


def collect(
    ncu: Path, argv: Sequence[str], env: dict[str, str], capability: tuple[int, int], cache_dir: Path, limit_s: float,
    calls: int = 1,
) -> list[list[KernelProfile]]:  # fmt: skip
    """Profile the kernels that ``argv`` launches between cudaProfilerStart and Stop, for each of its ``calls``.

    Raises:
        NcuError: it is not permitted, failed, outran ``limit_s`` or saw no kernel of some call.
    """
    asked = [*known_metrics(ncu, capability, cache_dir), *LAUNCH_METRICS]
    said = ""
    for _ in range(4):
        command = [
            str(ncu), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--profile-from-start", "off", "--launch-count", str(calls * MOST_KERNELS), "--metrics", ",".join(asked), *argv,
        ]  # fmt: skip
        code, output, said = _run(command, env, limit_s)
        if code == 0:
            break
        if _NO_PERMISSION in output + said:
            raise NcuError(
                "the driver lets only administrators read counters: run as root, or load the nvidia module with "
                "NVreg_RestrictProfilingToAdminUsers=0"
            )
        refused = refused_metrics(output + said, asked)
        if not refused:
            raise NcuError(f"ncu ended with code {code}: {_last_words(output + said)}")
        asked = [metric for metric in asked if metric not in refused]
    kernels = parse(output)
    found = by_call(kernels) if calls > 1 or not kernels else [kernels]
    if len(found) != calls:
        raise NcuError(f"ncu saw no kernel: {_last_words(output + said)}")
    return found


def by_call(kernels: Iterable[KernelProfile]) -> list[list[KernelProfile]]:
    """The kernels of each call: the runner makes each in a stream of its own."""
    return [list(call) for _, call in groupby(kernels, key=lambda kernel: kernel.stream)]


def known_metrics(ncu: Path, capability: tuple[int, int], cache_dir: Path) -> list[str]:
    """Those of ``METRICS`` that the device has. One unknown id fails a whole run, so ncu is asked, once for each chip.

    Raises:
        NcuError: ncu does not answer.
    """
    chip = _CHIPS.get(capability)
    kept = cache_dir / "ncu" / f"{digest(_version(ncu), str(capability))}.json"
    try:
        names = set(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        options = ["--chips", chip] if chip else []
        code, listing, said = _run([str(ncu), "--query-metrics", *options], None, 120)
        names = parse_names(listing)
        if code != 0 or not names:
            raise NcuError(f"ncu does not say which metrics there are: {_last_words(listing + said)}") from None
        with suppress(OSError):  # without a cache it is asked again
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(sorted(names)), encoding="utf-8")
    return available(METRICS, names)


@cache
def _version(ncu: Path) -> str:
    """All that ``ncu --version`` prints. Raises NcuError where it does not run."""
    code, output, said = _run([str(ncu), "--version"], None, 60)
    if code != 0:
        raise NcuError(f"ncu does not run: {_last_words(output + said)}")
    return output


def available(wanted: Iterable[str], names: set[str]) -> list[str]:
    """The wanted metrics whose name, without suffixes such as ``.sum``, is among ``names``."""
    return [metric for metric in wanted if metric.partition(".")[0] in names]


def parse_names(listing: str) -> set[str]:
    """The metric names in ``ncu --query-metrics``'s table."""
    return set(re.findall(r"^([a-z0-9]+__[a-z0-9_]+)\b", listing, re.MULTILINE))


def refused_metrics(output: str, asked: Sequence[str]) -> set[str]:
    """The metrics that an error of ncu names."""
    errors = "\n".join(
        line for line in output.splitlines() if re.search(r"==ERROR==|[Ff]ailed to find|[Uu]nknown|[Ii]nvalid", line)
    )
    return {metric for metric in asked if re.search(rf"(?<![\w.]){re.escape(metric)}(?![\w.])", errors)}


def parse(output: str) -> list[KernelProfile]:
    """The kernels in the output of ``ncu --csv --page raw --print-units base``, in launch order.

    The table starts with a line of column names and one of units; around it are ncu's own lines and the program's.
    Cells that are no finite number ("n/a", "nan", an empty one) are absent from the result.
    """
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.reader(line for line in lines[start:] if line.startswith('"')))
    names = rows[0]
    if "Kernel Name" not in names:
        return []
    kernel = names.index("Kernel Name")
    stream = names.index("Stream") if "Stream" in names else None
    found = []
    for row in rows[1:]:
        if len(row) != len(names) or not row[0].strip().isdigit():
            continue  # the units
        columns = zip(names, row, strict=True)
        cells = {n: _number(cell) for n, cell in columns if "__" in n and not n.startswith(_OF_THE_MACHINE)}
        known = {name: value for name, value in cells.items() if value is not None}
        found.append(KernelProfile(row[kernel], known, "" if stream is None else row[stream]))
    return found


def combine(kernels: Sequence[KernelProfile]) -> dict[str, float]:
    """One set of metrics for all kernels of a launch.

    Sums add up; rates and ratios are averaged by time; facts of the launch are those of the kernel that took longest.
    """
    if not kernels:
        return {}
    longest = max(kernels, key=lambda k: k.time_ns)
    combined: dict[str, float] = {}
    for name in dict.fromkeys(name for k in kernels for name in k.metrics):
        having = [k for k in kernels if name in k.metrics]
        if name.startswith("launch__"):
            if name in longest.metrics:
                combined[name] = longest.metrics[name]
        elif name.endswith(".sum"):
            combined[name] = sum(k.metrics[name] for k in having)
        else:
            weight = sum(k.time_ns for k in having)
            if weight > 0:
                combined[name] = sum(k.metrics[name] * k.time_ns for k in having) / weight
            else:
                combined[name] = sum(k.metrics[name] for k in having) / len(having)
    return combined


def _number(cell: str) -> float | None:
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def _run(argv: Sequence[str], env: dict[str, str] | None, limit_s: float) -> tuple[int, str, str]:
    try:
        # ncu leaves files, killed or not. Its own lock is among them; msbench's keeps other profiles off the GPU.
        return captured(argv, limit_s, env)
    except subprocess.TimeoutExpired:
        raise NcuError(f"ncu did not finish within {limit_s:g} s") from None
    except OSError as error:
        raise NcuError(f"ncu can't be started: {error.strerror}") from error


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "==ERROR==" in line or "msbench worker:" in line]
    return (errors or lines or ["it says nothing"])[-1][:300]
