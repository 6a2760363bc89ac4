"""Looks at a version's host object before it is linked: what it calls, what it keeps, what it stands in for."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping
from functools import cache

from msbench.harness.screen import rules
from msbench.harness.screen.elf import ElfObject, Symbol

_OWN_VARIABLES = tuple(
    (re.compile(names), size)
    for names, size in (
        (r"_ZL15__fatDeviceText", 24),
        (r"_ZL20__cudaFatCubinHandle|_ZL32__nv_fatbinhandle_for_managed_rt|_ZZL22____nv_dummy_param_refPPvE5__ref", 8),
        (r"_Z(?:GV)?ZL?\d+__device_stub_\w+E(?:5__tmp|8__handle|3__f)", 8),
        (r"_Z(?:GV)?N11msbench_cpu(?:10last_error|10live_bytes|11shared_slotI\w+E)E", 8),
        (r"DW\.ref\.\w+", 8),
        (r"_ZStL8__ioinit", 1),
    )
)
"""Variables that the compilers and the emulator put in, and how many bytes they have at most."""

_STREAMS = "_ZStL8__ioinit"
"""What <iostream> puts into every file which includes it: its initialiser leaves a function for the end."""

_REGISTRATION = "__cudaRegisterFatBinary"
_LOADED = re.compile(r"_ZL24__sti____cudaRegisterAllv|_GLOBAL__sub_[ID][\w.]+")
"""Functions that the loader calls for the compilers."""

_REGISTERING = {"_ZL24__sti____cudaRegisterAllv", "_ZL31__nv_cudaEntityRegisterCallbackPPv"}
"""All that has to do with the shadow of a ``__constant__`` variable; whatever else does keeps state there."""

_READ_ONLY_ONCE_LOADED = re.compile(r"\.data\.rel\.ro(?:\..*)?")
_CODE_SECTIONS = re.compile(r"\.text(\..*)?")
_EXECUTABLE = 4  # SHF_EXECINSTR


def tricks(
    obj: ElfObject, own: Collection[str], constants: Mapping[str, int | None], library: bool, links: bool = True
) -> str | None:
    """What the object shows that the version may not do, as the rest of a sentence that begins with "the file".

    Args:
        own: the names that it has to define, and may refer to.
        constants: its ``__constant__`` variables and how many bytes each has; None where only its own name is known.
        library: whether it is a library version, which may keep handles and plans, and call what it links.
        links: whether it could be linked; if not, a name that no rule knows is likely a slip, which the linker tells.
    """
    return next(_found(obj, own, constants, library, links), None)


def uncalled(obj: ElfObject, libraries: Collection[str]) -> str | None:
    """What it says that it links and does not call, which would only free it of the rules for other versions."""
    called = [s.name for s in obj.symbols if s.undefined]
    for library in libraries:
        if not any(re.match(rf"{re.escape(library)}(?!Lt)[A-Z]", name) for name in called):
            return f"says that it links {library}, and calls nothing of it"
    return None


def _found(
    obj: ElfObject, own: Collection[str], constants: Mapping[str, int | None], library: bool, links: bool
) -> Iterator[str]:
    streams = min(obj.references("_ZNSt8ios_base4InitC1Ev"), sum(s.name == _STREAMS for s in obj.symbols))
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
    for section in obj.sections:
        if section.flags & _EXECUTABLE and not _CODE_SECTIONS.fullmatch(section.name):
            yield f"puts code into section {section.name}"
    if not library:
        own_start = any(s.name == _REGISTRATION or "11msbench_cpu15new_shared_slot" in s.name for s in obj.symbols)
        if len(obj.loaded) > int(own_start) + streams or not all(map(_LOADED.fullmatch, obj.loaded)):
            yield "runs code when it is loaded (a constructor, or a static variable that has one)"
        for symbol in obj.symbols:
            if (symbol.mutable or symbol.is_label) and not _harmless(obj, symbol, constants):
                yield f"keeps state between calls (the variable {_readable(symbol.name)})"


def _stands_in(symbol: Symbol) -> bool:
    if symbol.name.startswith("_Z"):
        return symbol.name.startswith(("_Znw", "_Zna", "_Zdl", "_Zda")) and symbol.bind == 1
    return rules.broken(symbol.name) is not None or rules.allowed(symbol.name) or _in_process(symbol.name)


@cache
def _in_process(name: str) -> bool:
    """Whether a library of any process has it: this one stands for all."""
    return hasattr(ctypes.CDLL(None), name)


def _harmless(obj: ElfObject, symbol: Symbol, constants: Mapping[str, int | None]) -> bool:
    if symbol.section is not None and _READ_ONLY_ONCE_LOADED.fullmatch(symbol.section.name):
        return True  # addresses in a table that is const: the loader writes them
    if any(names.fullmatch(symbol.name) and symbol.size <= size for names, size in _OWN_VARIABLES):
        return True
    name = _on_either_side(symbol.name)
    for constant, size in constants.items():
        if size is None and (name == constant or name.endswith(f"{len(constant)}{constant}E")):
            return True
        if size is not None and name == _on_either_side(constant):
            return symbol.size <= size and obj.users(symbol) <= _REGISTERING
    return False


def _on_either_side(name: str) -> str:
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
