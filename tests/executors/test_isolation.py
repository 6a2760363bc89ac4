"""What a candidate does to the machine is stopped and named, and the next candidate notices nothing (cpu executor)."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from msbench import emulator, limits
from msbench.errors import WorkerCrashed, WorkerError
from msbench.executors import cpu
from msbench.executors.cpu import CpuExecutor
from msbench.harness.arena import Layout
from msbench.harness.check.case import fault_of
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Checks, Plan
from msbench.harness.sandbox import confine
from msbench.model import Candidate, Fault, Status
from msbench.spec import Array, Case, Dim, Operator, Precision, Scalar, Split, Task
from tests.harness.sandbox.test_process import gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="confinement is Linux's")

SOURCE = Path(__file__).with_name("misdeeds.cu").read_text(encoding="utf-8")
GOOD = 0


def case(mode: int) -> Case:
    return Case((("n", 1000),), Split.PAPER, scalars=(("mode", float(mode)),))


OPERATOR = Operator(
    name="misdeeds",
    title="Copy",
    scenario="test",
    definition="y = x",
    dims=(Dim("n", 1, 1 << 20),),
    arrays=(Array("x", ("n",)), Array("y", ("n",), output=True)),
    cases=(case(GOOD),),
    scalars=(Scalar("mode", "float", 0.0),),
    reference=lambda xp, x, **_: x,
    bound=lambda xp, u, out, **_: 0 * out["y"],
    nbytes=lambda itemsize, n: 2 * n * itemsize,
    flops=lambda n: n,
)


@pytest.fixture(scope="module")
def executor() -> Iterator[CpuExecutor]:
    with CpuExecutor(emulator.find(), launch_limit_s=2.0) as executor:
        yield executor


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Small ones; and a working directory in which whatever a kernel makes is seen."""
    monkeypatch.setattr(limits, "memory", lambda: 2**30)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "victim").chmod(0o600)
    yield
    assert [path.name for path in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o600


def launch(executor: CpuExecutor, mode: int, source: str = SOURCE) -> None:
    candidate = Candidate(OPERATOR.name, Precision.FP32, source)
    build = executor.build(OPERATOR, candidate)
    assert build.failure is None, build.failure
    runner = executor.open(OPERATOR, build, candidate)
    try:
        with executor.arena(Layout.of(Task(OPERATOR, Precision.FP32).at(OPERATOR.cases[0]))) as arena:
            arena.view("x")[:] = 7
            runner.launch(arena, case(mode))
            assert (arena.view("y") == 7).all()
    finally:
        runner.close()


def children() -> set[int]:
    """This process's, also those that were left to it."""
    listing = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in listing for pid in file.read_text().split()}


