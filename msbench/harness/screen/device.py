"""Looks at what nvcc makes of a version on the way to its object, where macros are gone: at its device code for variables that
outlive a launch, a library's kernels and calls into the device's runtime; at its host code for what no symbol shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msbench.harness.screen import rules

_UNREAD = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)  # a comment may seem to begin within a text
_BODY = re.compile(r"\.(?:entry|func)\b[^;{]*\{")  # of the first function: nvcc declares a file's variables before it
_DECLARED = re.compile(
    r"(?:^|[{};:])\s*(?:\.(?:visible|weak|extern|common)\s+)*\.(?P<space>global|const)\b(?P<rest>[^;{=]*)", re.MULTILINE
)
_VARIABLE = re.compile(r"(?P<name>[$%\w]+)\s*(?:\[(?P<size>\d*)\]\s*)*$")
_WIDTH = re.compile(r"\.[bsuf](?P<bits>\d+)\b")
_ENTRY = re.compile(r"\.entry\s+(?P<name>[$\w]+)")
_EXTERNAL = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(?P<name>[$\w]+)")
_COMPILERS_OWN = re.compile(r"\$str(?:\$\d+)?|__unnamed_\d+|__(?:cudart|internal)_\w+")
"""Texts, and tables of sine, cosine and the like: variables that no declaration stands for."""

_STATIC = r"^[a-z ]*__device__\s+__var_used__\s(?P<type>(?:[^\n={;(]|\(\s*\*)*?)"
_KERNEL = re.compile(r'[^"=]*\b__global__\b[^"=]*\b__var_used__\b[^"=(]*?(?P<name>\w+)\(')
_MARKER = re.compile(r'^# \d+ "(?P<file>[^"\n]*)"(?P<flags>[ 0-9]*)$', re.MULTILINE)
_ENTERED, _SYSTEM = "1", "3"  # in a marker: its file begins; it was found where the compiler looks for <> alone
_HEADERS = re.compile(r"/.*/include/(?!(?:.*/)?\.\./).*")
_EMPTY_KERNEL = "cub/util_device.cuh"  # whose only kernel does nothing, and is in every program that includes CUB

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
    return next(_found(_UNREAD.sub(" ", ptx), declarations, file_name), None)


def _found(ptx: str, declarations: str, file_name: str) -> Iterator[str]:
    for found in _EXTERNAL.finditer(ptx):
        for names, trick in _RUNTIME:
            if names.fullmatch(found["name"]):
                yield f"{trick} ({found['name']})"
    files = dict(_kernels(declarations))
    for name in _ENTRY.findall(ptx):
        file = files.get(name, "")
        if file.rpartition("/")[2] != file_name and not file.endswith(_EMPTY_KERNEL):
            yield f"calls a library's own kernels ({name}) in a version that declares none"
    body = _BODY.search(ptx)
    for found in _DECLARED.finditer(ptx):
        if found["space"] == "const":
            continue
        variable = _VARIABLE.search(found["rest"].strip())
        name = variable["name"] if variable else "of an asm statement"
        by_hand = variable is None or (body is not None and found.end() > body.end())
        if by_hand or ".attribute(.managed)" in found["rest"] or not _is_constant(name, declarations):
            yield f"keeps state between calls (the device variable {name})"


def constants(ptx: str) -> dict[str, int]:
    """How many bytes each ``__constant__`` variable has, by its name in the host's object: there it has a shadow, which is no
    state."""
    found: dict[str, int] = {}
    for declared in _DECLARED.finditer(_UNREAD.sub(" ", ptx)):
        variable, width = _VARIABLE.search(declared["rest"].strip()), _WIDTH.search(declared["rest"])
        if declared["space"] == "const" and variable and width:
            found[variable["name"]] = int(width["bits"]) // 8 * int(variable["size"] or 1)
    return found


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
    ends = r"\s*(?:[\[;=]|\)\s*[(\[])"
    declared = re.search(rf"{_STATIC}(?<![$\w]){re.escape(name)}(?={ends})", declarations, re.MULTILINE)
    if declared is None:
        return _COMPILERS_OWN.fullmatch(name) is not None
    return re.search(r"\bconst\b", declared["type"].rpartition("*")[2]) is not None


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
            inside = _HEADERS.fullmatch(file) is not None
        else:
            inside = not file.startswith("/") and ".." not in file.split("/")
        if not inside:
            return f"includes a file from outside: {file}"
    return None


def host_trick(host_code: str, file_name: str) -> str | None:
    """What the file's own part of its host code (nvcc's ``.cudafe1.cpp``) shows that no version may do."""
    own = "\n".join(_own_lines(host_code, file_name))
    if re.search(r"\b(?:__)?asm(?:__)?\b", own):
        return "holds assembly for the host"
    return rules.unseen_by_linkers(own)


def _own_lines(host_code: str, file_name: str) -> Iterator[str]:
    text = re.sub(r"^#if 0\n.*?^#endif$", "", host_code, flags=re.DOTALL | re.MULTILINE)
    inside = False
    for line in text.split("\n"):
        if line.startswith("#"):
            if found := _MARKER.fullmatch(line):
                inside = found["file"].rpartition("/")[2] == file_name
        elif inside:
            yield line
