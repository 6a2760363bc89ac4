"""Strategies run through the engine, from answers in a script and again from the recording of that run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from msbench import agents, plugins, providers
from msbench.agents import Attempt, History
from msbench.model import Outcome
from msbench.optimize import Settings, Summary, optimize
from msbench.spec import Task
from msbench.store.store import Store
from tests import optimizing
from tests.optimizing import FakeExecutor, Sampled, Scripted, World, coded, kernel


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


def go(task: Task, store: Store, strategy: str | Any, provider: providers.Provider, rounds: int = 5) -> Summary:
    chosen = agents.pick(strategy) if isinstance(strategy, str) else strategy
    settings = Settings(optimizing.plan(task), rounds, None)
    return optimize(task, strategy=chosen, provider=provider, executor=FakeExecutor(), store=store, settings=settings)


def told(store: Store, run_id: str) -> list[tuple[str, str, str | None]]:
    return [(step.action, step.outcome, step.version_id) for step in store.steps(run_id)]


def astra() -> Scripted:
    tests = 'Odd sizes. {"tests": ["N=7,spiked", "N=1001", "M=3", "N=many", 5, "paper"]}'
    drafts = (kernel(2.0), kernel(3.0, broken="check"), kernel(1.5), kernel(4.5), kernel(3.5))
    return Scripted(
        {"tester": [tests], "profiler": ["It waits."] * 5, "planner": ["Wait less."] * 5, "coder": coded(*drafts)}
    )


def test_astra_tests_profiles_plans_codes_and_takes_nothing_back(task: Task, store: Store, world: World) -> None:
    provider = astra()
    summary = go(task, store, "astra", provider, rounds=9)
    steps = store.steps(summary.run_id)
    assert [(s.outcome, s.parent_version_id) for s in steps[1:]] == [
        ("improved", steps[0].version_id), ("failed", steps[1].version_id), ("slower", steps[2].version_id),
        ("improved", steps[3].version_id), ("slower", steps[4].version_id),
    ]  # fmt: skip
    assert [agent for agent, _, _ in provider.asked][:5] == ["tester", "profiler", "planner", "coder", "profiler"]
    notes = store.notes(summary.run_id)
    assert notes[steps[1].id]["tests"] == ["N=7,spiked", "N=1001"] and notes[steps[1].id]["tested"] == "Its tests pass."
    assert "A test fails" in notes[steps[2].id]["tested"]
    planner = [messages[-1].content for agent, messages, _ in provider.asked if agent == "planner"]
    assert "A test fails" in planner[2] and "# It failed" in planner[2] and "It waits." in planner[0]
    assert ["a trial"] in world.screened


def test_best_of_n_samples_side_by_side_and_measures_at_most_eight_versions(
    task: Task, store: Store, world: World
) -> None:
    provider = Sampled(optimizing.SAMPLES)
    summary = go(task, store, "best_of_n", provider, rounds=6)
    assert [outcome for _, outcome, _ in told(store, summary.run_id)] == [
        "baseline", "improved", "improved", "slower", "slower", "slower", "improved",
    ]  # fmt: skip
    assert [len(group) for group in world.evaluated] == [2, 6, 5] and world.evaluated[1][2:] == [
        f"step {n}" for n in range(1, 5)
    ]
    assert summary.speedup == pytest.approx(2.5, rel=0.02)


@pytest.mark.parametrize(
    ("strategy", "provider", "rounds"),
    [
        ("astra", astra, 5),
        ("best_of_n", lambda: Sampled(optimizing.SAMPLES), 6),
        ("cudamaster", lambda: Scripted(optimizing.story()), optimizing.ROUNDS),
    ],
)
def test_each_runs_again_from_its_recording(
    task: Task, store: Store, world: World, strategy: str, provider: Any, rounds: int
) -> None:
    first = go(task, store, strategy, provider(), rounds)
    again = go(task, store, strategy, providers.pick("replay", store=store, run=first.run_id), rounds)
    assert sorted(told(store, again.run_id)[1:], key=str) == sorted(told(store, first.run_id)[1:], key=str) or (
        strategy == "best_of_n"  # whose answers are given to whoever asks first: the same versions, in another order
        and {v for _, _, v in told(store, again.run_id)} == {v for _, _, v in told(store, first.run_id)}
    )


def attempt(number: int, outcome: Outcome, speedup: float | None) -> Attempt:
    return Attempt(number, "optimize", outcome, "naive", f"v{number}", speedup=speedup)


def test_a_ranking_exists_with_times_and_without() -> None:
    start = Attempt(0, "baseline", Outcome.BASELINE, None, "naive", speedup=1.0)
    timed = [
        attempt(1, Outcome.IMPROVED, 3.0), attempt(2, Outcome.SLOWER, 2.0), attempt(3, Outcome.FAILED, None),
        attempt(4, Outcome.EQUAL, 2.9), attempt(5, Outcome.IMPROVED, 2.8), attempt(6, Outcome.SLOWER, 2.5),
    ]  # fmt: skip
    ranked = History((start, *timed), 0).ranking
    assert [a.number for a in ranked] == [5, 1, 0, 4, 6, 2]
    untimed = Attempt(0, "baseline", Outcome.BASELINE, None, "naive")
    checked = [attempt(1, Outcome.CHECKED, None), attempt(2, Outcome.FAILED, None), attempt(3, Outcome.CHECKED, None)]
    assert [a.number for a in History((untimed, *checked), 0).ranking] == [3, 1, 0]


class Tools:
    """Uses what a draft is given, and returns two drafts that come from two versions."""

    name = "tools"

    def ask(self, history: History) -> agents.Proposal | None:
        if len(history.attempts) > 1:
            self.seen = history
            return None
        naive = history.attempts[0].version or ""
        return agents.Proposal(naive, "optimize", others=(naive,))

    def draft(self, proposal: agents.Proposal, briefing: agents.Briefing, talk: agents.Talk) -> list[agents.Draft]:
        self.other = talk.version(proposal.parent)
        self.trial = talk.try_out(kernel(2.0), "N=65536", against=proposal.parent)
        self.profiled = talk.try_out(kernel(2.0), profile=True)
        self.wrong = talk.try_out(kernel(2.0, broken="check"))
        return [agents.Draft(kernel(2.0), notes={"idea": "one"}), agents.Draft(kernel(3.0), notes={"idea": "two"})]


def test_a_draft_reads_versions_uses_the_engines_tools_and_brings_several_sources(
    task: Task, store: Store, world: World
) -> None:
    strategy = Tools()
    summary = go(task, store, strategy, Scripted({}))
    assert [outcome for _, outcome, _ in told(store, summary.run_id)] == ["baseline", "improved", "improved"]
    assert strategy.other.source.startswith("#define SPEED 1.0") and strategy.other.speedup == pytest.approx(1.0)
    assert strategy.trial.passed and strategy.trial.speedup == pytest.approx(2.0, rel=0.02) and strategy.trial.times_ns
    assert strategy.profiled.metrics and not strategy.wrong.passed and "mismatch" in strategy.wrong.failure
    last = strategy.seen.attempts[-1]
    assert (
        last.notes["idea"] == "two"
        and "full" in last.notes["seconds"]
        and set(last.times_ns) == {c.id for c in task.operator.cases}
    )
    assert strategy.seen.rounds_left == 3 and strategy.seen.budget_left == {}
    assert store.run(summary.run_id).spend["evaluations"] == len(world.evaluated + world.screened + world.profiled)


def test_a_strategy_may_come_from_another_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "greedy_search.py").write_text(
        "class Greedy:\n    name = 'greedy'\n\n\ndef create():\n    return Greedy()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("greedy", "greedy_search", "msbench.agents")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == "msbench.agents" else [])
    assert agents.pick("greedy").name == "greedy" and "greedy" in plugins.names("msbench.agents")


@pytest.mark.parametrize("name", ["astra", "best_of_n", "cudamaster"])
def test_a_strategy_has_no_private_import(name: str) -> None:
    source = (Path(agents.__file__).parent / f"{name}.py").read_text("utf-8")
    assert "msbench.agents._" not in source
    assert name != "best_of_n" or len(source.splitlines()) < 60
