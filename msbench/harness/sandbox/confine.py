"""Confines a process before it runs a candidate's code: no network, no starting or disturbing processes, no writing files.

Two facilities of Linux that need no privileges, and work in plain containers: a seccomp filter (seccomp(2)), at which a
forbidden system call stops and the referee is told which one it was (see ``guard.py``), and Landlock (landlock(7)), which
keeps the file system as it is and other processes' memory out of reach. Where a kernel has not got them, candidates run
without: ``missing`` says what.

Standard library only, since the measured process imports it.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import platform
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

# (x86-64, aarch64) numbers of system calls; None where an architecture has not got one.
Numbers = tuple[int | None, int | None]

FORBIDDEN: dict[str, dict[str, Numbers]] = {
    "open a network connection": {"socket": (41, 198)},
    "run another program": {"execve": (59, 221), "execveat": (322, 281)},
    "start another process": {"fork": (57, None), "vfork": (58, None), "clone": (56, 220)},
    "send a signal to another process, or stop its own": {
        "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
        "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424),
    },
    "reach into another process": {
        "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
        "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    },
    "change its limits": {"setrlimit": (160, 164), "prlimit64": (302, 261), "prctl": (157, 167)},
    "change the machine": {
        "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
        "setns": (308, 268), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
        "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "bpf": (321, 280), "io_uring_setup": (425, 425),
        "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
        "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
        "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
        "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
        "clock_adjtime": (305, 266), "adjtimex": (159, 171), "ioperm": (173, None), "iopl": (172, None),
        "acct": (163, 89), "quotactl": (179, 60), "fanotify_init": (300, 262),
    },
}  # fmt: skip
"""What no candidate does, and the system calls that it would take."""

WRITING: dict[str, Numbers] = {
    "open": (2, None), "openat": (257, 56), "creat": (85, None), "truncate": (76, 45), "unlink": (87, None),
    "unlinkat": (263, 35), "rmdir": (84, None), "mkdir": (83, None), "mkdirat": (258, 34), "mknod": (133, None),
    "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
"""System calls that make, change or remove files, or what outlives a process like one (System V and POSIX queues)."""

_UNKNOWN: dict[str, Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}
"""They hide their flags from a filter, so they are answered as by a kernel that has not got them; libc then uses older ones."""

GPU_FILES = (
    *("/dev/nvidia*", "/dev/null", "/dev/zero", "/dev/shm/cuda*"),
    *("/proc/self/comm", "/proc/self/task/*/comm"),  # threads are given names
)
"""What CUDA's driver may open for writing at any time."""

_LATE = ("/dev/shm", "/proc/self")  # folders of files that come later


class Rules(StrEnum):
    """How narrow the confinement is.

    ``processor``: a candidate on the cpu executor. ``gpu``: one beside CUDA's driver, which has a local socket and some
    files of its own. ``library``: a vendor's library with it, which may write files and set limits of
    its own process.
    """

    PROCESSOR = "processor"
    GPU = "gpu"
    LIBRARY = "library"

    @property
    def writable(self) -> tuple[str, ...] | None:
        """Patterns of the files that may be written; None: any."""
        return {Rules.PROCESSOR: ("/dev/null",), Rules.GPU: GPU_FILES, Rules.LIBRARY: None}[self]


class Confined(NamedTuple):
    """What took effect: ``listener`` is where stopped system calls are told (None: they end the process)."""

    filtered: bool
    listener: int | None
    files: bool

    @property
    def missing(self) -> str:
        """What the kernel refused, as the end of a sentence; "" for nothing."""
        without = [
            *([] if self.filtered else ["seccomp filters"]),
            *(["seccomp's notifications"] if self.filtered and self.listener is None else []),
            *([] if self.files else ["Landlock"]),
        ]
        return " and ".join(without)


def confine(rules: Rules, *, told: bool = True) -> Confined:
    """Confine this process, with all its threads, for the rest of its life.

    ``told``: somebody will read the listener; without, a forbidden system call is not permitted, and the process goes on.
    """
    if sys.platform != "linux" or platform.machine() not in _ARCHITECTURES:
        return Confined(filtered=False, listener=None, files=False)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    files = rules.writable is None or _keep_files(rules.writable)
    told_ways = ((_RET_USER_NOTIF, _NEW_LISTENER | _TSYNC_ESRCH), (_RET_KILL_PROCESS, 0))
    # A profiler's own library tries what is forbidden, and gets on without.
    for action, flags in told_ways if told else ((_RET_ERRNO | errno.EPERM, 0),):
        listener = _install(program(rules, action), flags | _TSYNC | _SPEC_ALLOW)
        if listener is not None:
            return Confined(True, listener if flags else None, files)
    return Confined(filtered=False, listener=None, files=files)


