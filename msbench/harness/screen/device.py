"""Looks at what nvcc makes of a version on the way to its object, where macros are gone: at its device code, as PTX and as
machine code, for variables that outlive a launch, a library's kernels and calls into the device's runtime; at its host code for
what no symbol shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath

from msbench.harness.screen import rules
from msbench.harness.screen.elf import ElfObject, Section, Symbol
from msbench.harness.screen.ptx import UnreadableError, variables, without_comments

_ENTRY = re.compile(r"\.entry\s+(?P<name>[$\w]+)")
_EXTERNAL = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(?P<name>[$\w]+)")
_COMPILERS_OWN = re.compile(r"\$str(?:\$\d+)?|__unnamed_\d+|__(?:cudart|internal)_\w+")
"""Texts, and tables of sine, cosine and the like: variables that no declaration stands for."""

MOST_BYTES = 2**20
"""Of all variables of a version on the device: they are compared after each call, and put back before each that is timed."""

_PER_LAUNCH = re.compile(r"\.nv\.(?:shared|local)(?:\..*)?")  # sections of what a block or a thread has while it runs
_SECTION_NAME = 3  # STT_SECTION

_ENDS = r"(?=\s*(?:[\[;=]|\)\s*[(\[]))"  # behind a declared name
_STATIC = r"^[a-z ]*__device__\s+__var_used__\s(?P<type>(?:[^\n={;(]|\(\s*\*)*?)"
_KERNEL = re.compile(r'[^"=]*\b__global__\b[^"=]*\b__var_used__\b[^"=(]*?(?P<name>\w+)\(')
_MARKER = re.compile(r'^# \d+ "(?P<file>[^"\n]*)"(?P<flags>[ 0-9]*)$', re.MULTILINE)
_ENTERED, _SYSTEM = "1", "3"  # in a marker: its file begins; it was found where the compiler looks for <> alone
_EMPTY_KERNEL = "cub/util_device.cuh"  # whose only kernel does nothing, and is in every program that includes CUB

_LAUNCH_NUMBER = re.compile(r"%gridid(?!\w)", re.ASCII)  # what else a kernel could count its calls by

_RUNTIME = (
    (re.compile(r"vprintf"), "prints from the device"),
    (re.compile(r"malloc|free"), "allocates memory from the device"),
    (re.compile(r"cudaLaunchDevice\w*|cudaGetParameterBuffer\w*|__cudaCDP\w*|cudaCDP\w*|cudaStream\w*|cudaEvent\w*|cudaMem\w*"),
     "launches or copies from the device"),
)  # fmt: skip


def tricks(ptx: str, declarations: str, file_name: str) -> str | None:
    """What the device code shows that no version without a library may do, as the rest of a sentence.

    Args:
        ptx: as nvcc wrote it, for one architecture.
        declarations: nvcc's ``.cudafe1.gpu``, the device's half of the file as C, which says what is constant and where from.
        file_name: what the file was compiled as.
    """
    try:
        code = without_comments(ptx)
    except UnreadableError as odd:
        return f"writes PTX that can't be read with certainty ({odd})"
    return next(_found(code, declarations, file_name), None)


def _found(code: str, declarations: str, file_name: str) -> Iterator[str]:
    for found in _EXTERNAL.finditer(code):
        yield from _runtime_call(found["name"])
    if _LAUNCH_NUMBER.search(code):
        yield "asks for the number of its launch (%gridid)"
    files = dict(_kernels(declarations))
    for name in _ENTRY.findall(code):
        file = files.get(name, "")
        if file.rpartition("/")[2] != file_name and not file.endswith(_EMPTY_KERNEL):
            yield f"calls a library's own kernels ({name}) in a version that declares none"
    for variable in variables(code):
        as_nvcc = variable.size is not None and not variable.by_hand
        if variable.space == "global" and not (as_nvcc and _is_constant(variable.name, declarations)):
            yield _state(variable.name)


def tricks_of_machine_code(cubin: ElfObject, ptx: str) -> str | None:
    """What the machine code holds that its PTX, in which ``tricks`` finds nothing, does not account for.

    It does not hang on how PTX is read: whatever stays in the GPU's memory has its place and its name here.
    """
    return next(_found_in_machine_code(cubin, ptx), None)


def _found_in_machine_code(cubin: ElfObject, ptx: str) -> Iterator[str]:
    constant = {v.name: v.size for v in variables(without_comments(ptx)) if v.space == "global"}
    ends: dict[Section, int] = {}
    for symbol in cubin.symbols:
        if symbol.undefined:
            yield from _runtime_call(symbol.name)
        elif symbol.common or (_outlives(symbol.section) and symbol.kind != _SECTION_NAME):
            if constant.get(symbol.name) != symbol.size:
                yield _state(symbol.name)
            elif symbol.section is not None:
                ends[symbol.section] = max(symbol.value + symbol.size, ends.get(symbol.section, 0))
    for section in cubin.sections:
        if _outlives(section) and section.size > ends.get(section, 0):
            yield _state(f"without a name in {section.name}")
    if (size := sum(symbol.size for symbol in kept(cubin))) > MOST_BYTES:
        yield f"declares {size} bytes of tables in the device's memory, of which {MOST_BYTES} are the most"


def kept(cubin: ElfObject) -> Iterator[Symbol]:
    """The variables in machine code that ``tricks_of_machine_code`` has found to be constants, and those in constant memory."""
    for symbol in cubin.symbols:
        stays = _outlives(symbol.section) or (symbol.section is not None and _in_constant_memory(symbol.section))
        if stays and symbol.name and symbol.size and symbol.kind != _SECTION_NAME:
            yield symbol


def _in_constant_memory(section: Section) -> bool:
    return section.name == ".nv.constant3"  # what files declare; other banks hold the compiler's numbers


def _outlives(section: Section | None) -> bool:
    return section is not None and section.writable and _PER_LAUNCH.fullmatch(section.name) is None


def _runtime_call(name: str) -> Iterator[str]:
    return (f"{trick} ({name})" for names, trick in _RUNTIME if names.fullmatch(name))


def _state(name: str) -> str:
    return f"keeps state between calls (the device variable {name})"


def constants(ptx: str) -> dict[str, int]:
    """How many bytes each ``__constant__`` variable has, by its name in the host's object: there it has a shadow, which is no
    state. None where the PTX can't be read."""
    try:
        found = variables(without_comments(ptx))
    except UnreadableError:
        return {}
    return {v.name: v.size for v in found if v.space == "const" and v.size is not None}


