"""What goes between a referee and its lead arrives as it was."""

from __future__ import annotations

import pickle
import platform
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from msbench import errors
from msbench.harness.batch.referees import Assignment, Referee, _Outcome, _Referee
from msbench.harness.evaluate import evaluate
from msbench.harness.protocols import Plan
from msbench.model import Failure, Fault
from msbench.spec import Precision, Task
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right


def again(thing: object) -> object:
    return pickle.loads(pickle.dumps(thing))


def test_a_job_and_its_results_are_equal_on_the_other_side() -> None:
    plan = Plan(cases=OPERATOR.cases, profile=True)
    group = [candidate(right), candidate(None)]
    job = Assignment(OPERATOR.name, "/kernels", Precision.FP32, tuple(group), plan, recorded=True)
    assert again(job) == job
    results = evaluate(FakeExecutor(), Task(OPERATOR, Precision.FP32), group, plan, command="test")
    assert results[0].profiles and results[1].build
    assert again(results) == results
    assert {one.case: one.hot_ns for one in again(results)[0].measurements}[case(64)] == 4e4  # type: ignore[index]
    assert again(Failure(Fault.CRASH, "It died.", "log")) == Failure(Fault.CRASH, "It died.", "log")


@pytest.mark.parametrize(
    "error",
    [
        errors.SpecError("bad"),
        errors.DeviceFull("full"),
        errors.DeviceError("lost"),
        errors.ToolchainError("no nvcc"),
        errors.UnsupportedError("inline PTX"),
        errors.BuildError("refused", "log", "timeout"),
        errors.LaunchFailed("no", "forbidden", "log"),
        errors.WorkerCrashed("It died.", "crash", "log"),
        MemoryError("host"),
        OSError(28, "No space left on device", "/dev/shm/x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_the_same_on_the_other_side(error: Exception) -> None:
    def fails() -> None:
        raise error

    outcome = again(_Outcome.of(fails))
    assert isinstance(outcome, _Outcome)
    with pytest.raises(type(error)) as caught:
        outcome.get()
    assert str(caught.value) == str(error)
    for name in ("kind", "log", "errno", "filename"):
        assert getattr(caught.value, name, None) == getattr(error, name, None)
    assert "in fails" in caught.value.__notes__[0]  # for MSBENCH_DEBUG


def test_errors_that_cant_be_sent_are_told() -> None:
    class Local(Exception):
        pass

    def unknown() -> None:
        raise errors.UnknownNameError("operator", "sotfmax", ["softmax"])

    def local() -> None:
        raise Local("what?")

    with pytest.raises(errors.MsbenchError, match=r"no operator 'sotfmax'\. Did you mean 'softmax'"):
        again(_Outcome.of(unknown)).get()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"Local.*what"):
        again(_Outcome.of(local)).get()  # type: ignore[attr-defined]


def test_an_error_keeps_no_arrays_of_what_failed() -> None:
    kept: list[weakref.ref[Any]] = []

    def no_room() -> None:
        array = np.zeros(8)
        kept.append(weakref.ref(array))
        try:
            raise MemoryError("of 8 GiB")
        except MemoryError as error:
            raise errors.DeviceFull("full") from error

    outcome = _Outcome.of(no_room)
    assert kept[0]() is None
    assert "of 8 GiB" in outcome.error.__notes__[0]  # type: ignore[union-attr]


def test_a_referee_without_a_job_makes_way_for_another_too() -> None:
    given_back: list[int] = []
    kept = SimpleNamespace(free_bytes=lambda: 1, free_all_blocks=lambda: given_back.append(1))
    xp = SimpleNamespace(zeros=np.zeros, get_default_memory_pool=lambda: kept)
    make: Any = lambda: SimpleNamespace(xp=xp)  # noqa: E731
    referee = _Referee(SimpleNamespace(), make)  # type: ignore[arg-type]
    referee.get_ready()
    referee.pause()
    assert given_back


_TEMPORARIES = """
import resource
from pathlib import Path
import numpy as np

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def temporaries():
    return [values + number for number in range(8)][0]  # eight at a time

values = np.ones(2**18)
temporaries()
before = faults()
for _ in range(10):
    temporaries()
path = Path(__file__).with_suffix(".txt")
path.with_suffix(".new").write_text(str(faults() - before))
path.with_suffix(".new").rename(path)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells glibc what to keep")
def test_temporaries_are_in_memory_that_a_referee_has_already(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporaries.py").write_text(_TEMPORARIES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    referee = Referee(["temporaries"])
    try:
        told = tmp_path / "temporaries.txt"
        deadline = time.monotonic() + 60
        while not told.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert int(told.read_text(encoding="utf-8")) < 4096  # pages of ten times eight, each of which has 512
    finally:
        referee.end(0.0)
