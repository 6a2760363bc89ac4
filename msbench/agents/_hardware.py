"""What an architecture offers to one multiprocessor and one block."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msbench.model import Device


@dataclass(frozen=True)
class Architecture:
    """Limits of one generation. All have 64 Ki 32-bit registers a multiprocessor, at most 255 a thread."""

    name: str
    warps: int
    shared_kib: int
    shared_block_kib: int
    notes: str = ""


_TABLE = {
    "70": Architecture("Volta", 64, 96, 96, "tensor cores: fp16"),
    "75": Architecture("Turing", 32, 64, 64, "tensor cores: fp16"),
    "80": Architecture("Ampere", 64, 164, 163, "cp.async; tensor cores: bf16, tf32"),
    "86": Architecture("Ampere", 48, 100, 99, "cp.async; tensor cores: bf16, tf32"),
    "89": Architecture("Ada", 48, 100, 99, "cp.async; tensor cores: bf16, tf32"),
    "90": Architecture(
        "Hopper", 64, 228, 227, "cp.async, TMA, thread block clusters; tensor cores: bf16, tf32 (mma, wgmma)"
    ),
    "100": Architecture(
        "Blackwell", 64, 228, 227, "cp.async, TMA, thread block clusters; tensor cores: bf16, tf32 (mma, tcgen05)"
    ),
    "120": Architecture(
        "Blackwell", 48, 100, 99, "cp.async, TMA, thread block clusters; tensor cores: bf16, tf32 (mma)"
    ),
}
"""CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability"."""


def architecture(device: Device) -> Architecture | None:
    """The limits of ``device``; None for one that is not in the table, and for a CPU."""
    match = re.search(r"(\d+)\.?(\d)", device.arch) if device.kind == "cuda" else None
    return _TABLE.get(f"{match[1]}{match[2]}") if match else None
