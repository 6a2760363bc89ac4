"""The filter's verdicts on both architectures, and what becomes of a process where the kernel offers less."""

from __future__ import annotations

import errno
import os
import platform
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from msbench import doctor
from msbench.errors import WorkerCrashed, WorkerError
from msbench.harness.sandbox import confine
from msbench.harness.sandbox.confine import FORBIDDEN, WRITING, Confined, Rules
from msbench.harness.sandbox.process import WorkerProcess

ROOT = str(Path(__file__).parents[2])
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")

STOP, ALLOW, ABSENT = 0x7FC00000, 0x7FFF0000, 0x00050000 | errno.ENOSYS
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


def verdict(rules: Rules, number: int, arguments: Sequence[int] = (), architecture: int | None = None) -> int:
    """What the kernel would answer: the filter's instructions, carried out."""
    native = ARCHITECTURES[platform.machine()] if architecture is None else architecture
    words = {0: number, 4: native}
    for at, value in enumerate([*arguments, 0, 0, 0, 0, 0, 0][:6]):
        words |= {16 + 8 * at: value & 0xFFFFFFFF, 20 + 8 * at: value >> 32}
    code, at, loaded = confine.program(rules, STOP), 0, 0
    for _ in code:
        what, true, false, operand = code[at]
        at += 1
        if what == 0x20:
            loaded = words[operand]
        elif what == 0x06:
            return operand
        else:
            met = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[what]
            at += true if met else false
    raise AssertionError("the filter does not end")


def number_of(name: str) -> int | None:
    known = {name: numbers for group in [*FORBIDDEN.values(), WRITING] for name, numbers in group.items()}
    return known[name][1 if platform.machine() == "aarch64" else 0]


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return str(request.param)


def test_the_numbers_are_those_of_the_systems_headers(machine: str) -> None:
    header = Path(HEADERS[machine])
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    known = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    ours = {name: numbers for group in [*FORBIDDEN.values(), WRITING] for name, numbers in group.items()}
    column = 1 if machine == "aarch64" else 0
    checked = {name: numbers[column] for name, numbers in ours.items() if name in known}
    assert checked == {name: known[name] for name in checked}
    assert len(checked) > 60


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("rules", Rules)
def test_verdicts(rules: Rules) -> None:
    own, parent = os.getpid(), os.getppid()
    reading, writing = os.O_RDONLY | os.O_CLOEXEC, os.O_WRONLY | os.O_CREAT
    files = ALLOW if rules is Rules.LIBRARY else STOP
    local = STOP if rules is Rules.PROCESSOR else ALLOW
    cases = [
        ("socket", (socket.AF_INET,), STOP), ("socket", (socket.AF_INET6,), STOP), ("socket", (socket.AF_NETLINK,), STOP),
        ("socket", (socket.AF_UNIX,), local),
        ("execve", (), STOP), ("clone", (signal.SIGCHLD,), STOP), ("clone", (0x3D0F00,), ALLOW), ("fork", (), STOP),
        ("kill", (parent, 9), STOP), ("kill", (own, 9), ALLOW), ("kill", (own, signal.SIGSTOP), STOP),
        ("tgkill", (own, own, signal.SIGABRT), ALLOW), ("tgkill", (parent, parent, signal.SIGABRT), STOP),
        ("tgkill", (own, own, signal.SIGSTOP), STOP), ("kill", (2**32 - 1, 9), STOP),
        ("openat", (0, 0, reading), ALLOW), ("openat", (0, 0, writing), files), ("openat", (0, 0, os.O_RDWR), files),
        ("unlinkat", (), files), ("mkdirat", (), files), ("shmget", (), files),
        ("prlimit64", (0, 7, 0, 1 << 40), ALLOW), ("prlimit64", (0, 7, 1 << 40, 0), files),
        ("prlimit64", (parent, 7, 1 << 40, 0), STOP),
        ("prctl", (1, 0), STOP), ("prctl", (15,), ALLOW), ("ptrace", (), STOP), ("mount", (), STOP),
    ]  # fmt: skip
    for name, arguments, expected in cases:
        number = number_of(name)
        if number is not None:
            assert verdict(rules, number, arguments) == expected, (name, arguments)
    assert verdict(rules, 435) == verdict(rules, 437) == ABSENT  # clone3, openat2
    assert verdict(rules, 435, architecture=0x40000003) == STOP  # i386
    assert verdict(rules, 9999) == ALLOW


