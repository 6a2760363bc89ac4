"""Recorded answers, in order, to each agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from msbench import providers
from msbench.conversation import Limits, Message
from msbench.errors import ProviderUnavailable, RecordingEnded, UnknownNameError
from msbench.spec import Precision
from msbench.store.store import Store
from tests import factories

OP = factories.operator()
TASK = "scale/fp32"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        store.add_device(factories.GPU)
        store.add_task(OP, Precision.FP32)
        yield store


def record(store: Store, run_id: str, calls: Sequence[tuple[str, str, str]], **changes: object) -> None:
    fields = {"status": "finished", "provider": "manual", "model": "answered by hand", **changes}
    store.start_run(factories.run_row(OP, run_id=run_id, **fields))
    for number, (agent, prompt, reply) in enumerate(calls, 1):
        store.add_call(
            run_id=run_id, step_number=1, number=number, agent=agent, messages=[("user", prompt)], reply=reply,
            model="answered by hand", seconds=9.0, prompt_tokens=10, completion_tokens=5, cost_usd=0.5,
        )  # fmt: skip


CALLS = [("planner", "p1", "plan 1"), ("coder", "c1", "code 1"), ("planner", "p2", "plan 2"), ("coder", "c2", "code 2")]


def ask(provider: providers.Provider, agent: str, prompt: str) -> str:
    return provider.complete(agent, [Message("user", prompt)], Limits()).text


def test_each_agent_gets_its_answers_in_order(store: Store) -> None:
    record(store, "r1", CALLS)
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    assert (provider.replay_of, provider.model) == ("r1", "answered by hand")
    assert [ask(provider, "planner", "p1"), ask(provider, "planner", "p2")] == ["plan 1", "plan 2"]
    assert [ask(provider, "coder", "c1"), ask(provider, "coder", "c2")] == ["code 1", "code 2"]
    assert provider.note() == "All 4 prompts were the recorded ones."
    with pytest.raises(RecordingEnded, match="2 answers to the coder"):
        ask(provider, "coder", "c3")
    with pytest.raises(RecordingEnded, match="0 answers to the debugger"):
        ask(provider, "debugger", "d1")


def test_it_costs_nothing_and_keeps_the_recorded_counts(store: Store) -> None:
    record(store, "r1", CALLS)
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    reply = provider.complete("planner", [Message("user", "p1")], Limits())
    assert (reply.cost_usd, reply.prompt_tokens, reply.completion_tokens) == (0.0, 10, 5)


def test_a_different_prompt_is_answered_and_counted(store: Store) -> None:
    record(store, "r1", CALLS)
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    assert [ask(provider, "planner", "p1"), ask(provider, "coder", "other")] == ["plan 1", "code 1"]
    assert "1 of 2 prompts differed from the recorded ones (call 2). That is harmless: " in provider.note()
    provider = providers.pick("replay", store=store)
    provider.begin("another", TASK, [])
    assert [ask(provider, "planner", "other"), ask(provider, "coder", "other")] == ["plan 1", "code 1"]
    assert "2 of 2 prompts differed from the recorded ones. That is harmless: " in provider.note()


def test_a_resumed_run_goes_on_behind_its_stored_answers(store: Store) -> None:
    record(store, "r1", CALLS)
    record(store, "r2", [CALLS[0], ("coder", "other", "code 1")], provider="replay", status="running")
    provider = providers.pick("replay", store=store, run="r1")
    provider.begin("r2", TASK, [call.row for call in store.calls("r2")])
    assert ask(provider, "planner", "p2") == "plan 2"
    assert "1 of 3 prompts differed" in provider.note()


def test_the_newest_finished_run_with_answers_of_its_own(store: Store) -> None:
    record(store, "old", [("planner", "p", "old")], started_at=factories.instant(1))
    record(store, "good", [("planner", "p", "good")], started_at=factories.instant(2))
    record(store, "unfinished", [("planner", "p", "unfinished")], started_at=factories.instant(3), status="stopped")
    record(store, "silent", [], started_at=factories.instant(4))
    record(store, "replayed", [("planner", "p", "again")], started_at=factories.instant(5), provider="replay")
    for wanted, found in (("", "good"), ("old", "old"), ("unf", "unfinished")):
        provider = providers.pick("replay", store=store, run=wanted)
        provider.begin("new", TASK, [])
        assert ask(provider, "planner", "p") == found


def test_nothing_to_replay_is_said_before_the_run_begins(store: Store) -> None:
    with pytest.raises(ProviderUnavailable, match=r"no recorded conversation for scale/fp32.*manual"):
        providers.pick("replay", store=store).begin("new", TASK, [])
    with pytest.raises(UnknownNameError):
        providers.pick("replay", store=store, run="gone").begin("new", TASK, [])
    record(store, "r1", CALLS)
    with pytest.raises(ProviderUnavailable, match="is of scale/fp32, not of scale/bf16"):
        providers.pick("replay", store=store, run="r1").begin("new", "scale/bf16", [])
    with pytest.raises(ProviderUnavailable, match="--db"):
        providers.pick("replay")


def test_it_names_the_recording_whose_settings_a_new_run_takes(store: Store) -> None:
    record(store, "r1", CALLS)
    found = providers.pick("replay", store=store).recording(TASK)
    assert found is not None and (found.id, found.settings) == ("r1", store.run("r1").settings)
    with pytest.raises(ProviderUnavailable, match="no recorded conversation"):
        providers.pick("replay", store=store).recording("scale/bf16")
    assert providers.pick("manual").recording(TASK) is None
