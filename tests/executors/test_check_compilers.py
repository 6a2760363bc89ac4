"""Processes that compile what checks run on the device: in order, once, and with an end."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msbench import operators
from msbench.errors import WorkerCrashed
from msbench.executors import _check_compilers
from msbench.executors._check_compilers import CheckCompilers
from msbench.harness.sandbox.process import WorkerProcess
from tests.harness.batch.divided import soon
from tests.harness.fakes import OPERATOR


@pytest.fixture
def compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CheckCompilers]:
    monkeypatch.setenv("MSBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    made = CheckCompilers("GPU-of-a-test", "sm_90a", "14.2")
    yield made
    made.close()


def test_what_checks_launch_is_compiled_once_and_failing_is_no_harm(
    compilers: CheckCompilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    alive: list[Process] = []

    class Process:
        fails = True

        def __init__(self, argv: list[str], *, env: dict[str, str]) -> None:
            assert argv[1:] == ["-P", "-m", "msbench.harness.check.compile_checks"]
            assert env["CUDA_VISIBLE_DEVICES"] == "GPU-of-a-test"
            alive.append(self)

        def close(self) -> None:
            alive.remove(self)

        def call(self, command: str, timeout_s: float, **payload: Any) -> None:
            asked.append(payload)
            if self.fails:
                raise WorkerCrashed("It ran out of memory.")

    monkeypatch.setattr(_check_compilers, "WorkerProcess", Process)
    compilers.compile(OPERATOR).result(10)
    assert not asked  # an operator that no file declares
    op, other = operators.load("softmax"), operators.load("gelu")
    compilers.compile(op).result(10)
    assert not alive
    Process.fails = False
    compilers.compile(op).result(10)
    compilers.compile(op).result(10)
    compilers.compile(op, seed=7).result(10)  # all of them are
    once = {"operator": "softmax", "folder": str(Path(op.folder).parent), "part": 0, "parts": 1, "seed": None}
    assert asked == [once] * 2
    asked.clear()
    compilers.compile(other, processes=3, seed=7).result(10)
    compilers.compile(other, seed=8).result(10)
    assert {one["seed"] for one in asked} == {7}
    assert sorted((one["part"], one["parts"]) for one in asked) == [(0, 3), (1, 3), (2, 3)]
    assert 1 <= len(alive) <= 2  # as many as there are cores
    compilers.rest()
    assert not alive
    compilers.expect([op, other])
    assert not alive  # all is compiled
    asked.clear()
    compilers.compile(other).result(10)
    assert [one["seed"] for one in asked] == [None]  # in `eval`, more is computed there
    compilers.rest()
    compilers.expect([op, operators.load("relu")])
    assert len(alive) == 2
    compilers.close()
    assert not alive


def test_operators_share_processes_in_their_order_and_what_is_not_begun_is_given_up_at_the_end(
    compilers: CheckCompilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = list[tuple[str, int]](), threading.Event()

    class Process:
        def __init__(self, *_: object, **__: object) -> None: ...

        def close(self) -> None: ...

        def kill(self) -> None: ...

        def call(self, command: str, timeout_s: float, **asked: Any) -> None:
            begun.append((asked["operator"], asked["part"]))
            go_on.wait(10)
            if asked["operator"] == "relu":
                raise ZeroDivisionError

    monkeypatch.setattr(_check_compilers, "WorkerProcess", Process)
    first, second, third = (
        compilers.compile(operators.load(name), processes)
        for name, processes in (("softmax", 3), ("relu", 1), ("gelu", 1))
    )
    soon(lambda: len(begun) == 2)
    go_on.set()
    first.result(10)
    with pytest.raises(ZeroDivisionError):  # a mistake of ours
        second.result(10)
    third.result(10)
    assert [name for name, _ in begun] == ["softmax"] * 3 + ["relu", "gelu"]
    go_on.clear()
    several = compilers.compile(operators.load("relu"), 3)
    soon(lambda: len(begun) == 7)
    compilers.close()
    go_on.set()
    assert isinstance(several.exception(10), ZeroDivisionError)
    assert len(begun) == 7
    several = compilers.compile(operators.load("softmax"), 3)
    assert several.done() and several.result() is None  # was done


def test_closing_ends_those_that_are_at_work(compilers: CheckCompilers, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = list[WorkerProcess]()

    class Process(WorkerProcess):
        def __init__(self, *_: object, **__: object) -> None:
            super().__init__([sys.executable, "-c", "import time; time.sleep(60)"], env=dict(os.environ))

        def call(self, *arguments: Any, **asked: Any) -> dict[str, Any]:
            at_work.append(self)
            return super().call(*arguments, **asked)

    monkeypatch.setattr(_check_compilers, "WorkerProcess", Process)
    several = compilers.compile(operators.load("softmax"), 3)
    soon(lambda: len(at_work) == 2)
    compilers.close()
    assert several.result(10) is None
    soon(lambda: not any(process.alive for process in at_work))
    assert len(at_work) == 2
