"""The GPU's clocks, temperature, power and throttling while something is measured, and other processes on it.

As far as NVML reports them. Ratios are taken within rounds, so throttling affects both sides; but times are unreliable
then, and a ratio under a power cap differs from one without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from msbench.harness.spans import span

DRIFT_LIMIT = 0.02
"""How far apart the SM clocks of one measurement may lie, relative to their median; an H200's steps are 0.8 %."""

# nvml.h, nvmlClocksThrottleReason…; idling and clocks that an administrator set are no disturbance.
_REASONS = {
    0x04: "the power cap",
    0x08: "a hardware slowdown",
    0x10: "sync boost",
    0x20: "software's thermal limit",
    0x40: "hardware's thermal limit",
    0x80: "the power brake",
}
_DISTURBING = sum(_REASONS)


class Reading(NamedTuple):
    """One look at the GPU; None for what is not known. ``throttle`` has the bits of ``nvmlClocksThrottleReason…``."""

    sm_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    throttle: int | None


@dataclass(frozen=True)
class Conditions:
    """What a measurement ran under; None where NVML does not say.

    ``throttle`` says what disturbed it, one clause each, and is "" if nothing did. ``unsteady``: what measuring again may
    mend, clocks that were held down or that drifted by more than DRIFT_LIMIT.
    """

    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str | None = None
    unsteady: bool = False


@dataclass
class Telemetry:
    """Readings of one measurement. ``others`` counts the strangers that compute on the GPU, None where that is not known."""

    read: Callable[[], Reading]
    others: int | None = None
    _readings: list[Reading] = field(default_factory=list)

    def sample(self) -> None:
        """Look now."""
        with span("telemetry"):
            self._readings.append(self.read())

    def forget(self) -> None:
        """Start over."""
        self._readings.clear()

    def conditions(self) -> Conditions:
        """Median clock, highest temperature and power, and what disturbed the measurement."""
        clocks = _known(one.sm_clock_mhz for one in self._readings)
        bits = [one.throttle for one in self._readings if one.throttle is not None]
        unsteady = [clause for clause in (_held_down(bits), _drifted(clocks)) if clause]
        known = bool(bits) or self.others is not None
        return Conditions(
            sm_clock_mhz=median(clocks) if clocks else None,
            temperature_c=max(_known(one.temperature_c for one in self._readings), default=None),
            power_w=max(_known(one.power_w for one in self._readings), default=None),
            throttle=", ".join([*unsteady, *_shared(self.others)]) if known or unsteady else None,
            unsteady=bool(unsteady),
        )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _held_down(bits: list[int]) -> str:
    held = [value for value in bits if value & _DISTURBING]
    if not held:
        return ""
    reasons = [name for bit, name in _REASONS.items() if any(value & bit for value in held)]
    return f"clocks were held down by {' and '.join(reasons)} for {len(held) / len(bits):.0%} of the time"


def _drifted(clocks: list[float]) -> str:
    if not clocks or max(clocks) - min(clocks) <= DRIFT_LIMIT * median(clocks):
        return ""
    return f"the SM clock drifted between {min(clocks):.0f} and {max(clocks):.0f} MHz"


def _shared(others: int | None) -> list[str]:
    if not others:
        return []
    return ["another process used the GPU" if others == 1 else f"{others} other processes used the GPU"]


class Gpu:
    """NVML's view of one GPU; everything is None where nvidia-ml-py or the library is missing.

    ``coordinator`` is the process whose family is no stranger on the GPU: this one, or the one that started it.
    """

    def __init__(self, uuid: str, coordinator: int | None = None) -> None:
        self._coordinator = os.getpid() if coordinator is None else coordinator
        self._nvml: Any = None
        self._handle: Any = None
        self._own: set[int] = set()  # of the processes on the GPU
        self._strangers: set[int] = set()
        with suppress(Exception):  # NVML's errors are as many as its drivers, and none of them stops a measurement
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = pynvml

    def driver(self) -> str | None:
        """The driver's version, such as ``"580.159.04"``."""
        value = self._ask("nvmlSystemGetDriverVersion", handle=False)
        return value.decode() if isinstance(value, bytes) else value

    def telemetry(self) -> Telemetry:
        """A new series of readings, and who else is there at its beginning."""
        with span("telemetry"):
            return Telemetry(self._read, self._others())

    def memory(self) -> tuple[int, int] | None:
        """Its free bytes, and all of them."""
        found = self._ask("nvmlDeviceGetMemoryInfo")
        return None if found is None else (int(found.free), int(found.total))

    def processes(self) -> dict[int, int] | None:
        """What each process holds, in bytes, by process id; without those that NVML has no figure for."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else {p.pid: int(p.usedGpuMemory) for p in found if p.usedGpuMemory}

    def _read(self) -> Reading:
        if self._nvml is None:
            return Reading(None, None, None, None)
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Reading(
            self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            None if milliwatts is None else milliwatts / 1000,
            self._ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )

    def _others(self) -> int | None:
        """How many processes compute on the GPU that are neither the coordinator nor descend from it.

        None where NVML lists no processes that this one knows by number, as in a container: then its own are strangers too.
        """
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        if found is None:
            return None
        running = {int(process.pid) for process in found}
        self._own &= running
        self._strangers &= running
        if running - self._own - self._strangers:  # every process of the machine is looked at: not for each measurement
            self._own = _family(self._coordinator) & running
            self._strangers = running - self._own
        if running and not self._own:
            running = {pid for pid in running if Path(f"/proc/{pid}").exists()}
            if not running:
                return None
        return len(running - self._own)

    def _ask(self, name: str, *arguments: Any, handle: bool = True) -> Any:
        if self._nvml is None:
            return None
        with suppress(Exception):
            return getattr(self._nvml, name)(*((self._handle, *arguments) if handle else arguments))
        return None


def _family(coordinator: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # a process that has just ended
            parents[int(path.parent.name)] = int(path.read_text(errors="replace").rpartition(")")[2].split()[1])
    family = {coordinator}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family
