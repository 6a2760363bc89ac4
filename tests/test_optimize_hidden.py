"""Hidden cases stay hidden: from prompts, lessons and whoever watches, and from a repair that knows one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from msbench import operators, resources
from msbench.archive.union import union
from msbench.errors import MsbenchError
from msbench.figures.proven import unproven
from msbench.harness.evaluate import Plan
from msbench.model import CheckResult, Failure, Fault
from msbench.optimize import Budget, Event, Settings, write_best
from msbench.optimize.budget import Ledger
from msbench.optimize.deadline import Deadline
from msbench.optimize.hidden import plan_of_proof, plan_of_step, told
from msbench.spec import Case, Split, Task
from msbench.store.database import Database
from msbench.store.store import Store
from msbench.store.tables import RunRow
from tests import factories, optimizing, shipped, turns
from tests.optimizing import HIDDEN, Scripted, World, coded, kernel, planned
from tests.test_optimize import go

SPECIAL = "#define KNOWS_THE_SIZE 204327"


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
    return optimizing.task(tmp_path / "scale")


def test_no_prompt_and_no_lesson_names_a_hidden_case(task: Task, store: Store, world: World) -> None:
    world.refutes = lambda candidate, plan: "SPEED 2.0" in candidate.source
    events: list[Event] = []
    story = {"planner": [planned(2.0)] * 2, "coder": coded(kernel(2.0), kernel(3.0)), "debugger": coded(kernel(2.5))}
    summary = go(task, store, Scripted(story), rounds=2, watch=events.append)
    steps = store.steps(summary.run_id)
    assert steps[1].outcome == "failed"
    assert "odd N" in steps[1].lesson and "spiked inputs" in steps[1].lesson and "ten times" in steps[1].lesson
    prompts = [m.content for call in store.calls(summary.run_id) for m in call.prompt]
    assert any("spiked inputs" in text for text in prompts)
    shown = [*prompts, *(s.lesson for s in steps), *(e.text for e in events), summary.note]
    for secret in ("204327", "204326", "1234.5", "8765.25", HIDDEN.id):
        assert not any(secret in text for text in shown), secret


def test_each_step_has_seeds_of_its_own_and_the_best_another(task: Task, store: Store, world: World) -> None:
    go(task, store, Scripted(optimizing.story()))
    assert len(set(world.seeds)) == len(world.seeds) == 5
    ((label, seed),) = world.proved
    assert label == "step 3" and seed not in world.seeds
    plan = optimizing.plan(task)
    assert plan_of_step(plan, 3) == plan_of_step(plan, 3) != plan_of_step(replace(plan, seed=1), 3)
    assert plan_of_proof(plan, 9).seed not in {plan_of_step(plan, step).seed for step in range(9)}


def test_a_repair_that_knows_one_hidden_size_is_not_the_best(
    task: Task, store: Store, world: World, tmp_path: Path
) -> None:
    """Passes while its size is drawn; the first seed that draws another one finds it out."""
    plan = optimizing.plan(task)
    seen = {plan_of_step(plan, 2).seed}
    world.refutes = lambda candidate, drawn: SPECIAL in candidate.source and drawn.seed not in seen
    special = f"{SPECIAL}\n{kernel(3.0)}"
    story = {"planner": [planned(2.0)] * 3, "coder": coded(kernel(2.0), special, kernel(0.5))}
    summary = go(task, store, Scripted(story), rounds=2)
    assert [s.outcome for s in store.steps(summary.run_id)] == ["baseline", "improved", "improved"]
    assert "Step 2 failed on hidden cases that were drawn anew" in summary.note and "204327" not in summary.note
    assert summary.best_version_id == store.steps(summary.run_id)[1].version_id
    written = write_best(store, summary.run_id, tmp_path).read_text()
    assert SPECIAL not in written and "#define SPEED 2.0" in written
    story["debugger"] = coded(kernel(2.8))
    provider = Scripted(story)
    go(task, store, provider, resume=summary.run_id, rounds=3)
    steps = store.steps(summary.run_id)
    assert [s.action for s in steps[3:]] == ["debug", "optimize"] and steps[3].outcome == "improved"
    assert "hidden case" in provider.asked[0][1][-1].content and "204327" in provider.asked[0][1][-1].content  # its own


def test_a_best_version_that_fails_beside_a_later_draft_is_no_yardstick(task: Task, store: Store, world: World) -> None:
    seen = {plan_of_step(optimizing.plan(task), 2).seed}
    world.refutes = lambda candidate, drawn: SPECIAL in candidate.source and drawn.seed not in seen
    story = {"planner": [planned(2.0)] * 3, "coder": coded(kernel(2.0), f"{SPECIAL}\n{kernel(3.0)}", kernel(1.5))}
    summary = go(task, store, Scripted(story), rounds=3)
    assert [s.outcome for s in store.steps(summary.run_id)] == ["baseline", "improved", "improved", "slower"]
    assert world.evaluated[-2:] == [["naive", "vendor", "step 2", "step 3"], ["naive", "vendor", "step 1", "step 3"]]
    assert summary.best_version_id == store.steps(summary.run_id)[1].version_id


def test_what_was_never_proven_is_not_written(task: Task, store: Store, world: World, tmp_path: Path) -> None:
    summary = go(task, store, Scripted(optimizing.story()))
    assert unproven(store, [summary.run_id]) == []
    store.update_run(summary.run_id, best_version_id=store.steps(summary.run_id)[1].version_id)
    with pytest.raises(MsbenchError, match="passed only hidden cases"):
        write_best(store, summary.run_id, tmp_path)
    assert len(unproven(store, [summary.run_id])) == 1


def test_public_cases_are_told_as_they_are() -> None:
    op = factories.operator()
    draft = factories.candidate(op, "draft")
    failed = factories.failed(op, draft)
    seen = told(failed, op, op.cases)
    assert seen is not None and failed.failure is not None and seen.message == failed.failure.message
    passed, wrong = (CheckResult(op.cases[0], "aligned", 1, ok, 0.5) for ok in (True, False))
    failure = Failure(Fault.MISMATCH, "Case N=7: y[3] is 1 where 2 was expected.")
    other = replace(failed, failure=failure, checks=(passed, replace(wrong, failure=failure)))
    public = told(other, op, op.cases)
    assert public is not None and public.message == failure.message
    assert public.log == f"failed, aligned: {failure.message}\npassed before it: {op.cases[0].id}"


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("variant", ["aligned", "misaligned", "repeat", "aba", "touched"])
def test_properties_never_hold_a_number_of_the_case(fault: Fault, variant: str) -> None:
    op = factories.operator()
    draft = factories.candidate(op, "draft")
    case = Case((("N", 7919),), Split.HELDOUT, "scattered", (("alpha", 0.123),))
    failure = Failure(
        fault, "Case N=7919: 7919 of 7919, after 0.123", "kernel.cu:2: 7919\nkernel.cu:7919: no such line"
    )
    check = CheckResult(case, variant, 4711, False, 12.5, failure=failure)
    before = CheckResult(replace(case, dims=(("N", 104729),)), "aligned", 4711, True, 0.1)
    result = told(replace(factories.failed(op, draft), failure=failure, checks=(before, check)), op, op.cases)
    assert result is not None
    text = f"{result.message}\n{result.log}"
    assert "line 2 of the source" in result.message and "one hidden case" in text and "scattered" in text
    assert not re.search(r"7919|104729|4711|0\.123|12\.5", text)


def test_a_timed_case_is_no_secret_though_it_was_drawn() -> None:
    op = factories.operator()
    failed = optimizing.hidden_failure(op, factories.candidate(op, "draft"))
    shown = told(failed, op, (HIDDEN,))
    assert shown is not None and "204327" in shown.message
    assert Plan((HIDDEN,)).cases == (HIDDEN,)


def test_no_shipped_prompt_names_a_hidden_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every recorded run: the sizes of the hidden cases that its versions were checked on are in none of its prompts."""
    monkeypatch.setattr(Database, "read_to_memory", shipped.reading(shipped.unpacked()))
    with union([str(resources.published_db())]) as store:
        scanned = 0
        for run in turns.share(store.runs()):
            numbers = _hidden_numbers(store, run)
            for call in store.calls(run.id):
                for message in call.prompt:
                    scanned += 1
                    told = re.sub(r"\bversion [0-9a-f]{12}\b", "", message.content)
                    assert not numbers.intersection(re.findall(r"\d{4,}", told)), call.row.id
        assert scanned > 10


