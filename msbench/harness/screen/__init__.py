"""Reads a version before it runs, and refuses what a launcher may not do: docs/contract.md, "What a file may call".

Three looks, none of which needs a GPU: at the file's text, at its host object before it is linked, at its device code. What
none of them can see is found by running (``check``, ``timing``).
"""

from __future__ import annotations

from pathlib import Path

from msbench.harness.screen import device, objects
from msbench.harness.screen import source as text
from msbench.harness.screen.elf import ElfObject
from msbench.model import Candidate, Failure, Fault, Origin

__all__ = ["is_library", "look_at_device_code", "look_at_object", "look_at_source"]


def is_library(candidate: Candidate) -> bool:
    """Whether it may do what a library does: by where it lies, by what it links, or because it follows another contract."""
    return candidate.origin is Origin.LIBRARY or bool(candidate.link) or candidate.entry is not None


def look_at_source(candidate: Candidate) -> Failure | None:
    """Refuse a file for what its text says; None where nothing is wrong with it."""
    return _refused(text.tricks(candidate.source, is_library(candidate)))


def look_at_object(candidate: Candidate, path: Path, *, links: bool = True) -> Failure | None:
    """Refuse a file for what its host object calls, keeps or replaces; ``links``: whether it could be linked."""
    own = {candidate.operator, f"{candidate.operator}_workspace", "msbench_launch", "msbench_workspace"}
    constants = text.constants(candidate.source)
    return _refused(objects.tricks(ElfObject(path), own, constants, is_library(candidate), links))


def look_at_device_code(candidate: Candidate, folder: Path, name: str) -> Failure | None:
    """Refuse a file for what nvcc's intermediate files (``--keep``) in ``folder`` show; it was compiled as ``name``.cu."""
    host = _read(folder / f"{name}.cudafe1.cpp")
    if device.host_assembly(host, f"{name}.cu"):
        return _refused("holds assembly for the host")
    if is_library(candidate):
        return None
    return _refused(device.tricks(_read(folder / f"{name}.ptx"), _read(folder / f"{name}.cudafe1.gpu")))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _refused(trick: str | None) -> Failure | None:
    if trick is None:
        return None
    return Failure(Fault.FORBIDDEN, f"Refused before it ran: the file {trick}.")
