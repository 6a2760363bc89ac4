"""Many tasks: all are evaluated, in their order, each as soon as it can be; large cases are checked alone."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

import pytest

from msbench.errors import DeviceError
from msbench.harness import batch
from msbench.harness.arena import Arena, Layout
from msbench.harness.batch import Job, evaluate_all
from msbench.harness.protocols import Checks, Plan
from msbench.model import Measurement, Status
from msbench.spec import Case, Operator, Precision
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, right


class Silent:
    def started(self, text: str) -> None: ...

    def advanced(self, done: int, total: int, text: str) -> None: ...


@dataclass
class Divided(FakeExecutor):
    """Its siblings only check."""

    def sibling(self) -> FakeExecutor:
        assert threading.current_thread() is threading.main_thread()  # the first one takes the device's lock
        return FakeExecutor(time_ns=self.time_ns)


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
    monkeypatch.setattr(batch, "BATCH", 3)
    wanted = jobs(7)
    got = list(evaluate_all(executor, wanted, command="test", progress=Silent()))
    assert [job for job, _ in got] == wanted
    for _, (good, bad) in got:
        assert (good.status, bad.status) == (Status.PASSED, Status.CHECK_FAILED)
        assert [m.case.id for m in good.measurements] == ["N=64", "N=2048"]
        assert good.checks
        assert not bad.measurements


def test_what_one_task_suffers_is_its_own_result(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Divided()
    several = jobs(3)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    several[1] = replace(several[1], operator=replace(several[1].operator, reference=broken))
    measure = executor.measure

    def full(op: Operator, *rest: object) -> list[Measurement]:
        if op.name == "op2":
            raise MemoryError
        return measure(op, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(executor, "measure", full)
    (_, first), (_, second), (_, third) = evaluate_all(executor, several, command="test", progress=Silent())
    assert isinstance(first, list)
    assert str(second) == "op1: reference failed at N=64: ZeroDivisionError: division by zero."
    assert str(third).startswith("Fake GPU has not enough memory to measure op2/fp32 at N=64.")
    assert all(runner.closed for runner in executor.runners)


def test_a_lost_device_ends_everything_once(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Divided()
    measured = evaluate_all(executor, jobs(4), command="test", progress=Silent())
    next(measured)

    def lost(*_: object) -> None:
        raise DeviceError("The GPU fell off.")

    monkeypatch.setattr(executor, "measure", lost)
    with pytest.raises(DeviceError, match="fell off"):
        next(measured)
    assert list(measured) == []
    assert all(runner.closed for runner in executor.runners)


def test_cases_are_checked_side_by_side_while_there_is_room() -> None:
    room = batch._Room()
    sizes = {
        "tiny": 64,
        "half": batch.ROOM // 8 // 4,
        "huge": batch.ROOM // 4,
    }  # vector_add has three arrays of 4 bytes
    inside: list[str] = []
    seen: list[tuple[str, ...]] = []
    lock = threading.Lock()

    def check(kind: str) -> None:
        with room.enter(OPERATOR, Precision.FP32, case(sizes[kind])):
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
    assert len(seen) == 18
    for together in seen:
        nbytes = sum(Layout.of(OPERATOR, Precision.FP32, case(sizes[kind])).nbytes for kind in together)
        assert len(together) == 1 or nbytes <= batch.ROOM
        assert "huge" not in together or len(together) == 1
    assert any(len(together) > 1 for together in seen)
