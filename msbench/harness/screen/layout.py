"""Looks at how an object is laid out: whether its sections and symbols are such as a compiler makes of code and data.

What a section is called decides where the linker puts it, whatever it holds: what the compiler thinks is constant may come
to lie among variables, and a table among functions. So only names that a compiler gives by itself are let through, each with
the kind and the flags that go with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msbench.harness.screen.elf import ElfObject, Section, Symbol

_CONTENT, _NOTE, _EMPTY = 1, 7, 8  # SHT_PROGBITS, SHT_NOTE, SHT_NOBITS
_UNWINDING = 0x70000001  # SHT_X86_64_UNWIND
_GROUPED, _COMPRESSED = 0x200, 0x800  # SHF_GROUP, SHF_COMPRESSED: of no matter where it ends up
_SECTIONS = tuple(
    (re.compile(names), kinds, flags)
    for names, kinds, flags in (
        (r"\.text(\..+)?", (_CONTENT,), (0x6,)),
        (r"\.rodata(\..+)?", (_CONTENT,), (0x2, 0x12, 0x32)),
        (r"\.data(\..+)?", (_CONTENT,), (0x3,)),
        (r"\.bss(\..+)?", (_EMPTY,), (0x3,)),
        (r"\.tdata(\..+)?", (_CONTENT,), (0x403,)),
        (r"\.tbss(\..+)?", (_EMPTY,), (0x403,)),
        (r"\.(init|fini)_array(\.\d+)?", (14, 15), (0x3,)),
        (r"\.eh_frame", (_CONTENT, _UNWINDING), (0x2,)),
        (r"\.gcc_except_table(\..+)?|\.nv_fatbin|__nv_module_id", (_CONTENT,), (0x2,)),
        (r"\.nvFatBinSegment", (_CONTENT,), (0x3,)),
        (r"\.note\.gnu\.property", (_NOTE,), (0x2,)),
        (r"\.note\.GNU-stack", (_CONTENT,), (0,)),
        (r"\.comment|\.debug_\w+", (_CONTENT,), (0, 0x30)),
        (r"\.symtab|\.strtab|\.shstrtab|\.group", (2, 3, 17), (0,)),
        (r"\.rela[._].+", (4,), (0x40,)),
        (r"", (0,), (0,)),
    )
)
_PADDING = set(b"\x00\x0f\x1f\x2e\x40\x44\x66\x80\x84\x90\xcc")
"""What instructions that do nothing are made of."""

_KINDS = {0, 1, 2, 3, 4, 6, 10}
"""STT_*: no type, variable, function, section, file, variable of a thread, resolver."""


def tricks(obj: ElfObject) -> Iterator[str]:
    """What no compiler makes of a file by itself, each as the rest of a sentence that begins with "the file"."""
    for section in obj.sections:
        if not _is_known(section):
            yield f"puts {'code' if section.executable else 'data'} into section {section.name or 'without a name'}"
    for symbol in obj.symbols:
        if trick := _misplaced(symbol):
            yield f"{trick} ({symbol.name})"
    for section in obj.sections:
        if section.executable and any(set(held) - _PADDING for held in obj.between_functions(section)):
            yield f"holds assembly for the host (what lies between the functions of {section.name})"


def _is_known(section: Section) -> bool:
    flags = section.flags & ~(_GROUPED | _COMPRESSED)
    return any(
        names.fullmatch(section.name) and section.kind in kinds and flags in known for names, kinds, known in _SECTIONS
    )


def _misplaced(symbol: Symbol) -> str | None:
    if symbol.kind not in _KINDS or symbol.is_number:
        return "holds assembly for the host"
    if symbol.section is None:
        return None
    if symbol.is_function and not symbol.section.executable:
        return "says that data is a function"
    if symbol.section.executable and symbol.kind in (0, 1, 6):
        return "keeps data among its code"
    return None
