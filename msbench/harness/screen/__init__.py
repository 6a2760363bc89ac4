"""Reads a version before it runs, and refuses what a launcher may not do: docs/contract.md, "What a file may call".

Five looks, none of which needs a GPU: at the file's text, at what nvcc's first steps make of it, at its host object before it
is linked, at its device code, at its machine code. What none of them can see is found by running (``check``, ``timing``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msbench import resources
from msbench.harness.screen import device, objects, rules
from msbench.harness.screen import source as text
from msbench.harness.screen.elf import ElfObject
from msbench.model import Candidate, Failure, Fault, Origin

__all__ = [
    "device_variables",
    "is_library",
    "look_at_device_code",
    "look_at_object",
    "look_at_preprocessed",
    "look_at_source",
    "variables",
]


def is_library(candidate: Candidate) -> bool:
    """Whether it may do what a library does: by where it lies, by what it links, or because it follows another contract."""
    return candidate.origin is Origin.LIBRARY or bool(candidate.link) or candidate.entry is not None


def look_at_source(candidate: Candidate) -> Failure | None:
    """Refuse a file for what its text says; None where nothing is wrong with it."""
    return _refused(
        text.tricks(candidate.source, is_library(candidate)) or _made_stream(candidate, text.names(candidate.source))
    )


def look_at_preprocessed(
    candidate: Candidate, path: Path, headers: Path, *, file_name: str, runtime_name: str
) -> Failure | None:
    """Refuse a file for what the cpu executor's preprocessor made of it (``source.preprocessed_tricks``)."""
    trick = text.preprocessed_tricks(_read(path), _read(headers), file_name, runtime_name, is_library(candidate))
    return _refused(trick)


def look_at_object(
    candidate: Candidate, path: Path, *, device_code: Path | None = None, links: bool = True
) -> Failure | None:
    """Refuse a file for what its host object calls, keeps or replaces.

    Args:
        device_code: its PTX, which knows its ``__constant__`` variables better than its text does.
        links: whether it could be linked.
    """
    own = _own_names(candidate)
    constants: dict[str, int | None] = (
        dict.fromkeys(text.constants(candidate.source))
        if device_code is None
        else {**device.constants(_read_ptx(device_code))}
    )
    obj = ElfObject(path)
    if device_code is None:
        constants |= dict.fromkeys(_of_templates(obj, constants))
    asked_for = candidate.directives.get("link", ())
    return _refused(
        objects.uncalled(obj, asked_for)
        or _made_stream(candidate, [symbol.name for symbol in obj.symbols if symbol.undefined])
        or objects.tricks(obj, own, constants, is_library(candidate), links, emulated=device_code is None)
    )


def _made_stream(candidate: Candidate, names: Iterable[str]) -> str | None:
    """That it makes a stream, which a library version may not either. Functions of another contract may: they are timed whole."""
    if candidate.entry is not None:
        return None
    rule = rules.MAKES_STREAM
    return next((f"{rule.trick} ({name})" for name in names if rule.names.fullmatch(name)), None)


def _own_names(candidate: Candidate) -> set[str]:
    """What a file and what msbench adds to it may define of the names by which a worker knows a version."""
    own = {candidate.operator, f"{candidate.operator}_workspace", "msbench_launch", "msbench_workspace"}
    if candidate.entry is not None:
        own |= {"msbench_prepare", "msbench_call", "msbench_finish", "msbench_live_bytes"}
    elif is_library(candidate):
        own |= {"msbench_choose_anew", "msbench_untimed_ns"}  # kernels/include/msbench_library.cuh
    return own


def variables(candidate: Candidate, path: Path, library: Path, anchor: str) -> list[tuple[str, int, int]]:
    """What may be written in the cpu executor's process and has to stay as it was: ``__constant__`` variables, above all.

    Name, place behind the function ``anchor`` in the linked ``library``, and bytes of each. None of a library version, which
    may keep state. ``path``: its object.
    """
    if is_library(candidate):
        return []
    own = {s.name for s in ElfObject(path).symbols if s.mutable and "11msbench_cpu" not in s.name}
    linked = ElfObject(library).symbols
    origin = next(s.value for s in linked if s.name == anchor)
    return [(s.name, s.value - origin, s.size) for s in linked if s.mutable and not s.common and s.name in own]


def _of_templates(obj: ElfObject, names: Iterable[str]) -> Iterator[str]:
    """What the object calls ``__constant__`` variable templates (as ``objects`` compares): what they were made for comes last."""
    for name in tuple(names):
        made = re.compile(rf"_Z(?:N\w*?)?L?{len(name)}{name}I\w+E")
        found = (s.name for s in obj.symbols if s.mutable and made.fullmatch(s.name))
        yield from map(objects.on_either_side, found)


def look_at_device_code(candidate: Candidate, folder: Path, name: str) -> Failure | None:
    """Refuse a file for what nvcc's intermediate files (``--keep``) in ``folder`` show; it was compiled as ``name``.cu."""
    if candidate.entry is None:
        headers = str(resources.include_dir())
        for preprocessed in folder.glob(f"{name}.*ii"):
            if trick := device.includes(_read(preprocessed), headers):
                return _refused(trick)
    host_trick = device.host_trick(_read(folder / f"{name}.cudafe1.cpp"), f"{name}.cu")
    if is_library(candidate):
        return _refused(host_trick)
    ptx = _read_ptx(folder / f"{name}.ptx")
    # nvcc writes host code for device variables: what they are is said before what that looks like.
    return _refused(
        device.tricks(ptx, _read(folder / f"{name}.cudafe1.gpu"), f"{name}.cu")
        or host_trick
        or _machine_code_trick(sorted(folder.glob(f"{name}.*cubin")), ptx)
    )


def device_variables(candidate: Candidate, folder: Path, name: str) -> list[str]:
    """What a version keeps in the device's memory, by the names there; see ``look_at_device_code``. None of a library version."""
    cubins = [] if is_library(candidate) else sorted(folder.glob(f"{name}.*cubin"))
    return sorted({variable.name for path in cubins for variable in device.kept(ElfObject(path))})


def _machine_code_trick(cubins: Sequence[Path], ptx: str) -> str | None:
    if not cubins:
        return "leaves no machine code that could be looked at"
    found = (device.tricks_of_machine_code(ElfObject(path), ptx) for path in cubins)
    return next((trick for trick in found if trick), None)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_ptx(path: Path) -> str:
    """With its line ends as they are: ptxas goes on with a comment where other readers see a new line."""
    return path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""


def _refused(trick: str | None) -> Failure | None:
    if trick is None:
        return None
    return Failure(Fault.FORBIDDEN, f"Refused before it ran: the file {trick}.")
