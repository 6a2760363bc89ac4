"""What a measurement ran under, as a fake NVML tells it: clocks, throttling, and who else uses the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from msbench.gpu import telemetry
from msbench.gpu.telemetry import Conditions, Reading, Telemetry


class FakeNvml:
    """pynvml of one GPU; ``fails`` names functions that this driver does not support."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        self.clocks = [1980]
        self.bits = [0]
        self.pids: list[int] = []
        self.fails: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.fails:
            raise RuntimeError("Not Supported")
        return super().__getattribute__(name)

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return self.clocks.pop(0) if len(self.clocks) > 1 else self.clocks[0]

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        return 45

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 350_000

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.bits.pop(0) if len(self.bits) > 1 else self.bits[0]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture
def child() -> Iterator[int]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


def seen(samples: int = 1) -> Conditions:
    series = telemetry.Gpu("GPU-0").telemetry()
    for _ in range(samples):
        series.sample()
    return series.conditions()


def test_a_steady_gpu_of_ones_own(nvml: FakeNvml) -> None:
    nvml.bits = [0x01]  # idle, which is no disturbance
    nvml.pids = [os.getpid()]
    assert seen() == Conditions(1980, 45, 350.0, "")


def test_held_down_clocks_are_named_with_their_share(nvml: FakeNvml) -> None:
    nvml.bits = [0x01, 0x04, 0x24, 0x00]
    found = seen(4)
    held = "clocks were held down by the power cap and software's thermal limit for 50% of the time"
    assert (found.throttle, found.unsteady) == (held, True)


def test_clocks_that_drift_are_noticed(nvml: FakeNvml) -> None:
    nvml.clocks = [1980, 1965, 1980]  # one step of the clock
    assert seen(3) == Conditions(1980, 45, 350.0, "")
    nvml.clocks = [1980, 1980, 1905]
    assert seen(3) == Conditions(1980, 45, 350.0, "the SM clock drifted between 1905 and 1980 MHz", unsteady=True)


def test_other_processes_on_the_gpu_are_counted(nvml: FakeNvml, child: int) -> None:
    nvml.pids = [os.getpid(), child]
    assert seen().throttle == ""
    nvml.pids = [os.getpid(), child, os.getppid()]
    assert seen().throttle == "another process used the GPU"
    nvml.pids = [os.getppid(), 1]
    found = seen()
    assert found.throttle == "2 other processes used the GPU"
    assert not found.unsteady  # measuring again does not send them away


def test_whose_processes_they_are_is_asked_once(nvml: FakeNvml, child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, family = list[int](), telemetry._family
    monkeypatch.setattr(telemetry, "_family", lambda pid: asked.append(pid) or family(pid))
    nvml.pids, gpu = [os.getpid(), os.getppid()], telemetry.Gpu("GPU-0")
    assert [gpu.telemetry().others for _ in range(3)] == [1, 1, 1] and len(asked) == 1
    nvml.pids.append(child)
    assert [gpu.telemetry().others for _ in range(3)] == [1, 1, 1] and len(asked) == 2


def test_who_started_this_process_is_no_stranger_if_it_leads(nvml: FakeNvml, child: int) -> None:
    nvml.pids = [os.getpid(), child]
    for lead, others in ((os.getppid(), 0), (os.getpid(), 0), (child, 1)):
        assert telemetry.Gpu("GPU-0", lead).telemetry().others == others


def test_processes_of_another_namespace_are_not_taken_for_strangers(nvml: FakeNvml) -> None:
    nvml.pids = [2**22 + 7]  # no process has this number here
    nvml.fails = {"nvmlDeviceGetCurrentClocksThrottleReasons"}
    assert seen().throttle is None


def test_what_a_driver_does_not_tell_is_not_known(nvml: FakeNvml) -> None:
    nvml.fails = {"nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerUsage"}
    assert seen() == Conditions(None, 45, None, "")


def test_without_nvml_nothing_is_known() -> None:
    assert seen() == Conditions()
    assert Telemetry(lambda: Reading(None, None, None, None)).conditions() == Conditions()
