"""Reads what the screen needs of an ELF object: sections, symbols and relocations. 64-bit and little-endian, as every host
of a CUDA GPU is; the tables are those of the System V ABI, "Object files"."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_SYMTAB, _RELA, _REL = 2, 4, 9
_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY = 14, 15, 16
_WRITE = 1  # SHF_WRITE
_TLS = 1 << 10  # SHF_TLS
_COMMON = 0xFFF2
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Section:
    """One section; ``size`` in bytes."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry_size: int

    @property
    def writable(self) -> bool:
        """Whether its contents may change while the program runs."""
        return bool(self.flags & _WRITE)

    @property
    def runs_code(self) -> bool:
        """Whether it lists functions that the loader calls."""
        return self.kind in (_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY) or self.name.startswith((".ctors", ".dtors"))


@dataclass(frozen=True)
class Symbol:
    """One symbol; ``kind`` is STT_* and ``bind`` STB_*. ``undefined``: another object has to define it. ``common``: a C
    variable without a section yet."""

    name: str
    bind: int
    kind: int
    visibility: int
    section: Section | None
    undefined: bool
    common: bool
    size: int

    @property
    def is_global(self) -> bool:
        """Whether other objects see it."""
        return self.bind != 0

    @property
    def is_resolver(self) -> bool:
        """Whether the loader calls it to choose what the name stands for (STT_GNU_IFUNC)."""
        return self.kind == 10

    @property
    def is_object(self) -> bool:
        """Whether it is a variable: of the process, or of each thread."""
        return self.kind in (1, 6)

    @property
    def mutable(self) -> bool:
        """Whether it is a variable that may change."""
        return self.common or (self.is_object and self.section is not None and self.section.writable)


class ElfObject:
    """An object file.

    Raises:
        ValueError: it is none, or of another class or byte order.
    """

    def __init__(self, path: Path) -> None:
        self._raw = path.read_bytes()
        if self._raw[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path} is no 64-bit little-endian ELF object")
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
        self.sections = tuple(
            Section(self._text(strings + h[0]), h[1], h[2], h[4], h[5], h[6], h[7], h[9]) for h in headers
        )

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol, in the table's order."""
        table = next((s for s in self.sections if s.kind == _SYMTAB), None)
        if table is None:
            return ()
        strings = self.sections[table.link].offset
        found = []
        for offset in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, other, index, _, size = _SYMBOL.unpack_from(self._raw, offset)
            section = self.sections[index] if 0 < index < min(len(self.sections), 0xFF00) else None
            text = self._text(strings + name)
            undefined, common = index == 0 and bool(text), index == _COMMON
            found.append(Symbol(text, info >> 4, info & 15, other & 3, section, undefined, common, size))
        return tuple(found)

    def references(self, name: str) -> int:
        """How many places of the program refer to a symbol; debug information does not count."""
        wanted = {number for number, symbol in enumerate(self.symbols) if symbol.name == name}
        count = 0
        for section in self.sections:
            if section.kind not in (_RELA, _REL) or ".debug" in section.name:
                continue
            step = section.entry_size or (24 if section.kind == _RELA else 16)
            for offset in range(section.offset, section.offset + section.size, step):
                (info,) = struct.unpack_from("<Q", self._raw, offset + 8)
                count += info >> 32 in wanted
        return count

    def _text(self, offset: int) -> str:
        return self._raw[offset : self._raw.index(b"\0", offset)].decode(errors="replace")
