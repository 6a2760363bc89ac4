"""The GPU's clocks, temperature, power and throttling while something is measured, as far as NVML tells."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

# nvml.h, nvmlClocksThrottleReason…; idling and clocks that an administrator set are no disturbance.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Conditions:
    """What a measurement ran under; None where NVML does not say. ``throttle`` names the reasons seen, "" for none."""

    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttle: str | None = None


@dataclass
class Telemetry:
    """Samples of one measurement; ``read`` returns (MHz, °C, W, throttle bits), None for what is not known."""

    read: Callable[[], tuple[float | None, float | None, float | None, int | None]]
    _samples: list[tuple[float | None, float | None, float | None, int | None]] = field(default_factory=list)

    def sample(self) -> None:
        """Look now."""
        self._samples.append(self.read())

    def conditions(self) -> Conditions:
        """Median clock, highest temperature and power, every throttle reason seen."""
        clocks, temperatures, powers, bits = (
            [v for v in column if v is not None]
            for column in (zip(*self._samples, strict=True) if self._samples else [()] * 4)
        )
        seen = 0
        for value in bits:
            seen |= int(value)
        return Conditions(
            sm_clock_mhz=median(clocks) if clocks else None,
            temperature_c=max(temperatures, default=None),
            power_w=max(powers, default=None),
            throttle=", ".join(name for bit, name in _REASONS.items() if seen & bit) if bits else None,
        )


class Gpu:
    """NVML's view of one GPU; everything is None where nvidia-ml-py or the library is missing."""

    def __init__(self, uuid: str) -> None:
        self._nvml: Any = None
        self._handle: Any = None
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
        """A new series of samples."""
        return Telemetry(self._read)

    def memory(self) -> tuple[int, int] | None:
        """Its free bytes, and all of them."""
        found = self._ask("nvmlDeviceGetMemoryInfo")
        return None if found is None else (int(found.free), int(found.total))

    def processes(self) -> dict[int, int] | None:
        """What each process holds, in bytes, by process id; without those that NVML has no figure for."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else {p.pid: int(p.usedGpuMemory) for p in found if p.usedGpuMemory}

    def _read(self) -> tuple[float | None, float | None, float | None, int | None]:
        if self._nvml is None:
            return None, None, None, None
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return (
            self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            None if milliwatts is None else milliwatts / 1000,
            self._ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
        )

    def _ask(self, name: str, *arguments: Any, handle: bool = True) -> Any:
        if self._nvml is None:
            return None
        with suppress(Exception):
            return getattr(self._nvml, name)(*((self._handle, *arguments) if handle else arguments))
        return None
