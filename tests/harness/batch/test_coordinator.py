"""Many tasks: all are evaluated, in their order, each as soon as it can be; large cases are checked alone."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from msbench.errors import DeviceError, WorkerCrashed
from msbench.harness.batch import checking
from msbench.harness.batch import coordinator as batch
from msbench.harness.batch.checking import in_turns
from msbench.harness.batch.coordinator import evaluate_all
from msbench.harness.batch.referees import Referees
from msbench.harness.batch.throughput import Passage
from msbench.harness.evaluate import Group
from msbench.harness.spans import Spans
from msbench.model import BuildResult, Candidate, Device, Status
from msbench.spec import Case, Operator, Split
from tests.harness.batch.divided import Divided, Plain, jobs, soon
from tests.harness.fakes import FakeExecutor, case

CHECKOUT = Path(__file__).resolve().parents[2]


class Told:
    """Remembers what it hears, from one thread."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._thread = threading.get_ident()

    def started(self, text: str) -> None:
        assert threading.get_ident() == self._thread
        self.heard.append(text)

    def advanced(self, done: int, total: int, text: str) -> None:
        self.started(f"{done} of {total}: {text}")


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    return tmp_path / "ops"


@pytest.fixture
def divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Divided:
    """On a machine with room for two referees."""
    monkeypatch.setattr(batch, "CORES", 2)
    told = tmp_path / "told"
    told.mkdir()
    return Divided(folder=told)