def _hidden_numbers(store: Store, run: RunRow) -> set[str]:
    """Sizes of at least four digits that only hidden cases have: no public case, no bound of a dimension, no fact of a build, and no
    power of two, of which hardware and plans have many.
    """
    op = operators.load(run.task_id.partition("/")[0])
    public = {str(bound) for dim in op.dims for bound in (dim.low, dim.high)} | {str(2**k) for k in range(64)}
    public |= {str(size) for case in Settings.read(run.settings).plan.cases for _, size in case.dims}
    hidden: set[str] = set()
    for step in store.steps(run.id):
        if step.evaluation_id is None:
            continue
        evaluation = store.evaluation(step.evaluation_id)
        for facts in evaluation.build.kernels if evaluation.build else ():
            public.update(map(str, facts.values()))
        for check in evaluation.checks:
            if check.case.split is Split.HELDOUT:
                hidden.update(str(size) for _, size in check.case.dims)
    return {number for number in hidden - public if len(number) >= 4}


def test_progress_names_no_hidden_case() -> None:
    op = factories.operator()
    shown: list[str] = []

    class Shown:
        def started(self, text: str) -> None:
            shown.append(text)

        def advanced(self, done: int, total: int, text: str) -> None:
            shown.append(text)

    progress = Deadline(Ledger(Budget(), {}), Shown(), op.cases)
    known = op.cases[0].id
    for text in (
        known,
        f"{known},spiked",
        f"step 1 at {known}",
        "step 1",
        "N=7919",
        f"{known},alpha=0.5",
        f"{known}7,spiked",
    ):
        progress.advanced(1, 2, text)
    assert shown == [known, f"{known},spiked", f"step 1 at {known}", "step 1", *["a hidden case"] * 3]