def _kernels(declarations: str) -> Iterator[tuple[str, str]]:
    """Each kernel and the file that defines it, which nvcc names before it; the definition comes after other declarations."""
    file = ""
    for line in declarations.split("\n"):
        if found := _MARKER.fullmatch(line):
            file = found["file"]
        elif found := _KERNEL.match(line):
            yield found["name"], file


def _is_constant(name: str, declarations: str) -> bool:
    """Whether it is declared const itself, not only what it points to; tables that are looked up may lie in global memory."""
    declared = re.search(rf"{_STATIC}(?<![$\w]){re.escape(name)}{_ENDS}", declarations, re.MULTILINE)
    if declared is None:
        return _COMPILERS_OWN.fullmatch(name) is not None
    return _is_const(declared["type"], declarations)


def _is_const(declared: str, declarations: str, followed: tuple[str, ...] = ()) -> bool:
    """Whether what a declaration says before its name makes it const, also by the name of a type, which nvcc makes unique."""
    if re.search(r"\bconst\b", declared.rpartition("*")[2]):
        return True
    name = declared.strip()
    if name in followed or not re.fullmatch(r"\w+", name):
        return False
    meant = re.findall(rf"^typedef\s([^\n={{;]*?)(?<![$\w]){name}{_ENDS}", declarations, re.MULTILINE)
    return bool(meant) and all(_is_const(each, declarations, (*followed, name)) for each in meant)


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


def host_trick(host_code: str, file_name: str) -> str | None:
    """What the file's own part of its host code (nvcc's ``.cudafe1.cpp``) shows that no version may do."""
    own = "\n".join(_own_lines(host_code, file_name))
    if re.search(r"\b(?:__)?asm(?:__)?\b", own):
        return "holds assembly for the host"
    return rules.unseen_by_linkers(own)


def _own_lines(host_code: str, file_name: str) -> Iterator[str]:
    """Without the bodies of kernels, which nvcc puts between ``#if 0`` and ``#endif``, and those of lambdas in them once more."""
    inside, depth = False, 0
    for line in host_code.split("\n"):
        if depth or line == "#if 0":
            depth += line.startswith("#if") - (line == "#endif")
        elif line.startswith("#"):
            if found := _MARKER.fullmatch(line):
                inside = found["file"].rpartition("/")[2] == file_name
        elif inside:
            yield line