def runs(pid: int) -> bool:
    """Whether a process does; one that has ended may wait to be looked at."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def referees(told: list[str]) -> set[int]:
    return {int(one.split()[-1]) for one in told}


@pytest.mark.parametrize(("kind", "size"), [(Plain, None), (Divided, 1)])
def test_one_by_one_every_task_is_evaluated_in_its_place(
    divided: Divided, ops: Path, kind: type[FakeExecutor], size: int | None
) -> None:
    executor = divided if kind is Divided else Plain()
    wanted = jobs(ops, *(f"op{n}" for n in range(4)))
    got = list(evaluate_all(executor, wanted, command="test", progress=Told(), batch=size))
    assert [job for job, _ in got] == wanted
    assert len(executor.runners) == 8  # its own: nothing is gained by a referee
    assert all(runner.closed for runner in executor.runners)
    for _, (good, bad) in got:
        assert (good.status, bad.status) == (Status.PASSED, Status.CHECK_FAILED)
        assert [m.case.id for m in good.measurements] == ["N=64", "N=2048"]


def test_side_by_side_each_is_checked_and_measured_in_the_same_processes(divided: Divided, ops: Path) -> None:
    wanted = [replace(job, spans=Spans()) for job in jobs(ops, *(f"op{n}" for n in range(5)))]
    progress = Told()
    measured = evaluate_all(divided, wanted, command="test", progress=progress, batch=3)
    got = [next(measured)]
    assert divided.told("compiled") == [f"op{n}" for n in range(5)]  # all, before the first is measured
    assert divided.told("ended") == ["5 compiled"]
    opened = {one.rpartition(" ")[0] for one in divided.told("open")}
    assert opened <= {f"op{n} {label}" for n in range(3) for label in ("right", "wrong")}
    assert [one for one in opened if one.endswith("right")]  # what passed, and is measured now
    got += list(measured)
    begun = referees(divided.told("checked"))

    assert sorted(job.task.id for job, _ in got) == [job.task.id for job in wanted]
    assert not divided.told("open")
    assert divided.told("checked") == divided.told("measured")
    assert len(begun) <= 2 and os.getpid() not in begun
    assert not any(map(runs, begun))
    for job, results in got:
        assert isinstance(results, list)
        good, bad = results
        assert (good.status, bad.status) == (Status.PASSED, Status.CHECK_FAILED)
        assert [m.case for m in good.measurements] == list(job.plan.cases)
        assert good.build and good.checks and not bad.measurements
        assert good.command == "test"
        assert job.spans is not None
        assert {"check: wait for room", "check: wait for builds", "check: compare", "measure: measuring"} <= set(
            job.spans.seconds
        )
        passage = Passage.of(job)
        assert sum(passage.spans.values()) == pytest.approx(passage.seconds)
    assert progress.heard[:2] == ["checking 5 tasks", "1 of 5: " + progress.heard[1].partition(": ")[2]]
    first = next(number for number, text in enumerate(progress.heard) if text.startswith("measuring"))
    count = int(progress.heard[first].split()[1])
    assert progress.heard[first + 1 : first + 1 + count] == [
        f"{done} of {count}: {job.task.id}" for done, (job, _) in enumerate(got[:count], 1)
    ]


def test_many_are_measured_at_once_while_many_are_left(divided: Divided, ops: Path) -> None:
    progress = Told()
    wanted = jobs(ops, *(f"op{n % 5}" for n in range(12)))
    assert len(list(evaluate_all(divided, wanted, command="test", progress=progress))) == 12
    first = next(text for text in progress.heard if text.startswith("measuring"))
    assert int(first.split()[1]) >= 4  # twice as many as the referees that go on with others


def test_few_that_are_left_are_measured_with_those_before(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "_fitting", lambda device: 72)
    progress = Told()
    wanted = jobs(ops, *(f"op{n}" for n in range(7)))
    assert len(list(evaluate_all(divided, wanted, command="test", progress=progress))) == 7
    assert [text for text in progress.heard if text.startswith("measuring")] == ["measuring 7 tasks"]


def test_several_tasks_are_measured_side_by_side_but_each_is_timed_alone(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CORES", 14)
    divided.behaviour = {"times": "all"}
    found = list(evaluate_all(divided, jobs(ops, *(f"op{n}" for n in range(4))), command="test", progress=Told()))
    assert all(isinstance(results, list) and results[0].status is Status.PASSED for _, results in found)
    lines = [line.split() for line in (divided.folder / "timeline").read_text().splitlines()]
    kinds = ("elsewhere", "beside", "timed")
    parts = [(what, float(began), float(ended)) for what, began, ended in lines if what in kinds]
    assert len(parts) == 3 * 2 * 4  # two cases of four tasks, each in three parts

    def together(*kinds: str) -> int:
        return sum(
            one[1] < other[2] and other[1] < one[2]
            for number, one in enumerate(parts)
            for other in parts[:number]
            if {one[0], other[0]} == set(kinds)
        )

    assert together("timed") == together("timed", "beside") == 0
    assert together("beside") and together("elsewhere", "timed")


@pytest.mark.parametrize(("how", "limit"), [("slowly", 0.0), ("late", math.inf)])
def test_only_what_is_computed_on_the_device_waits_until_that_is_compiled(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch, how: str, limit: float
) -> None:
    monkeypatch.setattr(checking, "SHARED_HOST_WORK", limit)
    divided.behaviour = {"times": "all", "compiled": how}
    list(evaluate_all(divided, jobs(ops, "op0", "op1"), command="test", progress=Told()))
    lines = [line.split() for line in (divided.folder / "timeline").read_text().splitlines()]
    launched = min(float(began) for what, began, _ in lines if what == "launch")
    compiled = min(float(ended) for what, _, ended in lines if what == "compiled")
    assert (launched > compiled) is (how == "slowly")


def test_processes_of_the_last_tasks_end_while_others_are_measured_but_not_timed(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "CORES", 14)
    divided.behaviour = {"times": "all"}
    list(evaluate_all(divided, jobs(ops, *(f"op{n}" for n in range(4))), command="test", progress=Told()))
    lines = [line.split() for line in (divided.folder / "timeline").read_text().splitlines()]
    timed, ends = ([(float(a), float(b)) for what, a, b in lines if what == kind] for kind in ("timed", "end_right"))
    assert min(ends) < max(timed)  # op0 takes long
    assert not [1 for end in ends for one in timed if end[0] < one[1] and one[0] < end[1]]


def test_where_the_hosts_time_counts_tasks_are_measured_one_by_one(ops: Path) -> None:
    usual, other = jobs(ops, "op0", "op1")
    for changed, alone in (({}, False), ({"profile": True}, True), ({"whole_calls": True}, True)):
        assert batch._by_itself([usual, replace(other, plan=replace(other.plan, **changed))]) is alone


def test_idle_processes_give_back_what_they_do_not_need(divided: Divided, ops: Path) -> None:
    wanted = jobs(ops, *(f"op{n}" for n in range(4)))
    list(evaluate_all(divided, wanted, command="test", progress=Told(), batch=2))
    rested = [(divided.folder / f"rested op{n}").read_text().splitlines() for n in range(4)]
    assert all("right checked" in told for told in rested)
    assert any("right measured" in told for told in rested)
    assert not all("right measured" in told for told in rested)  # the last ones end instead


def test_one_by_one_compilers_start_when_the_task_before_is_checked(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    build, check = Plain.build, Group.check

    def built(self: Plain, op: Operator, candidate: Candidate) -> BuildResult:
        events.append(f"build {op.name}")
        return build(self, op, candidate)

    def checked(self: Group) -> None:
        check(self)
        events.append(f"checked {self.task.operator.name}")

    monkeypatch.setattr(Plain, "build", built)
    monkeypatch.setattr(Group, "check", checked)
    assert len(list(evaluate_all(Plain(), jobs(ops, "op0", "op1", "op2"), command="test", progress=Told()))) == 3
    for before, after in (("op0", "op1"), ("op1", "op2")):
        assert events.index(f"checked {before}") < events.index(f"build {after}") < events.index(f"checked {after}")


def test_whose_check_takes_longest_comes_first_unless_the_batch_is_given(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, short = Case((("N", 5000),), Split.PAPER), case(64)
    several = [
        replace(job, plan=replace(job.plan, cases=(c,)))
        for job, c in zip(jobs(ops, "op0", "op1"), (short, long), strict=True)
    ]

    def order(size: int | None) -> list[str]:
        return [job.task.id for job, _ in evaluate_all(divided, several, command="test", progress=Told(), batch=size)]

    monkeypatch.setattr(batch, "PROCESSES", 2)
    assert order(2) == ["op0/fp32", "op1/fp32"]
    assert order(None) == ["op1/fp32", "op0/fp32"]
    several[0] = replace(several[0], took_s=1e6)  # what it took tells more than what it is estimated to take
    assert order(None) == ["op0/fp32", "op1/fp32"]


def test_as_many_tasks_are_side_by_side_as_their_processes_have_room(ops: Path) -> None:
    device = Device("cuda", "GPU", "GPU-0")
    assert [batch._fitting(replace(device, memory_bytes=gib << 30)) for gib in (1, 4, 12)] == [1, 2, 6]
    assert 1 <= batch._fitting(replace(device, memory_bytes=1 << 50)) <= batch.PROCESSES
    seven = jobs(ops, *(f"op{n}" for n in range(7)))  # of two versions each
    assert [len(batch._first(seven, *limits)) for limits in ((7, 6), (2, 6), (7, 1))] == [3, 2, 1]


@pytest.mark.parametrize("patient", [False, True])
def test_a_check_that_takes_long_pauses_between_two_cases_while_another_task_is_measured_unless_it_is_soon_done(
    divided: Divided, ops: Path, monkeypatch: pytest.MonkeyPatch, patient: bool
) -> None:
    monkeypatch.setattr(checking, "_LULL_S", 60.0 if patient else 0.0)
    divided.behaviour = {"slow": "op1"}
    measured = evaluate_all(divided, jobs(ops, "op0", "op1"), command="test", progress=Told(), batch=2)
    first, _ = next(measured)
    assert patient or (
        first.task.id == "op0/fp32" and not divided.told("rested op1")
    )  # the patient are measured side by side
    second, results = next(measured)
    assert {first.task.id, second.task.id} == {"op0/fp32", "op1/fp32"}
    assert isinstance(results, list) and results[0].status is Status.PASSED
    assert divided.told("checked") == divided.told("measured")
    spans = [line.split() for line in (divided.folder / "timeline").read_text().splitlines()]
    launched, timed = ([(float(a), float(b)) for what, a, b in spans if what == kind] for kind in ("launch", "measure"))
    assert (timed[0][0] < launched[-1][0]) is not patient
    assert not [(one, other) for one in timed for other in launched if one[0] < other[1] and other[0] < one[1]]


def test_what_one_task_suffers_is_its_own_result_and_a_full_device_is_tried_again_alone(
    divided: Divided, ops: Path
) -> None:
    divided.behaviour = {"full": "op1"}
    wanted = jobs(ops, "op0", "op1", "op2", "op3")
    broken = "replace(OPERATOR, reference=lambda *_, **__: 1 / 0, "
    spec = ops / "op2" / "spec.py"
    spec.write_text(spec.read_text(encoding="utf-8").replace("replace(OPERATOR, ", broken), encoding="utf-8")
    for job, results in evaluate_all(divided, wanted, command="test", progress=Told(), batch=4):
        if job is wanted[2]:
            assert re.fullmatch(
                r"op2: reference at N=64 \(.+/op2/spec\.py:\d+\): ZeroDivisionError: division by zero\.", str(results)
            )
        else:
            assert isinstance(results, list)
            assert [m.case.id for m in results[0].measurements] == ["N=64", "N=2048"]
    assert not divided.told("open")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_version_that_found_no_memory_to_be_measured_beside_others_is_tried_again_alone(
    divided: Divided, ops: Path, size: int
) -> None:
    divided.behaviour = {"crowded": "op1"}
    wanted = jobs(ops, "op0", "op1", "op2", "op3")
    with Referees() as own:
        found = list(batch._side_by_side(divided, wanted, "test", Told(), size, None, own))
    assert len(found) == 4
    for _, results in found:
        assert isinstance(results, list)
        assert [one.status for one in results] == [Status.PASSED, Status.CHECK_FAILED]
        assert [m.case.id for m in results[0].measurements] == ["N=64", "N=2048"]
    if size > 1:
        assert (divided.folder / "began op1").read_text().split() == ["right", "wrong"] * 2
    assert not divided.told("open")


def test_what_found_the_device_full_costs_nobody_at_work_its_processes(divided: Divided, ops: Path) -> None:
    divided.behaviour = {"full": "op0", "slow": "op2"}
    found = list(evaluate_all(divided, jobs(ops, "op0", "op1", "op2"), command="test", progress=Told(), batch=3))
    assert len(found) == 3
    for _, results in found:
        assert isinstance(results, list) and results[0].status is Status.PASSED
    assert (divided.folder / "began op2").read_text().split() == ["right", "wrong"]
    assert not divided.told("open")


@pytest.mark.parametrize("size", [1, 2])
def test_a_version_that_found_no_memory_beside_others_is_checked_again_alone(
    divided: Divided, ops: Path, size: int
) -> None:
    divided.behaviour = {"short": "op1"}
    wanted = jobs(ops, "op0", "op1", "op2", "op3")
    with Referees() as own:
        for _, results in batch._side_by_side(divided, wanted, "test", Told(), size, None, own):
            assert isinstance(results, list)
            assert [one.status for one in results] == [Status.PASSED, Status.CHECK_FAILED]
    assert divided.told("found")
    assert not divided.told("open")


def test_referees_that_are_given_stay_for_the_next_jobs_unless_something_ends_these(
    divided: Divided, ops: Path
) -> None:
    divided.behaviour = {"lost": "op3"}
    with Referees() as staying:
        for names in (("op0", "op1"), ("op1", "op2"), ("op0",)):
            found = list(evaluate_all(divided, jobs(ops, *names), command="test", progress=Told(), referees=staying))
            assert len(found) == len(names)
        at_work = set(referees(divided.told("checked")))
        assert len(staying.all) == 2 and at_work == {one.pid for one in staying.all}
        with pytest.raises(DeviceError):
            list(evaluate_all(divided, jobs(ops, "op2", "op3"), command="test", progress=Told(), referees=staying))
        assert staying.all == [] and not any(map(runs, at_work))


def test_what_never_fits_the_device_is_told(divided: Divided, ops: Path) -> None:
    divided.behaviour = {"full": "op0"}
    (divided.folder / "open by somebody else").touch()
    found = {
        job.task.operator.name: results
        for job, results in evaluate_all(divided, jobs(ops, "op0", "op1"), command="test", progress=Told())
    }
    assert str(found["op0"]).startswith("Fake GPU has not enough memory to measure op0/fp32 at N=64.")
    assert isinstance(found["op1"], list)


def test_a_lost_device_ends_everything_once(divided: Divided, ops: Path) -> None:
    divided.behaviour = {"lost": "op1"}
    measured = evaluate_all(divided, jobs(ops, "op0", "op1", "op2"), command="test", progress=Told(), batch=3)
    with pytest.raises(DeviceError, match="fell off"):
        list(measured)
    assert list(measured) == []
    assert not any(map(runs, referees(divided.told("checked"))))


def test_closing_it_ends_all_at_once_whatever_they_do(divided: Divided, ops: Path) -> None:
    divided.behaviour = {"hangs": "op3"}  # in the second batch
    measured = evaluate_all(divided, jobs(ops, "op0", "op1", "op2", "op3"), command="test", progress=Told(), batch=2)
    next(measured)
    measured.close()  # type: ignore[attr-defined]
    assert not any(map(runs, referees(divided.told("checked"))))

    def interrupt() -> None:
        soon(lambda: divided.told("hangs"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(evaluate_all(divided, jobs(ops, "op2", "op3"), command="test", progress=Told()))
    interrupting.join()
    assert time.monotonic() - began < 30
    assert not any(map(runs, referees(divided.told("checked"))))
    soon(lambda: not any(map(runs, referees(divided.told("hangs")))))  # candidates' processes


def test_the_end_of_a_referee_is_told_in_one_sentence(divided: Divided, ops: Path) -> None:
    divided.behaviour = {"dies": "op1"}
    with pytest.raises(WorkerCrashed, match=r"died of SIGKILL at work on op1/fp32\. .*memory.* with --resume\.$"):
        list(evaluate_all(divided, jobs(ops, "op0", "op1", "op2"), command="test", progress=Told()))
    assert not any(map(runs, referees(divided.told("checked"))))


LEAD = """\
import sys
from pathlib import Path
from msbench.harness.batch import coordinator as batch
from msbench.harness.batch.checking import in_turns
from tests.harness.batch.divided import Divided, jobs
from tests.harness.batch.test_coordinator import Told

batch.CORES = 2
executor = Divided(folder=Path(sys.argv[1]), behaviour={"hangs": "op0"})
list(batch.evaluate_all(executor, jobs(Path(sys.argv[2]), "op0", "op1"), command="test", progress=Told(), batch=2))
"""


def test_a_killed_lead_leaves_no_referee_and_no_candidate(divided: Divided, ops: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen([sys.executable, "-c", LEAD, divided.folder, ops], env=environment) as lead:
        soon(lambda: divided.told("hangs") and len(divided.told("checked")) == 2)
        pids = referees(divided.told("checked")) | referees(divided.told("hangs"))
        assert len(pids) == 3
        assert all(map(runs, pids))
        lead.kill()
    soon(lambda: not any(map(runs, pids)))


def test_long_and_short_tasks_are_begun_in_turns() -> None:
    assert in_turns(range(7)) == [0, 6, 5, 1, 4, 3, 2]
    assert in_turns([]) == []