def test_numbers_of_x32_are_no_way_out() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("an interface of x86")
    assert verdict(Rules.LIBRARY, 0x40000000 + 41) == STOP


WORKER = """
import sys; sys.path.insert(0, {root!r})
import os, socket, threading
from msbench.harness.sandbox import confine
from msbench.harness.sandbox import wire
install = confine._install
{before}
go, said = threading.Event(), []
def late():
    go.wait()
    said.append(os.fork())
thread = threading.Thread(target=late)
thread.start()
def forks_elsewhere():
    go.set(); thread.join()
    return {{"child": said}}
def writes(path):
    try:
        open(path, "w").close()
        return {{"wrote": True}}
    except PermissionError:
        return {{"wrote": False}}
wire.serve({{
    "confine": wire.confine, "connect": lambda: {{"fd": socket.socket().fileno()}}, "forks": forks_elsewhere,
    "writes": writes,
}})
"""


def worker(folder: Path, before: str = "", rules: Rules = Rules.GPU) -> WorkerProcess:
    path = folder / "worker.py"
    path.write_text(WORKER.format(root=ROOT, before=before))
    process = WorkerProcess([sys.executable, str(path)], rules=rules)
    process.call("confine", 30)
    return process


def test_threads_that_were_there_before_are_held_to_it_too(tmp_path: Path) -> None:
    with worker(tmp_path) as process, pytest.raises(WorkerCrashed, match=r"start another process \(clone\)"):
        process.call("forks", 30)


def test_without_notifications_the_process_ends_and_that_is_said(tmp_path: Path) -> None:
    refused = "confine._install = lambda code, flags: None if flags & confine._NEW_LISTENER else install(code, flags)"
    with (
        worker(tmp_path, refused) as process,
        pytest.raises(WorkerCrashed, match="system call that is forbidden") as end,
    ):
        process.call("connect", 30)
    assert end.value.kind == "forbidden"


def test_where_nobody_listens_what_is_forbidden_fails(tmp_path: Path) -> None:
    """As under a profiler, whose library asks for sockets."""
    with worker(
        tmp_path, "wire.confine = lambda: confine.confine(confine.Rules.LIBRARY, told=False) and None"
    ) as process:
        with pytest.raises(WorkerError, match="not permitted"):
            process.call("connect", 30)
        assert process.alive


def test_without_any_of_it_evaluation_goes_on(tmp_path: Path) -> None:
    refused = "confine._install = lambda code, flags: None\nconfine._landlock = lambda *arguments: -1"
    with worker(tmp_path, refused) as process:
        assert process.call("connect", 30)["fd"] > 0
        assert process.call("writes", 30, path=str(tmp_path / "file")) == {"wrote": True}


def test_landlock_alone_keeps_the_files(tmp_path: Path) -> None:
    if "Landlock" in confine.missing():
        pytest.skip("this kernel has no Landlock")
    with worker(tmp_path, "confine._install = lambda code, flags: None") as process:
        assert process.call("writes", 30, path=str(tmp_path / "file")) == {"wrote": False}
        assert process.call("writes", 30, path="/dev/null") == {"wrote": True}
    assert not (tmp_path / "file").exists()


def test_files_of_the_drivers_may_be_written_and_a_way_round_them_may_not(tmp_path: Path) -> None:
    with worker(tmp_path) as process:
        assert process.call("writes", 30, path="/proc/self/comm") == {"wrote": True}
        around = f"/dev/shm/cuda/../../..{tmp_path}/file"
        with pytest.raises(WorkerCrashed, match=r"tried to write files \(openat /.*/file\)"):
            process.call("writes", 30, path=around)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Confined(True, 3, True).missing == ""
    assert Confined(True, None, False).missing == "seccomp's notifications and Landlock"
    assert Confined(False, None, True).missing == "seccomp filters"
    monkeypatch.setattr(confine, "missing", lambda: "Landlock")
    (finding,) = (f for f in doctor.examine() if f.name == "confinement")
    assert finding.found is None
    assert "without Landlock" in finding.limits