MISDEEDS = {
    "crashes": (1, Fault.CRASH, r"died of SIGSEGV"),
    "aborts": (2, Fault.CRASH, r"died of SIGABRT"),
    "leaves": (3, Fault.CRASH, r"ended with exit code 0"),
    "hangs": (4, Fault.TIMEOUT, r"was killed"),
    "allocates without end": (5, Fault.OUT_OF_MEMORY, r"took [\d.]+ GiB of the host's memory, more than 1 GiB, and was killed"),
    "forks": (6, Fault.FORBIDDEN, r"tried to start another process \(clone\), which is forbidden"),
    "double fork": (7, Fault.FORBIDDEN, r"tried to start another process \(clone\)"),
    "system": (8, Fault.FORBIDDEN, r"tried to start another process \(clone\)"),
    "exec": (9, Fault.FORBIDDEN, r"tried to run another program \(execve\)"),
    "forks in a thread": (10, Fault.FORBIDDEN, r"tried to start another process \(clone\)"),
    "stops itself": (11, Fault.FORBIDDEN, r"tried to send a signal to another process, or stop its own \(tgkill\)"),
    "kills the referee": (12, Fault.FORBIDDEN, r"tried to send a signal to another process, or stop its own \(kill\)"),
    "stops the referee": (13, Fault.FORBIDDEN, r"tried to send a signal"),
    "signals all": (14, Fault.FORBIDDEN, r"tried to send a signal"),
    "network": (15, Fault.FORBIDDEN, r"tried to open a network connection \(socket\)"),
    "local socket": (16, Fault.FORBIDDEN, r"tried to open a network connection \(socket\)"),
    "makes a file": (17, Fault.FORBIDDEN, r"tried to write files \(openat /.*/made-by-a-kernel\)"),
    "truncates a file": (18, Fault.FORBIDDEN, r"tried to write files \(openat /.*/victim\)"),
    "removes a file": (19, Fault.FORBIDDEN, r"tried to write files \(unlink(at)? /.*/victim\)"),
    "renames a file": (20, Fault.FORBIDDEN, r"tried to write files \(rename"),
    "makes a folder": (21, Fault.FORBIDDEN, r"tried to write files \(mkdir(at)? /.*/folder-of-a-kernel\)"),
    "traces the referee": (22, Fault.FORBIDDEN, r"tried to reach into another process \(ptrace\)"),
    "writes to the referee": (23, Fault.FORBIDDEN, r"tried to reach into another process \(process_vm_writev\)"),
    "opens the referee's memory": (24, Fault.FORBIDDEN, r"tried to write files \(openat /proc/\d+/mem\)"),
    "raises its limits": (27, Fault.FORBIDDEN, r"tried to change its limits \((setrlimit|prlimit64)\)"),
    "changes a file's mode": (29, Fault.FORBIDDEN, r"tried to write files \((f?chmod(at)?) /.*/victim\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISDEEDS)
def test_a_misdeed_is_named_and_the_next_candidate_passes(
    executor: CpuExecutor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mode, fault, says = MISDEEDS[name]
    if fault is Fault.TIMEOUT:
        monkeypatch.setattr(cpu, "_ANSWER_S", 1.0)
    before = children()
    with pytest.raises(WorkerError, match=says) as caught:
        launch(executor, mode)
    assert fault_of(caught.value) is fault
    assert all(gone(child) for child in children() - before)
    launch(executor, GOOD)


def test_what_is_read_of_the_referee_is_nothing(executor: CpuExecutor) -> None:
    """Landlock refuses that without telling; a launcher that could read would return an error."""
    if "Landlock" in confine.missing():
        pytest.skip("this kernel has no Landlock")
    launch(executor, 25)


def test_calls_that_hide_their_flags_are_not_there(executor: CpuExecutor) -> None:
    launch(executor, 26)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="an interface of x86")
def test_the_interface_of_another_architecture_is_no_way_out(executor: CpuExecutor) -> None:
    with pytest.raises(WorkerError) as caught:
        launch(executor, 28)
    assert "another architecture" in str(caught.value) or "SIGSEGV" in str(caught.value)  # kernels without 32-bit calls


def test_printing_for_ever_fills_no_disk(executor: CpuExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(executor, 30)


def test_a_constructor_is_confined_too(executor: CpuExecutor) -> None:
    early = SOURCE + "\nstruct Early { Early() { sleeping_child(true); } } early;\n"
    with pytest.raises(WorkerCrashed, match=r"tried to start another process"):
        launch(executor, GOOD, early)


def test_bad_and_good_ones_in_one_group(executor: CpuExecutor) -> None:
    """A fresh process for each: what one does costs the others nothing."""
    choices = {"stops the referee": 13, "good": GOOD, "allocates without end": 5, "crashes": 1, "good too": GOOD}
    candidates = [
        Candidate(OPERATOR.name, Precision.FP32, f"{SOURCE.replace('int(mode)', str(mode))}// {name}\n", label=name)
        for name, mode in choices.items()
    ]
    plan = Plan(cases=(case(GOOD),), checks=Checks.QUICK, measure=False)
    found = evaluate(executor, Task(OPERATOR, Precision.FP32), candidates, plan, command="test")
    for candidate, result in zip(candidates, found, strict=True):
        if candidate.label.startswith("good"):
            assert result.status is Status.PASSED, result.failure
        else:
            assert result.status is Status.CHECK_FAILED
            assert result.failure is not None
            assert result.failure.fault is MISDEEDS[candidate.label][1]
