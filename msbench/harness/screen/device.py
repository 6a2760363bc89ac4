"""Looks at a version's device code: variables that outlive a launch, a library's kernels, calls into the device's runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator

_GLOBAL = re.compile(r"^\s*(?:\.(?:visible|weak|extern|common)\s+)*\.global\b(?P<rest>[^;{=]*)", re.MULTILINE)
_VARIABLE = re.compile(r"(?P<name>[$%\w]+)(?:\[(?P<size>\d*)\])*\s*$")
_ENTRY = re.compile(r"\.entry\s+(?P<name>[$\w]+)")
_EXTERNAL = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(?P<name>[$\w]+)")
_INTERNAL = re.compile(r"_ZN\d+_INTERNAL_[0-9a-f]+_\d+_\w+?_cu_[0-9a-f]{8}")
_LIBRARY_VARIABLE = re.compile(r"_ZN(?:St|4cuda|3cub|6thrust|18cooperative_groups|2cg|8nvcuda)\w*")
_MATHEMATICS = re.compile(r"__(?:cudart|nv|internal)_\w+")  # tables of sine, cosine and the like, linked in later
_TEXT = re.compile(r"\$str\w*|__unnamed_\d+|\w*__PRETTY_FUNCTION__|\w*__func__|\w*__FUNCTION__")
_LIBRARY_KERNEL = re.compile(r"_ZN(?:3cub|6thrust|7cutlass)\w*")
_EMPTY_KERNEL = re.compile(r"\w*11EmptyKernel\w*")  # CUB's, in every program that includes it

_RUNTIME = (
    (re.compile(r"vprintf"), "prints from the device"),
    (re.compile(r"malloc|free"), "allocates memory from the device"),
    (re.compile(r"cudaLaunchDevice\w*|cudaGetParameterBuffer\w*|__cudaCDP\w*|cudaCDP\w*|cudaStream\w*|cudaEvent\w*|cudaMem\w*"),
     "launches or copies from the device"),
)  # fmt: skip


def tricks(ptx: str, declarations: str) -> str | None:
    """What the device code shows that no version without a library may do, as the rest of a sentence.

    Args:
        ptx: as nvcc wrote it, for one architecture.
        declarations: nvcc's ``.cudafe1.gpu``, the device's half of the file as C, which says what is constant.
    """
    return next(_found(ptx, declarations), None)


def _found(ptx: str, declarations: str) -> Iterator[str]:
    for found in _EXTERNAL.finditer(ptx):
        for names, trick in _RUNTIME:
            if names.fullmatch(found["name"]):
                yield f"{trick} ({found['name']})"
    for found in _ENTRY.finditer(ptx):
        name = found["name"]
        if _LIBRARY_KERNEL.fullmatch(name) and not _EMPTY_KERNEL.fullmatch(name):
            yield f"calls a library's own kernels ({name}) in a version that declares none"
    for found in _GLOBAL.finditer(ptx):
        variable = _VARIABLE.search(found["rest"].strip())
        if variable is None:
            continue
        name = _INTERNAL.sub("_ZN", variable["name"])
        if _TEXT.fullmatch(name) or (_LIBRARY_VARIABLE.fullmatch(name) and variable["size"] == "1"):
            continue
        if _MATHEMATICS.fullmatch(name) and name not in declarations:
            continue
        if ".attribute(.managed)" in found["rest"] or not _is_constant(name, declarations):
            yield f"keeps state between calls (the device variable {name})"


def _is_constant(name: str, declarations: str) -> bool:
    """Whether a declaration of it says const; tables that are looked up may lie in global memory."""
    plain = re.escape(name)
    return (
        re.search(rf"^[^\n({{]*\bconst\b[^\n=(;{{]*\b{plain}\b\s*(?:\[[^\]]*\]\s*)*(?:=|;)", declarations, re.MULTILINE)
        is not None
    )


def host_assembly(host_code: str, file_name: str) -> bool:
    """Whether the host's half of a file (nvcc's ``.cudafe1.cpp``) has an asm statement of the file's own."""
    text = re.sub(r"^#if 0\n.*?^#endif$", "", host_code, flags=re.DOTALL | re.MULTILINE)
    inside = False
    for line in text.splitlines():
        if line.startswith("#"):
            if found := re.match(r'# (?:line )?\d+ "([^"]*)"', line):
                inside = found[1].rpartition("/")[2] == file_name
        elif inside and re.search(r"\b(?:__)?asm(?:__)?\b", line):
            return True
    return False
