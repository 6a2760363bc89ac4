"""The GPUs of this machine, asked from the driver itself: quick, and without a CUDA context."""

from __future__ import annotations

import ctypes
import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msbench.errors import DeviceError

# CUdevice_attribute in cuda.h.
_MULTIPROCESSORS, _L2_BYTES, _MAJOR, _MINOR = 16, 38, 75, 76
_BLOCKING_SYNC = 4  # CU_CTX_SCHED_BLOCKING_SYNC


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``index`` counts those that CUDA_VISIBLE_DEVICES leaves."""

    index: int
    uuid: str
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every GPU that CUDA sees; none where there is no driver or it does not start."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_gpu(cuda, index) for index in range(count.value))


def sleep_while_waiting(index: int) -> None:
    """Have this process's threads sleep while they wait for a GPU, in a context that is made later: others need the cores.

    The default is to spin, which hears sooner that work has ended. Where the driver refuses, it stays so.
    """
    with suppress(OSError):
        cuda = ctypes.CDLL("libcuda.so.1")
        device = ctypes.c_int()
        if not cuda.cuInit(0) and not cuda.cuDeviceGet(ctypes.byref(device), index):
            cuda.cuDevicePrimaryCtxSetFlags_v2(device, _BLOCKING_SYNC)


def choose(wanted: str | None, found: tuple[Gpu, ...] | None = None) -> Gpu:
    """The GPU of an index (``"0"``), or of a UUID or the beginning of one (``"GPU-1b2c"``); the first for None.

    Raises:
        DeviceError: there is none like that; the message lists those there are.
    """
    known = gpus() if found is None else found
    if not known:
        raise DeviceError("There is no NVIDIA GPU with a working driver here. Use --executor cpu or recorded.")
    if wanted is None:
        return known[0]
    matching = [g for g in known if wanted == str(g.index) or (wanted.startswith("GPU-") and g.uuid.startswith(wanted))]
    if len(matching) != 1:
        listing = "; ".join(f"{g.index}: {g.name}, {g.uuid}" for g in known)
        raise DeviceError(f"--device {wanted!r} names {len(matching) or 'no'} GPU(s). There are: {listing}.")
    return matching[0]


def driver_version() -> str:
    """The driver's version, such as ``"580.159.04"``; "" where /proc does not say."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else ""


def host_name() -> str:
    """The GPU's host: the CPU and its number of cores."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return f"{found[1].strip() if found else 'unknown processor'}, {os.cpu_count()} cores"


def _gpu(cuda: Any, index: int) -> Gpu:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    name, raw = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
    calls = (
        cuda.cuDeviceGet(ctypes.byref(device), index),
        cuda.cuDeviceGetName(name, len(name), device),
        cuda.cuDeviceGetUuid_v2(raw, device),
        cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
    )
    if any(calls):
        raise DeviceError(f"The driver does not describe GPU {index} (cuda.h error {next(filter(None, calls))}).")

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return Gpu(
        index=index,
        uuid=f"GPU-{uuid.UUID(bytes=bytes(raw))}",
        name=name.value.decode(errors="replace"),
        capability=(attribute(_MAJOR), attribute(_MINOR)),
        multiprocessors=attribute(_MULTIPROCESSORS),
        memory_bytes=memory.value,
        l2_bytes=attribute(_L2_BYTES),
    )
