"""The rungs of a draft: what is wrong or clearly slower costs little, and what each rung took is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msbench import agents, providers
from msbench.executors.recorded import RecordedExecutor
from msbench.harness.evaluate import Checks, Plan
from msbench.model import Candidate, Origin, Precision
from msbench.optimize import Settings, Summary, optimize, rungs
from msbench.optimize.knowledge import gather
from msbench.spec import Split, Task
from msbench.store.store import Store
from tests import factories, optimizing
from tests.optimizing import FakeExecutor, Scripted, World, coded, kernel, planned

SIZES = tuple(1 << n for n in range(8, 27, 2))
OP = factories.operator(sizes=SIZES)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr("msbench.optimize.engine.evaluate", world.evaluate)
    return world


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        yield store


@pytest.fixture
def task(tmp_path: Path) -> Task:
    known = optimizing.task(tmp_path / "scale")
    return Task(replace(known.operator, cases=OP.cases), Precision.FP32)


def go(task: Task, store: Store, story: dict[str, list[str]], rounds: int) -> Summary:
    settings = Settings(optimizing.plan(task), rounds, None)
    return optimize(
        task, strategy=agents.pick("cudamaster"), provider=Scripted(story), executor=FakeExecutor(), store=store, settings=settings
    )  # fmt: skip


def test_one_case_stands_for_each_regime_and_the_smallest_and_an_odd_one_come_first() -> None:
    found = rungs.regimes(Task(OP, Precision.FP32), OP.cases, factories.CEILINGS)
    bounds = [OP.nbytes(4, **dict(case.dims)) / factories.CEILINGS.copy_bytes_per_s * 1e9 for case in found]
    launch = factories.CEILINGS.launch_ns
    assert len(found) == 3 and bounds[0] <= 3 * launch < bounds[1] <= 30 * launch < bounds[2]
    assert found[-1] == max(OP.cases, key=lambda case: case.dims)
    assert rungs.regimes(Task(OP, Precision.FP32), OP.cases[:2], factories.CEILINGS) == OP.cases[1:2]
    screening = rungs.screening(Task(OP, Precision.FP32), Plan(OP.cases, profile=True), factories.CEILINGS)
    assert screening is not None and screening.cases[0] == OP.cases[0] and screening.cases[1].split is Split.ODD
    assert len(screening.cases) == 5 and (screening.checks, screening.sittings, screening.profile) == (
        Checks.QUICK,
        1,
        False,
    )
    assert rungs.screening(Task(OP, Precision.FP32), Plan(OP.cases[:3]), None) is None


def test_one_case_of_each_regime_is_profiled_unless_calls_are_long_or_have_many_kernels() -> None:
    naive = Candidate(OP.name, Precision.FP32, "", Origin.NAIVE, "naive")
    plan, ceilings = Plan(OP.cases), factories.CEILINGS
    (fast,) = factories.measured(OP, {naive: 0.5})
    whole = rungs.profiling(Task(OP, Precision.FP32), plan, ceilings, fast)
    assert whole.cases == rungs.regimes(Task(OP, Precision.FP32), OP.cases, ceilings) and whole.profile
    long = replace(fast, measurements=tuple(replace(m, samples_ns=((2e7,),)) for m in fast.measurements))
    assert len(rungs.profiling(Task(OP, Precision.FP32), plan, ceilings, long).cases) == 1
    kernels = [{"kind": "kernel"}] * (rungs.PROFILED_KERNELS + 1)
    many = replace(fast, record={"case": "", "summary": "", "nodes": kernels})
    assert rungs.profiling(Task(OP, Precision.FP32), plan, ceilings, many).cases == whole.cases[-1:]


def test_only_what_is_not_clearly_slower_is_measured_in_full(task: Task, store: Store, world: World) -> None:
    story = {
        "planner": [planned(2.0)] * 4,
        "coder": coded(kernel(2.0), kernel(1.5), kernel(1.98), kernel(3.0, broken="check")),
        "debugger": coded(kernel(2.5)),
    }
    summary = go(task, store, story, 4)
    steps = store.steps(summary.run_id)
    assert [step.outcome for step in steps] == ["baseline", "improved", "slower", "slower", "failed", "improved"]
    assert world.evaluated == [
        ["vendor", "naive"],
        ["naive", "vendor", "step 1"],
        ["naive", "vendor", "step 1", "step 3"],  # 1 % is not clear from a glance
        ["naive", "vendor", "step 1", "step 5"],
    ]
    assert world.screened == [[p, f"step {n}"] for p, n in (("naive", 1), *(("step 1", n) for n in range(2, 6)))]
    assert steps[2].speedup is None and steps[2].held is False and "not measured further" in steps[2].lesson
    assert steps[3].speedup is not None
    notes = store.notes(summary.run_id)
    assert set(notes[steps[2].id]["seconds"]) == {"build", "screening"}
    assert set(notes[steps[1].id]["seconds"]) == {"build", "screening", "full"}
    assert notes[steps[4].id]["seconds"] == {"build": 2.5, "screening": 0.5}


def test_a_draft_that_was_given_up_is_so_again_when_its_run_is_replayed(
    task: Task, store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: times are those recorded, which are of the screening's cases alone."""
    first = go(task, store, {"planner": [planned(2.0)] * 3, "coder": coded(kernel(2.0), kernel(1.5), kernel(2.5))}, 3)
    monkeypatch.setattr("msbench.optimize.engine.evaluate", world.recall)
    recorded = RecordedExecutor(FakeExecutor("cpu", measures=False), store)  # type: ignore[arg-type]
    with Store(":memory:") as local:
        again = optimize(
            task, strategy=agents.pick("cudamaster"), provider=providers.pick("replay", store=store), executor=recorded, store=local,
            readers=store, settings=Settings(optimizing.plan(task), 3, None),
        )  # fmt: skip
        assert again.note == "All 6 prompts were the recorded ones."
        told = [(step.outcome, step.speedup, step.held, step.lesson) for step in local.steps(again.run_id)]
    steps = store.steps(first.run_id)
    assert told == [(step.outcome, step.speedup, step.held, step.lesson) for step in steps]
    assert steps[2].outcome == "slower" and steps[2].speedup is None


