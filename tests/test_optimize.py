"""What a user can rely on of a run: its steps, its figures, its budget, its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlmodel import select

from msbench import agents, providers
from msbench.conversation import Limits, Message, Reply
from msbench.errors import (
    DeviceError,
    MsbenchError,
    ProviderUnavailable,
    RecordingDiffers,
    ReplyError,
    WaitingForAnswer,
)
from msbench.executors.recorded import RecordedExecutor
from msbench.harness.evaluate import Plan
from msbench.model import Origin
from msbench.optimize import Budget, Event, Settings, Summary, optimize, write_best
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import CallRow
from tests import optimizing
from tests.optimizing import FakeExecutor, Scripted, World, coded, fenced, kernel, planned
from tests.recordings.rerecord import newest, rerecord


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


def go(task: Task, store: Store, provider: providers.Provider, **options: Any) -> Summary:
    given: dict[str, Any] = {
        "executor": FakeExecutor(),
        "rounds": optimizing.ROUNDS,
        "command": "msbench optimize scale",
    }
    given |= {"plan": optimizing.plan(task)} if "resume" not in options else {"rounds": None}
    given |= {"strategy": agents.pick("cudamaster")}
    return optimize(task, provider=provider, store=store, **{**given, **options})


def test_a_run_with_every_outcome(task: Task, store: Store, world: World) -> None:
    events: list[Event] = []
    summary = go(task, store, Scripted(optimizing.story()), watch=events.append)
    steps = store.steps(summary.run_id)
    assert optimizing.rounded(steps) == list(optimizing.OUTCOMES)
    best = store.candidate(steps[3].version_id or "")
    assert (summary.status, summary.steps, summary.best_version_id) == ("finished", 8, best.id)
    assert summary.speedup == pytest.approx(3.0, rel=0.02)
    assert best.origin is Origin.AGENT and best.label == "step 3" and best.parents == (steps[2].version_id,)
    run = store.run(summary.run_id)
    assert run.best_version_id == best.id and run.finished_at and run.status == "finished"
    assert (run.strategy, run.provider, run.model) == ("cudamaster", "scripted", "script")
    assert (
        run.spend["calls"] == 14
        and run.spend["evaluations"] == 5 + len(world.profiled)
        and run.spend["tokens"] == 14 * 1500
    )
    assert [e.kind for e in events if e.kind in ("started", "step")] == ["started", *["step"] * 8]
    assert [e.outcome for e in events if e.kind == "step"] == [o for _, o, _ in optimizing.OUTCOMES]


def test_each_draft_is_measured_beside_naive_the_best_library_its_parent_and_the_best_version(
    task: Task, store: Store, world: World
) -> None:
    go(task, store, Scripted(optimizing.story()))
    assert world.evaluated[0] == ["vendor", "naive"]
    assert world.evaluated[1:] == [
        ["naive", "vendor", "step 1"],
        ["naive", "vendor", "step 1", "step 2"],
        ["naive", "vendor", "step 1", "step 3"],
        ["naive", "vendor", "step 3", "step 7"],
    ]


def test_hypotheses_and_lessons(task: Task, store: Store, world: World) -> None:
    summary = go(task, store, Scripted(optimizing.story()))
    steps = store.steps(summary.run_id)
    assert [s.held for s in steps] == [None, True, None, True, None, None, None, False]
    assert [s.predicted_speedup for s in steps] == [None, 2.0, 1.5, 1.5, 1.1, 1.1, 1.1, 3.0]
    assert "vendor: 4.0" in steps[0].lesson
    assert "Line 3" in steps[2].lesson
    assert (
        "1.500x was predicted and 1.225x needed, so the hypothesis held" in steps[3].lesson and "1.5" in steps[3].lesson
    )
    assert "holds no code" in steps[5].lesson
    assert steps[6].version_id == steps[1].version_id and steps[6].evaluation_id is None


def test_the_prompts_tell_what_happened(task: Task, store: Store, world: World) -> None:
    provider = Scripted(optimizing.story())
    go(task, store, provider)
    first, last = provider.asked[0][1][-1].content, provider.asked[-2][1][-1].content
    assert "Nothing was tried yet" in first and "| vendor |" in first and "#define SPEED 1.0" in first
    assert "**latency**" in first
    assert "| N=16777216 | 128 MiB |" in first
    assert "#define SPEED 3.0" in last and "Leave that line of thought" in last
    assert "2. optimize, failed" in last and "6. explore, duplicate" in last
    debug = next(m for agent, m, _ in provider.asked if agent == "debugger")[-1].content
    assert "identifier 'blockIdy' is undefined" in debug and "#define BROKEN build" in debug


def test_prompts_are_a_function_of_the_history(task: Task, store: Store, world: World) -> None:
    one, two = Scripted(optimizing.story()), Scripted(optimizing.story())
    go(task, store, one)
    go(task, store, two)
    assert [(a, m) for a, m, _ in one.asked] == [(a, m) for a, m, _ in two.asked]


def test_a_recorded_run_replays_to_the_same_steps(task: Task, store: Store, world: World) -> None:
    first = go(task, store, Scripted(optimizing.story()))
    again = go(task, store, providers.pick("replay", store=store), rounds=99)
    assert again.note.endswith("All 14 prompts were the recorded ones.") and "The recording ends here" in again.note
    assert (again.status, store.run(again.run_id).replay_of) == ("finished", first.run_id)
    assert optimizing.rounded(store.steps(again.run_id)) == list(optimizing.OUTCOMES)
    assert store.run(again.run_id).spend["cost_usd"] == 0.0


def test_a_demo_without_gpu_tells_the_recorded_story(
    task: Task, store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay provider and the recorded executor, from a shipped database, into a new one."""
    first = go(task, store, Scripted(optimizing.story()))
    monkeypatch.setattr("msbench.optimize.engine.evaluate", world.recall)
    with Store(":memory:") as local:
        recorded = RecordedExecutor(FakeExecutor("cpu", measures=False), store)  # type: ignore[arg-type]
        again = go(task, local, providers.pick("replay", store=store), executor=recorded, readers=store)
        assert again.note == "All 14 prompts were the recorded ones."
        told = [s.model_dump(include={"outcome", "speedup", "held", "lesson"}) for s in local.steps(again.run_id)]
        assert told == [
            s.model_dump(include={"outcome", "speedup", "held", "lesson"}) for s in store.steps(first.run_id)
        ]
        assert local.evaluation(local.steps(again.run_id)[3].evaluation_id or "").recorded_from


