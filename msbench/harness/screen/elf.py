"""Reads what the screen needs of an ELF object: sections, symbols and relocations. 64-bit and little-endian, as every host
of a CUDA GPU is; the tables are those of the System V ABI, "Object files"."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

_SYMTAB, _RELA = 2, 4
_INIT_ARRAY, _FINI_ARRAY, _PREINIT_ARRAY = 14, 15, 16
_WRITE = 1  # SHF_WRITE
_EXECUTABLE = 4  # SHF_EXECINSTR
_COMMON = 0xFFF2
_FUNCTION = 2  # STT_FUNC
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_AHEAD = {1: (0,), 2: (4, 5, 6, 8), 10: (0,), 11: (0,), 24: (0,)}
"""Relocations that hold a place's address, and how far behind the symbol and the addend it may lie: R_X86_64_PC32 counts from
the next instruction, and up to four bytes of a constant may lie before that. All others are for a symbol's first byte."""


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

    @property
    def writable(self) -> bool:
        """Whether its contents may change while the program runs."""
        return bool(self.flags & _WRITE)

    @property
    def executable(self) -> bool:
        """Whether it holds code."""
        return bool(self.flags & _EXECUTABLE)

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
    value: int
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
    def is_function(self) -> bool:
        """Whether it can be called; one that has to be resolved first too."""
        return self.kind in (_FUNCTION, 10)

    @property
    def is_number(self) -> bool:
        """Whether it stands for a number: neither another object's, nor in a section, nor the name of a file."""
        return bool(self.name) and not (self.undefined or self.common) and self.section is None and self.kind != 4

    @property
    def is_label(self) -> bool:
        """Whether it is a place among variables that assembly has given a name, and no type."""
        return self.kind == 0 and self.section is not None and self.section.writable

    @property
    def mutable(self) -> bool:
        """Whether it is a variable that may change."""
        return self.common or (self.is_object and self.section is not None and self.section.writable)


class Relocation(NamedTuple):
    """A place of a section that the linker fills in; ``symbol`` is a number in the table, ``kind`` R_*."""

    offset: int
    kind: int
    symbol: int
    addend: int


def _within(variable: Symbol, at: int) -> bool:
    return variable.value <= at < variable.value + variable.size


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
        self.sections = tuple(Section(self._text(strings + h[0]), h[1], h[2], h[4], h[5], h[6], h[7]) for h in headers)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """Every symbol, in the table's order."""
        table = next((s for s in self.sections if s.kind == _SYMTAB), None)
        if table is None:
            return ()
        strings = self.sections[table.link].offset
        found = []
        for offset in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, info, other, index, value, size = _SYMBOL.unpack_from(self._raw, offset)
            section = self.sections[index] if 0 < index < min(len(self.sections), 0xFF00) else None
            text = self._text(strings + name)
            undefined, common = index == 0 and bool(text), index == _COMMON
            found.append(Symbol(text, info >> 4, info & 15, other & 3, section, undefined, common, value, size))
        return tuple(found)

    def references(self, name: str) -> int:
        """How many places of the program refer to a symbol; debug information does not count."""
        return self._references[name]

    @cached_property
    def _references(self) -> Counter[str]:
        symbols = self.symbols
        places = (place for s in self.sections if ".debug" not in s.name for place in self._relocations(s))
        return Counter(symbols[place.symbol].name for place in places)

    @cached_property
    def loaded(self) -> tuple[str, ...]:
        """The functions that the loader calls; "" for a place that no symbol names."""
        places = (p for t in self.sections if self._target(t).runs_code for p in self._relocations(t))
        symbols = ((self.symbols[p.symbol], p.addend) for p in places)
        return tuple(self._function(s.section, s.value + addend) for s, addend in symbols)

    def users(self, variable: Symbol) -> set[str]:
        """The functions and the sections of data that refer to a place within a variable, by name."""
        return {
            self._function(source, offset) or source.name
            for source, offset, meant in self._places[id(variable.section)]
            if any(_within(variable, at) for at in meant)
        }

    def strays(self, section: Section) -> bool:
        """Whether anything refers to a place of a section that lies within none of its variables."""
        variables = [s for s in self.inside(section) if s.is_object]
        return any(
            not any(_within(v, at) for v in variables for at in meant) for _, _, meant in self._places[id(section)]
        )

    def inside(self, section: Section | None) -> Sequence[Symbol]:
        """The symbols of a section."""
        return self._inside[id(section)]

    @cached_property
    def _inside(self) -> defaultdict[int, list[Symbol]]:
        found = defaultdict(list)
        for symbol in self.symbols:
            found[id(symbol.section)].append(symbol)
        return found

    @cached_property
    def _places(self) -> defaultdict[int, list[tuple[Section, int, list[int]]]]:
        """What refers to each section, but for debug information: from where, and which places of it it may mean."""
        found = defaultdict(list)
        for table in self.sections:
            source = self._target(table)
            if ".debug" in source.name:
                continue
            for place in self._relocations(table):
                symbol = self.symbols[place.symbol]
                if symbol.section is not None:
                    ahead = _AHEAD.get(place.kind)
                    meant = [symbol.value + place.addend + n for n in ahead] if ahead else [symbol.value]
                    found[id(symbol.section)].append((source, place.offset, meant))
        return found

    def between_functions(self, section: Section) -> Iterator[bytes]:
        """What a section of code holds before, between and behind its functions."""
        end = 0
        functions = sorted((s.value, s.value + s.size) for s in self.inside(section) if s.is_function)
        for start, stop in (*functions, (section.size, section.size)):
            if start > end:
                yield self._raw[section.offset + end : section.offset + start]
            end = max(end, stop)

    def _function(self, section: Section | None, offset: int) -> str:
        around = (s for s in self.inside(section) if s.kind == _FUNCTION)
        return next((s.name for s in around if s.value <= offset < s.value + max(s.size, 1)), "")

    def _target(self, table: Section) -> Section:
        """The section that a table of relocations is about."""
        return self.sections[table.info if table.kind == _RELA else 0]

    def _relocations(self, table: Section) -> Iterator[Relocation]:
        """Nothing for a section that is no table of relocations."""
        if table.kind == _RELA:
            for offset, info, addend in _RELOCATION.iter_unpack(self._raw[table.offset : table.offset + table.size]):
                yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)

    def _text(self, offset: int) -> str:
        return self._raw[offset : self._raw.index(b"\0", offset)].decode(errors="replace")
