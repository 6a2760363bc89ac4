"""Builds ahead of their turn: what somebody waits for is built at once, the others once checks are compiled, and none twice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from msbench.harness.batch import ahead
from msbench.harness.batch.ahead import BuildsAhead, ChecksAhead
from msbench.model import BuildResult, Candidate
from msbench.spec import Operator
from tests.harness.batch.divided import Divided, Plain, jobs, soon


def test_what_is_waited_for_is_built_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "CORES", 2)
    built, go_on = list[str](), threading.Event()

    def build(op: Operator, candidate: Candidate) -> BuildResult:
        built.append(f"{op.name} {candidate.label}")
        if op.name == "first":
            go_on.wait(10)
        return Plain().build(op, candidate)

    first, second, third = jobs(tmp_path, "first", "second", "third")
    with BuildsAhead(build) as builds:
        builds.begin([first, second, third])  # on one of two cores
        soon(lambda: built == ["first right"])
        builds.begin([third], waited_for=True)
        builds.wait_for(third)
        assert built[0] == "first right" and sorted(built[1:]) == ["third right", "third wrong"]
        builds.begin([first], waited_for=True)  # of which one is at work, and goes on
        go_on.set()
        for job in (first, second, third):
            builds.wait_for(job)
            assert [builds.build(job.task.operator, one).candidate_id for one in job.candidates] == [
                one.id for one in job.candidates
            ]
    assert len(built) == len(set(built)) == 6


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own")
def test_what_is_built_ahead_makes_way_for_all_else(tmp_path: Path) -> None:
    priorities = dict[str, int]()

    def build(op: Operator, candidate: Candidate) -> BuildResult:
        asked = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
        told = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True).stdout  # as a compiler
        priorities[op.name] = int(told)
        return Plain().build(op, candidate)

    ahead_of_turn, waited_for = jobs(tmp_path, "ahead", "waited")
    with BuildsAhead(build) as builds:
        builds.begin([ahead_of_turn])
        builds.begin([waited_for], waited_for=True)
        for job in (ahead_of_turn, waited_for):
            builds.wait_for(job)
    assert priorities["ahead"] > priorities["waited"] == os.getpriority(os.PRIO_PROCESS, 0)


def test_what_is_to_follow_the_compiled_checks_follows_them_all_or_at_once_if_there_are_none(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.mkdir()
    executor = Divided(folder=told)
    some = jobs(tmp_path, "first", "second", "third")
    compiled = list[list[str]]()
    with ChecksAhead(executor, some, lambda: compiled.append(executor.told("compiled"))) as checks:
        assert [op.name for op in checks.operators] == ["first", "second", "third"]
        checks.begin()
        checks.wait()
        assert compiled == [["first", "second", "third"]]
    with ChecksAhead(executor, some[:1], lambda: compiled.append([])) as checks:
        assert not checks.operators
        checks.begin()
        assert compiled[1:] == [[]]