def test_a_recording_made_anew_is_replayed_as_it_is(
    task: Task, store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are those of before, its prompts those of now."""
    first = go(task, store, Scripted(optimizing.story()))
    with store.writing() as session:
        for row in session.exec(select(CallRow)):
            row.prompt_id = row.reply_id  # as the prompts of an older engine would be: others
            session.add(row)
    monkeypatch.setattr("msbench.optimize.engine.evaluate", world.recall)

    def recorded() -> Any:
        return RecordedExecutor(FakeExecutor("cpu", measures=False), store)  # type: ignore[arg-type]

    with pytest.raises(RecordingDiffers):
        go(task, store, providers.pick("replay", store=store), executor=recorded(), readers=store)
    (stale,) = newest(store)
    made = rerecord(task, stale, store, store, recorded())
    assert stale.id == first.run_id and made.status == "finished"
    assert optimizing.rounded(store.steps(made.run_id)) == list(optimizing.OUTCOMES)
    again = go(task, store, providers.pick("replay", store=store), executor=recorded(), readers=store)
    assert store.run(again.run_id).replay_of == made.run_id and again.note.endswith(
        "All 14 prompts were the recorded ones."
    )


def test_where_nothing_is_measured_nothing_is_claimed(task: Task, store: Store, world: World) -> None:
    summary = go(task, store, Scripted(optimizing.story()), executor=FakeExecutor("cpu", measures=False), rounds=2)
    steps = store.steps(summary.run_id)
    assert [(s.outcome, s.speedup, s.held) for s in steps] == [
        ("baseline", None, None), ("checked", None, None), ("failed", None, None), ("checked", None, None),
    ]  # fmt: skip
    assert summary.speedup is None
    assert world.evaluated[1:] == [["step 1"], ["step 2"], ["step 3"]]


def test_the_naive_kernel_has_to_pass(task: Task, store: Store, world: World) -> None:
    (Path(task.operator.folder) / "naive.cu").write_text(kernel(broken="check"))
    with pytest.raises(MsbenchError, match="is the reference, and it fails"):
        go(task, store, Scripted(optimizing.story()))
    assert [r.status for r in store.runs()] == ["failed"]


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(calls=3), {"calls": 3}),
        (Budget(evaluations=2), {"evaluations": 2}),
        (Budget(tokens=12_000), {}),
        (Budget(cost_usd=0.15), {}),
        (Budget(wall_seconds=0.0), {}),
    ],
)
def test_a_budget_is_never_exceeded(
    task: Task, store: Store, world: World, budget: Budget, spent: dict[str, int]
) -> None:
    summary = go(task, store, Scripted(optimizing.story()), budget=budget)
    assert summary.status == "stopped" and "budget" in summary.note
    run = store.run(summary.run_id)
    for name, limit in run.budget.items():
        assert limit is None or name == "wall_seconds" or run.spend[name] <= limit
    assert {k: run.spend[k] for k in spent} == spent
    further = go(
        task, store, Scripted(optimizing.story()), resume=summary.run_id, budget=Budget(9.0, 10**6, 99, 99, 1e6, 1e6)
    )
    assert further.status == "finished"
    assert optimizing.rounded(store.steps(summary.run_id)) == list(optimizing.OUTCOMES)


def test_a_call_is_limited_to_what_is_left(task: Task, store: Store, world: World) -> None:
    provider = Scripted(optimizing.story())
    go(task, store, provider, budget=Budget(tokens=30_000), rounds=1)
    longest = [limits.max_tokens or 0 for _, _, limits in provider.asked]
    assert 1024 < longest[0] < 30_000 and longest[1] < longest[0]
    for given in (4321, None):
        unlimited = Scripted(optimizing.story())
        go(task, store, unlimited, rounds=1, max_tokens=given)
        assert {limits.max_tokens for _, _, limits in unlimited.asked} == {given}


def test_dollars_need_prices(task: Task, store: Store, world: World) -> None:
    provider = Scripted(optimizing.story())
    provider.price = lambda prompt, completion: None  # type: ignore[assignment,method-assign]
    with pytest.raises(MsbenchError, match="--price"):
        go(task, store, provider, budget=Budget(cost_usd=1.0))
    with pytest.raises(MsbenchError, match="not negative"):
        Budget(calls=-1)


def test_waiting_for_a_person_and_going_on(task: Task, store: Store, world: World, tmp_path: Path) -> None:
    """Answer by answer, each in a session of its own, as an agent in an editor would."""
    story = optimizing.story()
    order = ["planner", "coder"] * 2 + ["debugger"] + ["planner", "coder"] * 2 + ["coder"] + ["planner", "coder"] * 2
    resume: dict[str, Any] = {}
    for number, agent in enumerate(order, 1):
        provider = providers.pick("manual", folder=tmp_path / "prompts", wait=False)
        with pytest.raises(WaitingForAnswer, match=f"{number:03d}-{agent}.md"):
            go(task, store, provider, **resume)
        run = store.runs()[-1]
        assert run.status == "waiting" and run.finished_at is None and ".answer.md" in run.note
        resume = {"resume": run.id}
        answer = tmp_path / "prompts" / run.id / f"{number:03d}-{agent}.answer.md"
        assert answer.with_name(f"{number:03d}-{agent}.md").is_file()
        answer.write_text(story[agent].pop(0))
    summary = go(task, store, providers.pick("manual", folder=tmp_path / "prompts", wait=False), **resume)
    assert summary.status == "finished" and len(store.runs()) == 1
    assert optimizing.rounded(store.steps(summary.run_id)) == list(optimizing.OUTCOMES)
    assert len(world.evaluated) == 5
    run = store.run(summary.run_id)
    assert run.model == "answered by hand"
    assert (run.spend["calls"], run.spend["tokens"], run.spend["unknown"]) == (14, 0, 0)  # waiting is no request


class Failing(Scripted):
    """Raises ``error`` instead of the n-th answer."""

    def __init__(self, error: BaseException, at: int) -> None:
        super().__init__(optimizing.story())
        self._error, self._at = error, at

    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        if len(self.asked) + 1 == self._at:
            self._at = 0
            raise self._error
        return super().complete(agent, messages, limits)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ProviderUnavailable("The endpoint is gone."), "stopped"),
        (DeviceError("The GPU is gone."), "stopped"),
        (KeyboardInterrupt(), "stopped"),
        (ZeroDivisionError("a bug"), "failed"),
    ],
)
def test_what_ends_a_run_is_kept_and_the_run_can_go_on(
    task: Task, store: Store, world: World, error: BaseException, status: str
) -> None:
    with pytest.raises(type(error)):
        go(task, store, Failing(error, at=4))
    run = store.runs()[-1]
    assert run.status == status and run.note and len(store.steps(run.id)) == 2 and run.best_version_id
    summary = go(task, store, Scripted(optimizing.story()), resume=run.id[:8])
    assert (summary.run_id, summary.status) == (run.id, "finished")
    assert optimizing.rounded(store.steps(run.id)) == list(optimizing.OUTCOMES)
    assert [c.row.number for c in store.calls(run.id)] == list(range(1, 15))


def test_an_unusable_answer_costs_a_step_not_the_run(task: Task, store: Store, world: World) -> None:
    summary = go(task, store, Failing(ReplyError("It refused.", "refused"), at=1), rounds=2)
    assert optimizing.rounded(store.steps(summary.run_id))[1:] == [
        ("optimize", "no_kernel", None), ("optimize", "improved", 2.0),
    ]  # fmt: skip
    assert "It refused." in store.steps(summary.run_id)[1].lesson


def test_a_finished_run_gets_more_rounds_only_when_told(task: Task, store: Store, world: World) -> None:
    first = go(task, store, Scripted(optimizing.story()), rounds=1)
    same = go(task, store, Scripted(optimizing.story()), resume=first.run_id)
    assert (same.status, same.steps, len(world.evaluated)) == ("finished", 2, 2)
    more = go(task, store, Scripted(optimizing.story()), resume=first.run_id, rounds=optimizing.ROUNDS)
    assert more.steps == len(optimizing.OUTCOMES)
    assert Settings.read(store.run(first.run_id).settings).rounds == optimizing.ROUNDS


def test_a_run_stays_on_its_device(task: Task, store: Store, world: World) -> None:
    first = go(task, store, Scripted(optimizing.story()), rounds=1)
    with pytest.raises(MsbenchError, match="another executor"):
        go(task, store, Scripted({}), resume=first.run_id, executor=FakeExecutor("cpu", measures=False))
    with pytest.raises(MsbenchError, match="another device"):
        go(task, store, Scripted({}), resume=first.run_id, executor=FakeExecutor("cuda", measures=False))


def test_settings_survive_the_database(task: Task, store: Store, world: World) -> None:
    plan = Plan(task.operator.cases[:2], heldout=2, profile=True, profile_cases=task.operator.cases[:1], seed=7)
    first = go(task, store, Scripted(optimizing.story()), plan=plan, rounds=3)
    assert Settings.read(store.run(first.run_id).settings) == Settings(plan, 3, None)


def test_an_improvement_is_what_the_measurement_can_tell_from_none(task: Task, store: Store, world: World) -> None:
    story = {"planner": [planned(1.0)] * 3, "coder": coded(kernel(2.0), kernel(2.0002), kernel(2.02))}
    summary = go(task, store, Scripted(story), rounds=3)
    steps = store.steps(summary.run_id)
    assert [s.outcome for s in steps] == ["baseline", "improved", "equal", "improved"]
    assert "1.010x [1.009, 1.011] over its parent" in steps[3].lesson


def test_the_strategy_in_the_docs_runs(task: Task, store: Store, world: World) -> None:
    guide = (Path(__file__).parent.parent / "docs" / "adding_a_strategy.md").read_text("utf-8")
    example = guide.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"__name__": "one_shot"}
    exec(compile(example, "one_shot.py", "exec"), names)
    provider = Scripted({"coder": [*coded(kernel(2.0)), "No.", *coded(kernel(3.0))]})
    summary = go(task, store, provider, strategy=names["create"](), rounds=3)
    assert [s.outcome for s in store.steps(summary.run_id)] == ["baseline", "improved", "no_kernel", "improved"]


def test_writing_the_best(task: Task, store: Store, world: World, tmp_path: Path) -> None:
    summary = go(task, store, Scripted(optimizing.story()))
    path = write_best(store, summary.run_id, tmp_path)
    assert path == tmp_path / "scale" / "best" / "fp32.cu" and "#define SPEED 3.0" in path.read_text()
    worse = go(task, store, Scripted({"planner": [planned(2)], "coder": [fenced(kernel(0.5))]}), rounds=1)
    with pytest.raises(MsbenchError, match="nothing better"):
        write_best(store, worse.run_id, tmp_path)
