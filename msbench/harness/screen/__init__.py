"""Static screening before anything runs: a version's includes, and device code that can't be replayed.

What its launcher does is recorded, not screened (``gpu/recorder.py``).
"""

from __future__ import annotations

from pathlib import Path

from msbench import resources
from msbench.harness.screen import device
from msbench.harness.screen import source as text
from msbench.harness.screen.elf import ElfObject
from msbench.model import Candidate, Failure, Fault, Origin

__all__ = ["ElfObject", "device_variables", "is_library", "look_at_device_code", "look_at_source"]


def is_library(candidate: Candidate) -> bool:
    """Whether it may do what a library does: by its place, by what it links, or because it follows another contract."""
    return candidate.origin is Origin.LIBRARY or bool(candidate.link) or candidate.entry is not None


def look_at_source(candidate: Candidate) -> Failure | None:
    """Refuse a file for its text; None if nothing is wrong."""
    return _refused(text.tricks(candidate.source))


def look_at_device_code(candidate: Candidate, folder: Path, name: str, *, compiled: bool = True) -> Failure | None:
    """Refuse a file for what nvcc's intermediate files (``--keep``) in ``folder`` show; it was compiled as ``name``.cu.

    Where it is not ``compiled``, that there is no machine code is the compiler's to explain.
    """
    if candidate.entry is None:
        headers = str(resources.include_dir())
        for preprocessed in folder.glob(f"{name}.*ii"):
            if trick := device.includes(_read(preprocessed), headers):
                return _refused(trick)
    if is_library(candidate):
        return None
    cubins = _cubins(folder, name)
    if not cubins and not compiled:
        return None
    return _refused(device.tricks(cubins, _read(folder / f"{name}.cudafe1.gpu"), f"{name}.cu"))


def device_variables(candidate: Candidate, folder: Path, name: str) -> list[str]:
    """What a version keeps in the device's memory, by the names there; see ``look_at_device_code``. None of a library version."""
    cubins = [] if is_library(candidate) else _cubins(folder, name)
    return sorted({variable.name for cubin in cubins for variable in device.kept(cubin)})


def _cubins(folder: Path, name: str) -> list[ElfObject]:
    return [ElfObject(path) for path in sorted(folder.glob(f"{name}.*cubin"))]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _refused(trick: str | None) -> Failure | None:
    if trick is None:
        return None
    return Failure(Fault.FORBIDDEN, f"Refused before it ran: the file {trick}.")
