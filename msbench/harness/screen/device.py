"""Screens nvcc's intermediate files: the files included, and the device code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from posixpath import normpath

from msbench.harness.screen.elf import ElfObject, Section, Symbol

MOST_BYTES = 2**20
"""Of all variables of a version on the device: they are compared after each call, and put back before each that is timed."""

_PER_LAUNCH = re.compile(r"\.nv\.(?:shared|local)(?:\..*)?")  # sections of what a block or a thread has while it runs
_SECTION_NAME = 3  # STT_SECTION

_KERNEL = re.compile(r'[^"=]*\b__global__\b[^"=]*\b__var_used__\b[^"=(]*?(?P<name>\w+)\(')
_MARKER = re.compile(r'^# \d+ "(?P<file>[^"\n]*)"(?P<flags>[ 0-9]*)$', re.MULTILINE)
_ENTERED, _SYSTEM = "1", "3"  # in a marker: its file begins; it was found where the compiler looks for <> alone
_EMPTY_KERNEL = "cub/util_device.cuh"  # whose only kernel does nothing, and is in every program that includes CUB
_SHARED = re.compile(r"msbench\w*\.cuh")  # kernels/include, whose headers are a version's own
_ENTRY = re.compile(r"\.nv\.info\.(?P<name>.+)")  # the section that each kernel of a cubin has

_RUNTIME = (
    (re.compile(r"malloc|free"), "allocates memory from the device"),
    (re.compile(r"cudaLaunchDevice\w*|cudaGetParameterBuffer\w*|__cudaCDP\w*|cudaCDP\w*|cudaStream\w*|cudaEvent\w*|cudaMem\w*"),
     "launches or copies from the device"),
)  # fmt: skip


def tricks(cubins: Sequence[ElfObject], declarations: str, file_name: str) -> str | None:
    """What the device code shows that no version without a library may do, as the rest of a sentence.

    Args:
        cubins: its machine code.
        declarations: nvcc's ``.cudafe1.gpu``, the device's half of the file as C, which says which file each kernel is from.
        file_name: what the file was compiled as.
    """
    if not cubins:
        return "leaves no machine code that could be looked at"
    return next((found for cubin in cubins for found in _found(cubin, declarations, file_name)), None)


def _found(cubin: ElfObject, declarations: str, file_name: str) -> Iterator[str]:
    files = dict(_kernels(declarations))
    for section in cubin.sections:
        found = _ENTRY.fullmatch(section.name)
        file = files.get(found["name"], file_name) if found else file_name
        name = file.rpartition("/")[2]
        if found and name != file_name and not _SHARED.fullmatch(name) and not file.endswith(_EMPTY_KERNEL):
            yield f"calls a library's own kernels ({found['name']}) in a version that declares none"
    for symbol in cubin.symbols:
        if symbol.undefined:
            yield from (f"{trick} ({symbol.name})" for names, trick in _RUNTIME if names.fullmatch(symbol.name))
    for section in cubin.sections:
        ends = (symbol.value + symbol.size for symbol in kept(cubin) if symbol.section == section)
        if _outlives(section) and section.size > max(ends, default=0):
            yield f"keeps something without a name in the device's memory ({section.name})"
    if (size := sum(symbol.size for symbol in kept(cubin))) > MOST_BYTES:
        yield f"declares {size} bytes of variables in the device's memory, of which {MOST_BYTES} are the most"


def kept(cubin: ElfObject) -> Iterator[Symbol]:
    """The variables in machine code: in global and in constant memory."""
    for symbol in cubin.symbols:
        stays = symbol.section is not None and (_outlives(symbol.section) or _in_constant_memory(symbol.section))
        if (stays or symbol.common) and symbol.name and symbol.size and symbol.kind != _SECTION_NAME:
            yield symbol


def _in_constant_memory(section: Section) -> bool:
    return section.name == ".nv.constant3"  # what files declare; other banks hold the compiler's numbers


def _outlives(section: Section) -> bool:
    return section.writable and _PER_LAUNCH.fullmatch(section.name) is None


def _kernels(declarations: str) -> Iterator[tuple[str, str]]:
    """Each kernel and the file that defines it, which nvcc names before it; the definition comes after other declarations."""
    file = ""
    for line in declarations.split("\n"):
        if found := _MARKER.fullmatch(line):
            file = found["file"]
        elif found := _KERNEL.match(line):
            yield found["name"], file


def includes(preprocessed: str, folder: str) -> str | None:
    """What the compiler itself says of the files that it took in: whether one is from outside, however its name was spelt.

    Args:
        preprocessed: nvcc's ``.ii``.
        folder: msbench's own headers. The toolkit's are beside its cuda_runtime.h, which comes before all others.
    """
    flags = ((found["file"], found["flags"].split()) for found in _MARKER.finditer(preprocessed))
    files = dict.fromkeys((file, _SYSTEM in flag) for file, flag in flags if _ENTERED in flag)
    toolkit = next((file.rpartition("/")[0] for file, _ in files if file.endswith("/cuda_runtime.h")), folder)
    for file, system in files:
        if system or file.startswith((f"{folder}/", f"{toolkit}/")):
            inside = _stays_inside(file)
        else:
            inside = not file.startswith("/") and ".." not in file.split("/")
        if not inside:
            return f"includes a file from outside: {file}"
    return None


def _stays_inside(header: str) -> bool:
    """Whether a path stays in the compiler's folder of headers, its first ``include``, which it may leave and come back to."""
    folder, found, _ = header.partition("/include/")
    return bool(found) and normpath(header).startswith(f"{normpath(folder)}/include/")
