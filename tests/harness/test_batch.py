"""Many tasks: all are evaluated, in their order, each as soon as it can be; large cases are checked alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from msbench.errors import DeviceError
from msbench.harness import batch
from msbench.harness.arena import Arena, Layout
from msbench.harness.batch import Job, evaluate_all
from msbench.harness.protocols import Checks, Plan
from msbench.harness.schedule import work
from msbench.model import BuildResult, Candidate, Device, Measurement, Status
from msbench.spec import Case, Operator, Precision, Split
from tests.harness.fakes import OPERATOR, FakeExecutor, FakeRunner, candidate, case, right


class Silent:
    def started(self, text: str) -> None: ...

    def advanced(self, done: int, total: int, text: str) -> None: ...


@dataclass
class Divided(FakeExecutor):
    """Its siblings check and measure; ``full`` is what a case finds while others have processes on the device."""

    siblings: list[Sibling] = field(default_factory=list)
    compiled: list[str] = field(default_factory=list)
    full: str = ""
    several: bool = True

    def sibling(self) -> Sibling:
        assert threading.current_thread() is threading.main_thread()  # the first one takes the device's lock
        self.siblings.append(Sibling(time_ns=self.time_ns, elder=self))
        return self.siblings[-1]

    def compile_checks(self, op: Operator) -> None:
        time.sleep(0.01)
        self.compiled.append(op.name)

    @property
    def open_now(self) -> list[FakeRunner]:
        return [runner for own in self.siblings for runner in own.runners if not runner.closed]


@dataclass
class Sibling(FakeExecutor):
    elder: Divided | None = None

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> FakeRunner:
        assert self.elder is not None
        assert not self.elder.several or op.name in self.elder.compiled
        return super().open(op, build, candidate)

    def measure(
        self, op: Operator, precision: Precision, case: Case, runners: Sequence[FakeRunner], plan: Plan
    ) -> list[Measurement]:
        assert self.elder is not None
        if op.name == self.elder.full and set(self.elder.open_now) != set(runners):
            raise MemoryError
        return super().measure(op, precision, case, runners, plan)


def wrong(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[0] = 77


def jobs(count: int) -> list[Job]:
    plan = Plan(cases=(case(64), case(2048)), checks=Checks.QUICK)
    ops = [replace(OPERATOR, name=f"op{number}") for number in range(count)]
    made = []
    for op in ops:
        group = tuple(replace(candidate(kernel), operator=op.name) for kernel in (right, wrong))
        made.append(Job(op, Precision.FP32, group, plan))
    return made


@pytest.mark.parametrize("executor", [FakeExecutor(), Divided()], ids=["one by one", "side by side"])
def test_every_task_is_evaluated_in_its_place(executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PROCESSES", 6)
    wanted = jobs(7)
    got = list(evaluate_all(executor, wanted, command="test", progress=Silent()))
    assert [job for job, _ in got] == wanted
    assert all(runner.closed for runner in executor.runners)
    for _, (good, bad) in got:
        assert (good.status, bad.status) == (Status.PASSED, Status.CHECK_FAILED)
        assert [m.case.id for m in good.measurements] == ["N=64", "N=2048"]
        assert good.checks
        assert not bad.measurements


def test_processes_are_those_of_the_check_and_end_with_their_batch() -> None:
    executor = Divided()
    four = [replace(job, plan=replace(job.plan, sittings=1)) for job in jobs(4)]
    measured = evaluate_all(executor, four, command="test", progress=Silent(), batch=2)
    next(measured)
    assert sorted(executor.compiled) == ["op0", "op1", "op2", "op3"]  # all, before the first is measured
    assert [len(own.runners) for own in executor.siblings] == [2, 2]
    assert [runner.candidate.operator for runner in executor.open_now] == ["op0", "op1"]  # the wrong ones have ended
    next(measured)
    next(measured)
    assert [runner.candidate.operator for runner in executor.open_now] == ["op2", "op3"]
    measured.close()
    assert not executor.open_now


def test_whose_check_takes_longest_comes_first_unless_the_batch_is_given() -> None:
    long, short = Case((("N", 5000),), Split.PAPER), case(64)
    several = [replace(job, plan=replace(job.plan, cases=(c,))) for job, c in zip(jobs(2), (short, long), strict=True)]
    for size, order in ((None, ["op1/fp32", "op0/fp32"]), (2, ["op0/fp32", "op1/fp32"])):
        got = evaluate_all(Divided(), several, command="test", progress=Silent(), batch=size)
        assert [job.task for job, _ in got] == order


def test_as_many_tasks_are_side_by_side_as_their_processes_have_room() -> None:
    device = Device("cuda", "GPU", "GPU-0")
    assert [batch._fitting(replace(device, memory_bytes=gib << 30)) for gib in (1, 4, 12)] == [1, 2, 6]
    assert 1 <= batch._fitting(replace(device, memory_bytes=1 << 50)) <= batch.PROCESSES
    seven = jobs(7)  # of two versions each
    sizes = {limits: [len(some) for some in batch._batches(seven, *limits)] for limits in ((7, 6), (2, 6), (7, 1))}
    assert sizes == {(7, 6): [3, 3, 1], (2, 6): [2, 2, 2, 1], (7, 1): [1] * 7}


def test_what_finds_the_device_full_gets_it_to_itself() -> None:
    executor = Divided(full="op1")
    got = list(evaluate_all(executor, jobs(3), command="test", progress=Silent(), batch=3))
    for _, results in got:
        assert isinstance(results, list)
        assert [m.case.id for m in results[0].measurements] == ["N=64", "N=2048"]
    assert len(executor.siblings) == 4
    assert not executor.open_now


def test_what_one_task_suffers_is_its_own_result() -> None:
    executor, one = Divided(), Divided(full="op2", several=False)
    several = jobs(3)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    several[1] = replace(several[1], operator=replace(several[1].operator, reference=broken))
    one.siblings.append(Sibling(runners=[FakeRunner(one, candidate(right))]))  # which nothing ends
    third = evaluate_all(one, several[2:], command="test", progress=Silent())
    (_, first), (_, second) = evaluate_all(executor, several[:2], command="test", progress=Silent())
    assert isinstance(first, list)
    assert str(second) == "op1: reference failed at N=64: ZeroDivisionError: division by zero."
    assert str(next(third)[1]).startswith("Fake GPU has not enough memory to measure op2/fp32 at N=64.")


def test_a_lost_device_ends_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Divided()
    measured = evaluate_all(executor, jobs(4), command="test", progress=Silent())
    next(measured)

    def lost(*_: object) -> None:
        raise DeviceError("The GPU fell off.")

    monkeypatch.setattr(Sibling, "measure", lost)
    with pytest.raises(DeviceError, match="fell off"):
        next(measured)
    assert list(measured) == []
    assert not executor.open_now


def test_cases_are_checked_side_by_side_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    room = batch._Room()
    monkeypatch.setattr(batch, "LONG_WORK", work(OPERATOR, case(2000)))
    sizes = {
        "long": 2001,
        "tiny": 64,
        "half": batch.ROOM // 8 // 4,
        "huge": batch.ROOM // 4,
    }  # vector_add has three arrays of 4 bytes
    inside: list[str] = []
    seen: list[tuple[str, ...]] = []
    lock = threading.Lock()

    def check(kind: str) -> None:
        with room.enter(OPERATOR, Precision.FP32, case(sizes[kind]), quietly=kind in ("long", "tiny")):
            with lock:
                inside.append(kind)
                seen.append(tuple(inside))
            time.sleep(0.01)
            with lock:
                inside.remove(kind)

    threads = [threading.Thread(target=check, args=(kind,)) for _ in range(6) for kind in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 24
    for together in seen:
        nbytes = sum(Layout.of(OPERATOR, Precision.FP32, case(sizes[kind])).nbytes for kind in together)
        assert len(together) == 1 or nbytes <= batch.ROOM
        assert not {"huge", "long"} & set(together) or len(together) == 1
    assert any(len(together) > 1 for together in seen)
