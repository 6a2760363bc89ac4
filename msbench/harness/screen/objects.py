"""Looks at a version's host object before it is linked: what it calls, what it keeps, what it stands in for."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import chain
from typing import NamedTuple

from msbench.harness.screen import layout, rules
from msbench.harness.screen.elf import ElfObject, Section, Symbol

_LOCAL, _WEAK, _UNIQUE = (0,), (2,), (10,)  # STB_*


class _Own(NamedTuple):
    """Variables that compilers put in: how many bytes they have at most, and who but them may use them.

    Anybody can give a variable such a name, but none without ``static`` that is bound like theirs.
    """

    names: re.Pattern[str]
    size: int
    binds: tuple[int, ...]
    section: re.Pattern[str]
    users: re.Pattern[str] | None


def _own(names: str, size: int, binds: tuple[int, ...], section: str, users: str = "") -> _Own:
    return _Own(re.compile(names), size, binds, re.compile(section), re.compile(users) if users else None)


_OF_ALL = (
    _own(r"DW\.ref\.\w+", 8, _WEAK, r"\.data\.rel\.local\.DW\.ref\.\w+", r"\.(?:eh_frame|gcc_except_table.*)"),
    _own(
        r"_ZStL8__ioinit",
        1,
        _LOCAL,
        r"\.bss(?:\._ZStL8__ioinit)?",
        r"_GLOBAL__sub_I_.*|_Z41__static_initialization_and_destruction_0\w*",
    ),
)
_REGISTER = r"_ZL\d+(?:__sti____cudaRegisterAll|__cudaUnregisterBinaryUtil|____nv_|__nv_)\w*"
_OF_NVCC = (
    _own(r"_ZL15__fatDeviceText", 24, _LOCAL, r"\.nvFatBinSegment", _REGISTER),
    _own(r"_ZL20__cudaFatCubinHandle|_ZL32__nv_fatbinhandle_for_managed_rt", 8, _LOCAL, r"\.bss(?:\..*)?", _REGISTER),
    _own(r"_ZGVZL?\d+__device_stub_\w+E5__tmp", 8, _LOCAL, r"\.bss(?:\..*)?"),
    _own(r"_ZZL?\d+__device_stub_\w+E(?:5__tmp|8__handle|3__f)", 8, _LOCAL, r"\.bss(?:\..*)?"),
)
_OF_THE_EMULATOR = (
    _own(r"_ZN11msbench_cpu1(?:0last_error|0live_bytes)E", 8, _UNIQUE, r"\.t?bss\._ZN11msbench_cpu.*"),
    _own(r"_Z(?:GV)?N11msbench_cpu11shared_slotI\w+E", 8, _LOCAL + _UNIQUE, r"\.bss(?:\..*)?"),
)

_STREAMS = "_ZStL8__ioinit"
"""What <iostream> puts into every file which includes it: its initialiser leaves a function for the end."""

_REGISTRATION = "__cudaRegisterFatBinary"
_LOADED = re.compile(r"_ZL24__sti____cudaRegisterAllv|_GLOBAL__sub_[ID][\w.]+")
"""Functions that the loader calls for the compilers."""

_REGISTERING = {"_ZL24__sti____cudaRegisterAllv", "_ZL31__nv_cudaEntityRegisterCallbackPPv"}
"""All that has to do with the shadow of a ``__constant__`` variable; whatever else does keeps state there."""

_READ_ONLY_ONCE_LOADED = re.compile(r"\.data\.rel\.ro(?:\..*)?")
_RESERVED = re.compile(r"msbench_\w+")
"""What a worker looks for in a version: it may call some of that beside the launcher."""


def tricks(
    obj: ElfObject,
    own: Collection[str],
    constants: Mapping[str, int | None],
    library: bool,
    links: bool = True,
    emulated: bool = False,
) -> str | None:
    """What the object shows that the version may not do, as the rest of a sentence that begins with "the file".

    Args:
        own: the names that it has to define, and may refer to.
        constants: its ``__constant__`` variables and how many bytes each has; None where only its own name is known.
        library: whether it is a library version, which may keep handles and plans, and call what it links.
        links: whether it could be linked; if not, a name that no rule knows is likely a slip, which the linker tells.
        emulated: whether it was compiled for the cpu executor, where kernels are functions like any other.
    """
    found = (
        _found(obj, own, library, links),
        layout.tricks(obj),
        () if library else _kept(obj, constants, emulated),
    )
    return next(chain.from_iterable(found), None)


def uncalled(obj: ElfObject, libraries: Collection[str]) -> str | None:
    """What it says that it links and does not call, which would only free it of the rules for other versions."""
    called = [s.name for s in obj.symbols if s.undefined]
    for library in libraries:
        if not any(re.match(rf"{re.escape(library)}(?!Lt)[A-Z]", name) for name in called):
            return f"says that it links {library}, and calls nothing of it"
    return None


def _found(obj: ElfObject, own: Collection[str], library: bool, links: bool) -> Iterator[str]:
    streams = _streams(obj)
    if obj.references(_REGISTRATION) > 1:
        yield "loads device code at run time (it registers some besides nvcc)"
    for name in dict.fromkeys(s.name for s in obj.symbols if s.undefined and s.name not in own):
        rule = rules.broken(name, library)
        if name == "atexit" and rule and obj.references(name) <= obj.references(_REGISTRATION):
            continue  # nvcc's own registration of the device code
        if name == "__cxa_atexit" and (library or obj.references(name) <= streams):
            continue  # the destructor of a plan that it keeps, or what <iostream> does
        if rule and not rules.allowed(name):
            yield f"{rule.trick} ({_readable(name)})"
        elif not library and links and not rules.allowed(name):
            yield f"calls {_readable(name)}, which is not among the functions that a launcher may call"
    for symbol in obj.symbols:
        if symbol.is_resolver:
            yield f"runs code when it is loaded (the resolver of {symbol.name})"
        elif symbol.is_global and not symbol.undefined and symbol.name not in own and _stands_in(symbol):
            yield f"defines {_readable(symbol.name)} in place of the library's own"
        elif symbol.is_global and not symbol.undefined and symbol.name not in own and _RESERVED.fullmatch(symbol.name):
            yield f"defines {symbol.name}, a name that is msbench's own"
    if not library and any(obj.references(name) > most for name, most in _of_the_linker(obj)):
        yield "keeps state between calls (in what the linker adds)"


def _of_the_linker(obj: ElfObject) -> Iterator[tuple[str, int]]:
    """Variables that the linker adds to every library, and how often compilers refer to each."""
    yield "__dso_handle", obj.references("__cxa_atexit")
    yield "_GLOBAL_OFFSET_TABLE_", 0


def _streams(obj: ElfObject) -> int:
    """How many constructors <iostream> adds: one or none."""
    return min(obj.references("_ZNSt8ios_base4InitC1Ev"), sum(s.name == _STREAMS for s in obj.symbols))


def _kept(obj: ElfObject, constants: Mapping[str, int | None], emulated: bool) -> Iterator[str]:
    """What runs when it is loaded, and what outlives a call."""
    own_start = any(s.name == _REGISTRATION or "11msbench_cpu15new_shared_slot" in s.name for s in obj.symbols)
    if len(obj.loaded) > int(own_start) + _streams(obj) or not all(map(_LOADED.fullmatch, obj.loaded)):
        yield "runs code when it is loaded (a constructor, or a static variable that has one)"
    for symbol in obj.symbols:
        if (symbol.mutable or symbol.is_label) and not _harmless(obj, symbol, constants, emulated):
            yield f"keeps state between calls ({_in_words(obj, symbol)})"
    for section in obj.sections:
        if section.writable and not _may_be_passed(obj, section, constants, emulated) and obj.strays(section):
            yield f"keeps state between calls (in {section.name}, under no variable's name)"


def _in_words(obj: ElfObject, symbol: Symbol) -> str:
    """A variable by its name, or the one that a guard is for: the guard stands in no file."""
    name = symbol.name.removeprefix("_ZGV").removeprefix("_Z")
    if any(s.name == f"_ZGV{name}" for s in obj.symbols):
        return f"{_readable(f'_Z{name}')}, a static variable that is set in the first call: find it out in each"
    return f"the variable {_readable(symbol.name)}"


def _may_be_passed(obj: ElfObject, section: Section, constants: Mapping[str, int | None], emulated: bool) -> bool:
    """Whether the compiler itself refers to places before or behind a section's variables, such as an array's end."""
    if _READ_ONLY_ONCE_LOADED.fullmatch(section.name):
        return True
    if not emulated:
        return False
    names = [s.name for s in obj.inside(section) if s.is_object]
    return section.name == ".data.rel.local" or any(_is_one(name, c) for name in names for c in constants)


def _stands_in(symbol: Symbol) -> bool:
    if symbol.name.startswith("_Z"):
        return symbol.name.startswith(("_Znw", "_Zna", "_Zdl", "_Zda")) and symbol.bind == 1
    return rules.broken(symbol.name) is not None or rules.allowed(symbol.name) or _in_process(symbol.name)


@cache
def _in_process(name: str) -> bool:
    """Whether a library of any process has it: this one stands for all."""
    return hasattr(ctypes.CDLL(None), name)


def _harmless(obj: ElfObject, symbol: Symbol, constants: Mapping[str, int | None], emulated: bool) -> bool:
    if symbol.section is not None and _READ_ONLY_ONCE_LOADED.fullmatch(symbol.section.name):
        return True  # addresses in a table that is const: the loader writes them
    if any(_is_own(obj, symbol, own, emulated) for own in _OF_ALL + (_OF_THE_EMULATOR if emulated else _OF_NVCC)):
        return True
    name = on_either_side(symbol.name)
    for constant, size in constants.items():
        if size is None and _is_one(symbol.name, constant):
            return True
        if size is not None and name == on_either_side(constant):
            return symbol.size <= size and obj.users(symbol) <= _REGISTERING
    return False


def _is_own(obj: ElfObject, symbol: Symbol, own: _Own, emulated: bool) -> bool:
    """Users count where each variable has a section to itself (``build``): elsewhere a neighbour's may seem to be its own."""
    return (
        own.names.fullmatch(symbol.name) is not None
        and symbol.size <= own.size
        and symbol.bind in own.binds
        and symbol.section is not None
        and own.section.fullmatch(symbol.section.name) is not None
        and (emulated or own.users is None or all(map(own.users.fullmatch, obj.users(symbol))))
    )


def _is_one(name: str, constant: str) -> bool:
    """Whether a variable's name in the object is that of a constant in the text."""
    name = on_either_side(name)
    return name == constant or name.endswith(f"{len(constant)}{constant}E")


def on_either_side(name: str) -> str:
    """A variable's name without what only the host's or only the device's half of a file puts into it."""
    if found := re.match(r"_ZN(?P<length>\d+)(?=_INTERNAL_)", name):
        name = "_ZN" + name[found.end() + int(found["length"]) :]
    return re.sub(r"^_Z\d+", "", re.sub(r"L(?=\d)", "", name))


@cache
def _readable(name: str) -> str:
    if not name.startswith("_Z"):
        return name
    try:
        done = subprocess.run(["c++filt", name], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return name
    return done.stdout.strip() or name