def test_a_draft_that_was_given_up_is_so_again_when_its_run_is_resumed(task: Task, store: Store, world: World) -> None:
    """Killed between its evaluation and its step."""
    story = {"planner": [planned(2.0)] * 2, "coder": coded(kernel(2.0), kernel(1.5))}
    whole = go(task, store, story, 2)
    expected = store.steps(whole.run_id)[2]

    class Killed(Exception):
        pass

    def killed(steps: object) -> None:
        raise Killed

    with Store(":memory:") as other, pytest.MonkeyPatch.context() as patch:
        first = go(task, other, story, 1)
        patch.setattr(other, "add_steps", killed)
        with pytest.raises(Killed):
            _resume(task, other, first.run_id, story)
        patch.undo()
        before = len(world.screened)
        _resume(task, other, first.run_id, story)
        again = other.steps(first.run_id)[2]
        assert len(world.screened) == before
    assert (again.outcome, again.lesson, again.speedup) == (expected.outcome, expected.lesson, expected.speedup)


def _resume(task: Task, store: Store, run_id: str, story: dict[str, list[str]]) -> None:
    optimize(
        task, strategy=agents.pick("cudamaster"), provider=Scripted(story), executor=FakeExecutor(), store=store, resume=run_id, rounds=2
    )  # fmt: skip


def test_what_is_known_of_like_tasks_is_told(task: Task, store: Store, world: World) -> None:
    story = {"planner": [planned(2.0, "Fuse it.")] * 2, "coder": coded(kernel(2.0), kernel(1.5))}
    run = go(task, store, story, 2)
    versions = [step.version_id or "" for step in store.steps(run.run_id)]
    lines = gather(store, Task(task.operator, Precision.BF16))
    assert [line.partition(":")[0] for line in lines] == [
        f"scale/fp32, version {versions[1][:12]}, improved", f"scale/fp32, version {versions[2][:12]}, slower",
    ]  # fmt: skip
    assert "Fuse it. Result: 2.0" in lines[0] and gather(store, task) == ()
    go(task, store, story, 2)  # the same versions once more
    again = gather(store, Task(task.operator, Precision.BF16))
    assert [line.partition(":")[0] for line in again] == [line.partition(":")[0] for line in lines]
