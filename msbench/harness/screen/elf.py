"""Reads what is needed of an ELF file: sections and symbols. 64-bit and little-endian, as every host of a CUDA GPU is, and as
device code is; the tables are those of the System V ABI, "Object files"."""

from __future__ import annotations

import struct
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_SYMTAB = 2
_WRITE = 1  # SHF_WRITE
_COMMON = 0xFFF2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class Section(NamedTuple):
    """One section; ``offset`` in the file and ``size`` in bytes."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int

    @property
    def writable(self) -> bool:
        """Whether its contents may change while the program runs."""
        return bool(self.flags & _WRITE)


class Symbol(NamedTuple):
    """One symbol; ``kind`` is STT_*. ``undefined``: another object has to define it. ``common``: a C variable without a section yet."""

    name: str
    kind: int
    section: Section | None
    undefined: bool
    common: bool
    value: int
    size: int


class ElfObject:
    """An object file, a shared library or a cubin.

    Raises:
        ValueError: it is none, or of another class or byte order.
    """

    def __init__(self, path: Path) -> None:
        self._raw = path.read_bytes()
        if self._raw[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF file")
        offset, entry, count, names = (
            *struct.unpack_from("<Q", self._raw, 40),
            *struct.unpack_from("<3H", self._raw, 58),
        )
        if not count and offset:  # more sections than 16 bits hold: the first one's size is how many
            count = _SECTION.unpack_from(self._raw, offset)[5]
        headers = [_SECTION.unpack_from(self._raw, offset + n * entry) for n in range(count)]
        if names == 0xFFFF:
            names = headers[0][6]
        strings = headers[names][4] if headers else 0
        self.sections = tuple(Section(self._text(strings + h[0]), h[1], h[2], h[4], h[5], h[6]) for h in headers)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol, in the table's order."""
        table = next((s for s in self.sections if s.kind == _SYMTAB), None)
        if table is None:
            return ()
        strings = self.sections[table.link].offset
        found = []
        for offset in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, _, index, value, size = _SYMBOL.unpack_from(self._raw, offset)
            section = self.sections[index] if 0 < index < min(len(self.sections), 0xFF00) else None
            text = self._text(strings + name)
            undefined, common = index == 0 and bool(text), index == _COMMON
            found.append(Symbol(text, info & 15, section, undefined, common, value, size))
        return tuple(found)

    def _text(self, offset: int) -> str:
        return self._raw[offset : self._raw.index(b"\0", offset)].decode(errors="replace")
