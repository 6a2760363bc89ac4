"""Looks at a version's host object before it is linked: what it calls, what it keeps, what it stands in for."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Collection, Iterator
from functools import cache

from msbench.harness.screen import rules
from msbench.harness.screen.elf import ElfObject, Symbol

_OWN_VARIABLES = re.compile(
    r"_ZL20__cudaFatCubinHandle|_ZL15__fatDeviceText|_ZGVZL?\d+__device_stub_\w+|_ZZL?\d+__device_stub_\w+|_Z\w*__nv_\w+|__nv_\w+|DW\.ref\.\w+|"
    r"_ZZL\d+____nv_dummy_param_ref\w*|_Z\w*11msbench_cpu\w*|_ZT[VIS]\w+|_ZL?\d+__nv_inited_managed_rt|_ZL?\d+__cudaPrelaunch\w*|__TMC_END__|"
    r"_ZStL8__ioinit"
)
"""Variables that the compilers and the emulator put in."""

_NAMESPACES = re.compile(r"_ZN(?:St|4cuda|3cub|6thrust|18cooperative_groups|3nv2|8nvcuda)")
_STREAMS = "_ZNSt8ios_base4InitC1Ev"
"""The initialiser that <iostream> puts into every file which includes it, and which leaves a function for the end."""

_CODE_SECTIONS = re.compile(r"\.text(\..*)?")
_EXECUTABLE = 4  # SHF_EXECINSTR


def tricks(
    obj: ElfObject, own: Collection[str], constants: Collection[str], library: bool, links: bool = True
) -> str | None:
    """What the object shows that the version may not do, as the rest of a sentence that begins with "the file".

    Args:
        own: the names that it has to define, and may refer to.
        constants: its ``__constant__`` variables.
        library: whether it is a library version, which may keep handles and plans, and call what it links.
        links: whether it could be linked; if not, a name that no rule knows is likely a slip, which the linker tells.
    """
    return next(_found(obj, own, constants, library, links), None)


def _found(
    obj: ElfObject, own: Collection[str], constants: Collection[str], library: bool, links: bool
) -> Iterator[str]:
    for name in dict.fromkeys(s.name for s in obj.symbols if s.undefined and s.name not in own):
        rule = rules.broken(name, library)
        if name == "atexit" and rule and obj.references(name) <= obj.references("__cudaRegisterFatBinary"):
            continue  # nvcc's own registration of the device code
        if name == "__cxa_atexit" and (library or obj.references(name) <= obj.references(_STREAMS)):
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
        if sum(s.size for s in obj.sections if s.runs_code) > 8 * _registrations(obj):
            yield "runs code when it is loaded (a constructor, or a static variable that has one)"
        for symbol in obj.symbols:
            if symbol.mutable and not _harmless(symbol, constants):
                yield f"keeps state between calls (the variable {_readable(symbol.name)})"


def _registrations(obj: ElfObject) -> int:
    """How many functions the loader calls for the compiler: nvcc's registration, or the emulator's shared arrays; and the
    C++ library's streams."""
    names = [symbol.name for symbol in obj.symbols]
    own = any(name == "__cudaRegisterFatBinary" or "11msbench_cpu15new_shared_slot" in name for name in names)
    return int(own) + int(_STREAMS in names)


def _stands_in(symbol: Symbol) -> bool:
    if symbol.name.startswith("_Z"):
        return symbol.name.startswith(("_Znw", "_Zna", "_Zdl", "_Zda")) and symbol.bind == 1
    return rules.broken(symbol.name) is not None or rules.allowed(symbol.name) or _in_process(symbol.name)


@cache
def _in_process(name: str) -> bool:
    """Whether a library of any process has it: this one stands for all."""
    return hasattr(ctypes.CDLL(None), name)


def _harmless(symbol: Symbol, constants: Collection[str]) -> bool:
    name = symbol.name
    if not name or _OWN_VARIABLES.fullmatch(name) or (_NAMESPACES.match(name) and symbol.size <= 1):
        return True
    plain = re.sub(r"^_ZL?\d+", "", name)
    return any(plain == c or name.endswith(f"{len(c)}{c}E") for c in constants)


@cache
def _readable(name: str) -> str:
    if not name.startswith("_Z"):
        return name
    try:
        done = subprocess.run(["c++filt", name], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return name
    return done.stdout.strip() or name
