"""What a launcher may not leave changed in its process: a worker looks before and after each call.

Standard library only, since measured processes import it, and no pathlib where it matters: there are many calls. Threads are not looked at: drivers start their own when they
like.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_C = ctypes.CDLL(None)
# What the emulator catches from its first launch on, and the C library from its first thread on.
_OTHERS_SIGNALS = (
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGURG),
    32,
    33,
)
_LIMITS = tuple(sorted(name for name in dir(resource) if name.startswith("RLIMIT_")))
_ALL_EXCEPTIONS = 0x3D  # FE_ALL_EXCEPT of x86
_ARCH_PRCTL, _ARCH_GET_GS = 158, 0x1004
_X86_64 = platform.machine() in ("x86_64", "AMD64")
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def take() -> dict[str, str]:
    """The process's state by what it is called; what this system does not tell is left out.

    Lets the process forget which floating-point exceptions have occurred: any arithmetic changes that.
    """
    state = {
        "the thread's segment base": _segment_base(),
        "the floating-point environment": _arithmetic(),
        "the thread's exceptions": _exceptions(),
        "the environment": "\n".join(_environment()),
        "the current folder": str(Path.cwd()),
        "the limits": ", ".join(f"{name} {resource.getrlimit(getattr(resource, name))}" for name in _LIMITS),
        "the timers": ", ".join(str(signal.getitimer(timer)[1]) for timer in _TIMERS),
    }
    with suppress(OSError):
        state["open files"] = ", ".join(_files())
        state["child processes"] = " ".join(_children())
        state["the signal handlers"] = _handlers()
    if hasattr(os, "sched_getaffinity"):
        state["processors and priority"] = f"{sorted(os.sched_getaffinity(0))} {os.getpriority(os.PRIO_PROCESS, 0)}"
    if _X86_64:
        _C.feclearexcept(_ALL_EXCEPTIONS)
    return state


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """What differs, as a clause; None where nothing does."""
    different = [name for name in before if before[name] != after.get(name)]
    if not different:
        return None
    return f"the launcher left {' and '.join(different)} changed"


def _arithmetic() -> str:
    """Rounding, traps, and whether the smallest numbers are lost; the last two of the processor itself."""
    smallest = sys.float_info.min
    kept = smallest / 2 * 2 == smallest
    upwards, downwards = 1.0 + sys.float_info.epsilon / 2 * 1.0000001, 1.0 - sys.float_info.epsilon / 4 * 0.9999999
    rounding = _C.fegetround() if hasattr(_C, "fegetround") else 0
    traps = _C.fegetexcept() if hasattr(_C, "fegetexcept") else 0
    return f"{rounding} {traps} {kept} {upwards!r} {downwards!r}"


def _segment_base() -> str:
    """Of GS, which nothing else uses on this system: 64 bits that outlive a call."""
    base = ctypes.c_ulong()
    if _X86_64 and hasattr(_C, "syscall"):
        _C.syscall(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_ARCH_GET_GS), ctypes.byref(base))
    return str(base.value)


def _exceptions() -> str:
    """Those that it has caught and not ended, and how many are on their way: it finds them again in its next call."""
    try:
        runtime = ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD)
    except OSError:  # nobody needs it in this process
        return ""
    get_globals = runtime["__cxa_get_globals"]
    get_globals.restype = ctypes.c_void_p
    place = get_globals()  # Itanium C++ ABI: exception handling, 2.2.2
    return f"{ctypes.c_void_p.from_address(place).value} {ctypes.c_uint.from_address(place + 8).value}"


def _environment() -> list[str]:
    """As C sees it, which is not what ``os.environ`` remembers."""
    found: list[str] = []
    with suppress(ValueError):
        variables = ctypes.POINTER(ctypes.c_char_p).in_dll(_C, "environ")
        while variables and (variable := variables[len(found)]) is not None:
            found.append(variable.decode(errors="replace"))
    return found


def _files() -> list[str]:
    """Open files by number, but for devices, sockets and what event loops use: a driver opens its own at any time."""
    found = []
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):  # noqa: PTH208
        with suppress(OSError):  # the descriptor of this listing
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
            if not target.startswith(("/dev/", "anon_inode:", "socket:", "/proc/")):
                found.append(f"{number} {target}")
    return found


def _children() -> list[str]:
    found = []
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/self/task/{task}/children", "rb") as children:  # noqa: PTH123
            found += children.read().decode().split()
    return sorted(found)


def _handlers() -> str:
    """Which signals are blocked, ignored and caught."""
    own = sum(1 << (number - 1) for number in _OTHERS_SIGNALS)
    lines = Path("/proc/self/status").read_text().splitlines()
    sets = [line.split() for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    return " ".join(f"{name}{int(value, 16) & ~own:x}" for name, value in sets)
