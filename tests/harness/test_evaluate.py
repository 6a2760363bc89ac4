"""The stages in order; what one candidate does wrong never reaches another."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msbench.errors import DeviceError, LaunchFailed, ToolchainError, WorkerCrashed, WorkerTimeout
from msbench.harness.arena import Arena, Layout
from msbench.harness.digest import harness_digest
from msbench.harness.evaluate import Checks, Plan, evaluate
from msbench.harness.sandbox.process import WorkerProcess
from msbench.model import (
    BuildResult,
    Candidate,
    CheckResult,
    Evaluation,
    Failure,
    Fault,
    Origin,
    Profile,
    Status,
)
from msbench.spec import Case, Operator, Precision, Task
from tests.harness.check.test_case import zeros
from tests.harness.fakes import OPERATOR, FakeExecutor, candidate, case, compiled, right
from tests.test_roofline import CEILINGS

PLAN = Plan(cases=OPERATOR.cases, heldout=2)
QUICK = Plan(cases=(case(2048), case(64)), checks=Checks.QUICK, sittings=1)


def crashes(arena: Arena, case: Case) -> None:
    raise WorkerCrashed("The worker died of SIGSEGV during 'launch'.", "crash", "the log")


def hangs(arena: Arena, case: Case) -> None:
    raise WorkerTimeout("The worker did not finish 'launch' within 10 s and was killed.", "timeout")


def also_right(arena: Arena, case: Case) -> None:
    right(arena, case)


def wrong_for_large_sizes(arena: Arena, case: Case) -> None:
    right(arena, case)
    arena.view("y")[1024:] = 0


def run(executor: FakeExecutor, *candidates: Candidate, plan: Plan = PLAN, op: Operator = OPERATOR) -> list[Evaluation]:
    return evaluate(executor, Task(op, Precision.FP32), candidates, plan, command="msbench eval x.cu")


def test_a_right_candidate_passes_every_stage() -> None:
    executor = FakeExecutor()
    (result,) = run(executor, candidate(right), plan=replace(PLAN, profile=True, seed=5))
    assert (result.status, result.failure) == (Status.PASSED, None)
    assert result.build is not None
    assert all(c.passed for c in result.checks)
    assert {c.variant for c in result.checks} == {"aligned", "misaligned", "repeat", "aba", "touched"}
    assert [m.case.id for m in result.measurements] == ["N=64", "N=777", "N=2048"]
    assert [p.case.id for p in result.profiles] == ["N=2048"]
    assert (result.executor, result.device.name) == ("fake", "Fake GPU")
    assert (result.command, result.seed, result.harness) == ("msbench eval x.cu", 5, harness_digest(OPERATOR))
    assert result.recorded_from is None
    assert result.started_at.startswith("20")
    assert result.started_at.endswith("+00:00")
    assert result.seconds > 0.5
    assert all(r.closed for r in executor.runners)
    assert all(a.buffer is None for a in executor.arenas)


def test_no_failure_stops_the_others() -> None:
    executor = FakeExecutor(unsupported={"needs_ptx"})
    group = [
        candidate(right),
        candidate(None, label="broken"),
        candidate(zeros),
        candidate(crashes),
        candidate(hangs),
        candidate(right, label="needs_ptx"),
        candidate(wrong_for_large_sizes),
        candidate(also_right),
    ]
    results = run(executor, *group)
    assert [r.candidate for r in results] == group
    assert [(r.status, r.failure and r.failure.fault) for r in results] == [
        (Status.PASSED, None),
        (Status.BUILD_FAILED, Fault.COMPILE),
        (Status.CHECK_FAILED, Fault.MISMATCH),
        (Status.CHECK_FAILED, Fault.CRASH),
        (Status.CHECK_FAILED, Fault.TIMEOUT),
        (Status.UNSUPPORTED, Fault.UNSUPPORTED),
        (Status.CHECK_FAILED, Fault.MISMATCH),
        (Status.PASSED, None),
    ]
    assert results[1].failure == Failure(Fault.COMPILE, "line 1: expected a kernel", "the compiler's log")
    assert results[3].failure is not None
    assert results[3].failure.log == "the log"
    assert all(not r.measurements for r in results if r.status is not Status.PASSED)
    assert executor.groups == [["right", "also_right"]] * 3 * PLAN.sittings
    assert [c.passed for c in results[2].checks] == [False]
    assert [m.group for m in results[0].measurements] == [m.group for m in results[7].measurements]


def test_cheap_cases_come_first_and_a_failure_ends_a_candidates_checks() -> None:
    executor = FakeExecutor()
    (result,) = run(executor, candidate(wrong_for_large_sizes))
    sizes = [c.case.dim("N") for c in result.checks]
    assert sizes == sorted(sizes)
    assert [c.passed for c in result.checks].count(False) == 1
    assert not result.checks[-1].passed


def test_expected_values_are_made_once_for_all() -> None:
    calls = []

    def counted(xp: object, **arguments: object) -> object:
        calls.append(1)
        return OPERATOR.reference(xp, **arguments)

    run(FakeExecutor(), *[candidate(right)] * 5, plan=QUICK, op=replace(OPERATOR, reference=counted))
    assert len(calls) == len(QUICK.cases)


def test_measuring_can_be_left_out() -> None:
    executor = FakeExecutor()
    (result,) = run(executor, candidate(right), plan=replace(QUICK, measure=False))
    assert (result.status, result.measurements) == (Status.PASSED, ())
    (result,) = run(FakeExecutor(measures=False), candidate(right), plan=QUICK)
    assert (result.status, result.measurements) == (Status.PASSED, ())


def test_chosen_cases_are_profiled() -> None:
    executor = FakeExecutor()
    run(executor, candidate(right), plan=replace(QUICK, profile=True, profile_cases=(case(64),)))
    assert executor.profiled == [("right", "N=64")]


def test_of_a_case_with_two_kinds_of_inputs_the_uniform_one_is_profiled() -> None:
    executor = FakeExecutor()
    twins = (case(64), case(2048), replace(case(2048), distribution="spiked"))
    run(executor, candidate(right), plan=replace(QUICK, cases=twins, profile=True))
    assert executor.profiled == [("right", "N=2048")]


def test_the_fastest_version_alone_is_profiled() -> None:
    executor = FakeExecutor(time_ns={"right": 3e5, "also_right": 2e5})
    plan = replace(QUICK, profile=True, profile_fastest=True)
    slower, fastest = run(executor, candidate(right), candidate(also_right), plan=plan)
    assert executor.profiled == [("also_right", "N=2048")]
    assert (len(slower.profiles), len(fastest.profiles)) == (0, 1)


def test_impossible_times_are_no_score() -> None:
    large = replace(OPERATOR, nbytes=lambda itemsize, N: 10**9 if N == 64 else 1)
    executor = FakeExecutor(limits=CEILINGS, time_ns={"right": 2e4, "also_right": 3e5})
    cheat, honest = run(executor, candidate(right), candidate(also_right), plan=QUICK, op=large)
    assert (cheat.status, honest.status) == (Status.MEASURE_FAILED, Status.PASSED)
    assert cheat.failure is not None
    assert cheat.failure.fault is Fault.IMPOSSIBLE
    assert cheat.failure.message.startswith("Case N=64: 2e+04 ns is less than")
    assert cheat.measurements[-1].failure == cheat.failure
    assert executor.groups == [["right", "also_right"], ["also_right"]]


def test_a_failed_measurement_ends_with_its_stage() -> None:
    class Breaks(FakeExecutor):
        def measure(self, problem, runners, plan):  # type: ignore[no-untyped-def]
            first, *others = super().measure(problem, runners, plan)
            if runners[0].candidate.label == "right":
                first = replace(first, failure=Failure(Fault.TIMEOUT, "It hung."))
            return [first, *others]

    executor = Breaks()
    broken, fine = run(executor, candidate(right), candidate(also_right), plan=QUICK)
    assert (broken.status, len(broken.measurements)) == (Status.MEASURE_FAILED, 1)
    assert (fine.status, len(fine.measurements)) == (Status.PASSED, 2)


def test_a_failed_profile_leaves_the_times() -> None:
    class Breaks(FakeExecutor):
        def profile(self, task, cases, build, candidate):  # type: ignore[no-untyped-def]
            failure = Failure(Fault.TIMEOUT, "The profiler hung.")
            return [Profile(case, "ncu", {}, "", (), failure=failure) for case, _ in cases]

    (result,) = run(Breaks(), candidate(right), plan=replace(QUICK, profile=True))
    assert result.status is Status.PROFILE_FAILED
    assert all(m.failure is None for m in result.measurements)


@pytest.mark.parametrize("error", [ToolchainError("no nvcc"), KeyboardInterrupt()])
def test_what_is_not_the_kernels_fault_ends_everything(error: BaseException) -> None:
    class Breaks(FakeExecutor):
        def build(self, op: Operator, candidate: Candidate) -> BuildResult:
            raise error

    with pytest.raises(type(error)):
        run(Breaks(), candidate(right), candidate(zeros))


def test_an_interrupt_closes_every_runner() -> None:
    def interrupted(arena: Arena, case: Case) -> None:
        raise KeyboardInterrupt

    executor = FakeExecutor()
    with pytest.raises(KeyboardInterrupt):
        run(executor, candidate(right), candidate(interrupted), candidate(also_right))
    assert executor.runners
    assert all(r.closed for r in executor.runners)
    assert all(a.buffer is None for a in executor.arenas)


def test_a_case_too_large_for_the_memory_is_named() -> None:
    class Small(FakeExecutor):
        def arena(self, layout: Layout) -> Arena:
            if layout.nbytes > 100_000:
                raise MemoryError
            return super().arena(layout)

    with pytest.raises(DeviceError, match="Fake GPU has not enough memory to check gather_scale/fp32 at N=2048"):
        run(Small(), candidate(right), plan=QUICK)


def takes_small_sizes(arena: Arena, case: Case) -> None:
    if case.dim("N") > 1000:
        raise LaunchFailed("the launcher returned cudaErrorNotSupported, operation not supported", "unsupported")
    right(arena, case)


def takes_nothing(arena: Arena, case: Case) -> None:
    raise LaunchFailed("the launcher returned cudaErrorNotSupported, operation not supported", "unsupported")


def test_a_library_may_refuse_sizes_and_a_kernel_may_not() -> None:
    executor = FakeExecutor()
    group = [
        candidate(right, origin=Origin.NAIVE),
        candidate(takes_small_sizes, origin=Origin.LIBRARY),
        candidate(takes_nothing, origin=Origin.LIBRARY),
    ]
    naive, some, none = run(executor, *group, plan=QUICK)
    assert [m.case.id for m in naive.measurements] == ["N=64", "N=2048"]
    assert some.status is Status.PASSED
    assert [m.case.id for m in some.measurements] == ["N=64"]
    assert all(check.passed for check in some.checks)
    assert some.note == "It does not take 1 of 2 cases: N=2048."
    assert none.status is Status.UNSUPPORTED
    assert none.failure is not None
    assert "takes none of the sizes" in none.failure.message
    (own,) = run(executor, candidate(takes_small_sizes, origin=Origin.AGENT, label="own"), plan=QUICK)
    assert own.failure is not None
    assert (own.status, own.failure.fault) == (Status.CHECK_FAILED, Fault.LAUNCH)


def test_what_an_executor_cannot_afford_is_said() -> None:
    (result,) = run(FakeExecutor(check_limit=60_000, measures=False), candidate(right), plan=QUICK)
    assert result.status is Status.PASSED
    assert result.note == "1 of 2 cases is too large to be checked here."
    (result,) = run(FakeExecutor(check_limit=10, measures=False), candidate(right), plan=QUICK)
    assert result.status is Status.UNSUPPORTED
    assert result.failure is not None
    assert "small enough to be checked by the fake executor" in result.failure.message


def test_progress_is_told() -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[str] = []

        def started(self, text: str) -> None:
            self.heard.append(text)

        def advanced(self, done: int, total: int, text: str) -> None:
            assert 0 < done <= total
            self.heard.append(f"{done}/{total} {text}")

    listener = Listener()
    plan = replace(QUICK, profile=True)
    evaluate(FakeExecutor(), Task(OPERATOR, Precision.FP32), [candidate(right)], plan, command="", progress=listener)
    assert listener.heard == [
        "building gather_scale/fp32", "1/1 right",
        "checking gather_scale/fp32", "1/2 N=64", "2/2 N=2048",
        "measuring gather_scale/fp32", "1/2 N=64", "2/2 N=2048",
        "profiling gather_scale/fp32", "1/1 right at N=2048",
    ]  # fmt: skip


def test_bf16() -> None:
    right_one, wrong = candidate(right, Precision.BF16), candidate(zeros, Precision.BF16)
    results = evaluate(FakeExecutor(), Task(OPERATOR, Precision.BF16), [right_one, wrong], PLAN, command="")
    assert [r.status for r in results] == [Status.PASSED, Status.CHECK_FAILED]


# ------------------------------------------------------------------ with real processes

WORKER = """
import sys; sys.path.insert(0, ROOT)
import ctypes, mmap, time
import numpy as np
from msbench.harness.sandbox import wire