@cache
def missing() -> str:
    """Which facilities this Linux kernel lacks, tried in a separate process; "" if none."""
    import subprocess  # which a worker has no use for

    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__],
            env={"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "seccomp filters and Landlock"
    return asked.stdout.strip()


def system_call(number: int, architecture: int) -> tuple[str, str]:
    """The name of one that was stopped, and what it would have done."""
    column = _column() if architecture == _ARCHITECTURES.get(platform.machine()) else None
    for what, calls in [*FORBIDDEN.items(), ("write files", WRITING)]:
        for name, numbers in calls.items():
            if column is not None and numbers[column] == number:
                return name, what
    return f"number {number}", "make a system call of another architecture"


# ---------------------------------------------------------------------- seccomp

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32 = 0x40000000
_SECCOMP = (317, 277)
_SET_MODE_FILTER = 1
_TSYNC, _SPEC_ALLOW, _NEW_LISTENER, _TSYNC_ESRCH = 1, 4, 8, 16  # linux/seccomp.h
_RET_KILL_PROCESS, _RET_USER_NOTIF, _RET_ERRNO, _RET_ALLOW = 0x80000000, 0x7FC00000, 0x00050000, 0x7FFF0000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CLONE_THREAD = 0x00010000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

_libc = ctypes.CDLL(None, use_errno=True)


def program(rules: Rules, forbid: int) -> list[Instruction]:
    """The filter: one block for each system call, which ends in a verdict."""
    column = _column()
    calls = {name: numbers[column] for group in FORBIDDEN.values() for name, numbers in group.items()}
    if rules.writable is not None:
        calls |= {name: numbers[column] for name, numbers in WRITING.items()}
    stop, allow = (_RETURN, 0, 0, forbid), (_RETURN, 0, 0, _RET_ALLOW)
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, _ARCHITECTURES[platform.machine()]),
        stop,
        (_LOAD, 0, 0, _NUMBER),
    ]
    if platform.machine() == "x86_64":
        made += [(_IF_AT_LEAST, 0, 1, _X32), stop]
    for numbers in _UNKNOWN.values():
        made += [(_IF_EQUAL, 0, 1, numbers[column] or 0), (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS)]
    for name, number in calls.items():
        if number is not None:
            block = [*_exceptions(name, rules, allow), stop]
            made += [(_IF_EQUAL, 0, len(block), number), *block]
    return [*made, allow]


def _exceptions(name: str, rules: Rules, allow: Instruction) -> list[Instruction]:
    """What of a system call is allowed all the same; falls through to what forbids it."""
    own = os.getpid()
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    if name == "clone":  # a thread
        return [_argument(0), (_IF_ANY_BIT, 0, 1, _CLONE_THREAD), allow]
    if name in ("kill", "tgkill"):  # to itself, as abort() does
        which = 1 if name == "kill" else 2
        return [_argument(0), (_IF_EQUAL, 0, 3, own), _argument(which), (_IF_EQUAL, 1, 0, signal.SIGSTOP), allow]
    if name in ("open", "openat"):  # to read
        return [_argument(1 if name == "open" else 2), (_IF_ANY_BIT, 1, 0, writes), allow]
    if name == "prlimit64" and rules is Rules.LIBRARY:  # of itself, as cuDNN's compiler does
        return [_argument(0), (_IF_EQUAL, 0, 1, 0), allow]
    if name == "prlimit64":  # to ask
        low, high = _argument(2), (_LOAD, 0, 0, _ARGUMENTS + 2 * 8 + 4)
        return [low, (_IF_EQUAL, 0, 3, 0), high, (_IF_EQUAL, 0, 1, 0), allow]
    if name == "prctl":  # anything but to outlive the referee
        return [_argument(0), (_IF_EQUAL, 1, 0, _PR_SET_PDEATHSIG), allow]
    if name == "socket" and rules is not Rules.PROCESSOR:  # the driver's own
        return [_argument(0), (_IF_EQUAL, 0, 1, int(socket.AF_UNIX)), allow]
    return []


def _argument(number: int) -> Instruction:
    """Load the lower half of an argument (both architectures are little-endian)."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number)


def _install(instructions: Sequence[Instruction], flags: int) -> int | None:
    """Install a filter: the listener's descriptor or 0, or None where the kernel refuses."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code)
    described = struct.pack("@HP", len(instructions), ctypes.addressof(buffer))
    number = ctypes.c_long(_SECCOMP[_column()])
    made = _libc.syscall(number, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(flags), described)
    refused = made < 0 or (made > 0 and not flags & _NEW_LISTENER)  # otherwise a thread that could not be included
    return None if refused else int(made)


def _column() -> int:
    return 1 if platform.machine() == "aarch64" else 0


# ---------------------------------------------------------------------- Landlock

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1  # LANDLOCK_CREATE_RULESET_VERSION
_PATH_BENEATH = 1
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_CHANGES = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))  # write, remove, make: linux/landlock.h
_REFER = 1 << 13


def _keep_files(writable: Iterable[str]) -> bool:
    """Forbid this thread, and those that it starts, to change any file but these; whether the kernel does that."""
    version = _landlock(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    handled = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=Q", handled)
    ruleset = _landlock(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in _places(writable):
            rights = handled if os.path.isdir(path) else handled & (_WRITE_FILE | _TRUNCATE)  # noqa: PTH112
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", rights, place)
                if _landlock(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) < 0:
                    return False
            finally:
                os.close(place)
        return _landlock(_RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _places(patterns: Iterable[str]) -> set[str]:
    """What is there of the patterns; a folder for those whose files come later."""
    found: set[str] = set()
    for pattern in patterns:
        late = [folder for folder in _LATE if pattern.startswith(f"{folder}/")]
        found.update(filter(os.path.isdir, late) if late else glob.glob(pattern))  # noqa: PTH207
    return found


def _landlock(number: int, *arguments: object) -> int:
    return int(
        _libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    )


if __name__ == "__main__":
    said = confine(Rules.PROCESSOR).missing
    os.write(1, said.encode())