def launch(path, slots, how):
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    x, index, y, rank = (np.frombuffer(memory, t, n, o) for o, t, n in slots)
    if how == "crash" and y.size > 100: ctypes.string_at(0)
    if how == "hang": time.sleep(300)
    y[...] = np.float32(3) * x[index]
    rank[...] = np.arange(rank.size) - 3

wire.serve({"launch": launch})
"""


class ProcessRunner:
    def __init__(self, candidate: Candidate, script: Path) -> None:
        self.candidate = candidate
        self._worker = WorkerProcess([sys.executable, str(script)])
        self.pid = self._worker.pid

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        slots = [(s.offset, s.dtype.str, s.size) for s in arena.layout.slots]
        self._worker.call("launch", 3, path=arena.handle, slots=slots, how=self.candidate.label)

    def close(self) -> None:
        self._worker.close()


class ProcessExecutor(FakeExecutor):
    folder: Path

    def open(self, op: Operator, build: BuildResult, candidate: Candidate) -> ProcessRunner:  # type: ignore[override]
        script = self.folder / "worker.py"
        script.write_text(WORKER.replace("ROOT", repr(str(Path(__file__).parents[2]))))
        return ProcessRunner(candidate, script)

    def arena(self, layout: Layout) -> Arena:
        path = self.folder / f"arena{len(self.arenas)}"
        path.write_bytes(bytes(layout.nbytes))
        self.arenas.append(Arena(layout, np.memmap(path, np.uint8, "r+"), np, handle=str(path)))
        return self.arenas[-1]


def test_a_crash_and_a_hang_are_recorded_and_the_next_one_works(tmp_path: Path) -> None:
    executor = ProcessExecutor(measures=False)
    executor.folder = tmp_path
    group = [candidate(right, label=how) for how in ("crash", "hang", "fine")]
    crash, hang, fine = run(executor, *group, plan=replace(PLAN, heldout=0))
    assert crash.failure is not None
    assert crash.failure.fault is Fault.CRASH
    assert "died of SIGSEGV" in crash.failure.message
    assert any(c.passed for c in crash.checks)
    assert hang.failure is not None
    assert hang.failure.fault is Fault.TIMEOUT
    assert "N=64: The worker did not finish 'launch' within 3 s" in hang.failure.message
    assert fine.status is Status.PASSED
    (again,) = run(executor, candidate(right, label="fine"), plan=QUICK)
    assert again.status is Status.PASSED


def test_baselines_beside_a_version_of_ours_are_tried_on_fewer_cases() -> None:
    ours, naive = (
        replace(candidate(right), origin=Origin.EXPERT),
        replace(candidate(right), origin=Origin.NAIVE, label="n"),
    )
    plan = replace(PLAN, trusted=True)
    mine, baseline = run(FakeExecutor(), ours, naive, plan=plan)
    alone, everything = run(FakeExecutor(), naive, plan=plan), run(FakeExecutor(), ours)
    assert len(baseline.checks) == len(alone[0].checks) < len(mine.checks) == len(everything[0].checks)


def reads_on(arena: Arena, case: Case) -> None:
    right(arena, case)


class Watching(FakeExecutor):
    """Sees an access outside the arrays of ``reads_on``, on the second size that it is shown."""

    sanitizes = True

    def sanitize(self, task: Task, cases: Sequence[Case], build: BuildResult, seed: int) -> list[CheckResult]:
        assert len({case.dims for case in cases}) == len(cases) > 2
        label = next(r.candidate.label for r in self.runners if r.candidate.id == build.candidate_id)
        self.launches.append((label, "sanitized"))
        if label != "reads_on":
            return [CheckResult(case, "sanitized", seed, True, None) for case in cases]
        failure = Failure(Fault.OUT_OF_BOUNDS, "Case N=64: compute-sanitizer: Invalid __global__ read.")
        good, wrong = cases[:2]
        return [
            CheckResult(good, "sanitized", seed, True, None),
            CheckResult(wrong, "sanitized", seed, False, None, failure=failure),
        ]


def test_where_asked_for_accesses_are_watched_of_what_passed_the_other_checks() -> None:
    executor = Watching()
    naive, good = candidate(right, origin=Origin.NAIVE), candidate(also_right, label="good")
    bad, wrong = candidate(reads_on), candidate(zeros, label="wrong")
    results = run(executor, naive, good, bad, wrong)
    assert [r.status for r in results] == [Status.PASSED, Status.PASSED, Status.CHECK_FAILED, Status.CHECK_FAILED]
    assert [label for label, how in executor.launches if how == "sanitized"] == ["good", "reads_on"]
    assert results[2].failure is not None and results[2].failure.fault is Fault.OUT_OF_BOUNDS
    assert results[2].checks[-1].variant == "sanitized" and not results[2].measurements


def test_otherwise_they_are_not() -> None:
    executor = Watching()
    executor.sanitizes = False
    assert run(executor, candidate(reads_on))[0].status is Status.PASSED


def test_trusted_baselines_are_launched_once_on_a_case_where_only_right_results_are_asked_for() -> None:
    executor = FakeExecutor()
    naive = candidate(right, origin=Origin.NAIVE, label="naive")
    other = candidate(also_right, label="other")
    results = run(executor, naive, other, plan=replace(PLAN, trusted=True, cases=(case(2048), *OPERATOR.cases)))
    assert [one.status for one in results] == [Status.PASSED] * 2
    public = {check.variant for check in results[0].checks if check.case.id == "N=2048"}
    assert public == {"aligned"} and executor.launches.count(("naive", "N=2048")) == 1


class Compiling(FakeExecutor):
    """Compiles what checks run, in processes that end before the first of them."""

    def compile_checks(self, op: Operator, processes: int = 1, seed: int | None = None) -> Future[None]:
        self.groups.append([op.name, str(processes >= 1)])
        return compiled()

    def checks_compiled(self) -> None:
        assert not self.launches
        self.groups.append(["ended"])


def test_what_checks_run_is_compiled_while_kernels_are_built() -> None:
    executor = Compiling()
    assert run(executor, candidate(right), plan=QUICK)[0].status is Status.PASSED
    assert executor.groups[:2] == [["gather_scale", "True"], ["ended"]]
