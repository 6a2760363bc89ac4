"""Recorded answers, in order, to each agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from msbench import providers
from msbench.conversation import Limits, Message
from msbench.errors import ProviderUnavailable, RecordingDiffers, RecordingEnded, ReplyError, UnknownNameError
from msbench.spec import Precision, Task
from msbench.store.store import Store
from tests import factories

OP = factories.operator()
TASK = "scale/fp32"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as store:
        store.add_device(factories.GPU)
        store.add_task(Task(OP, Precision.FP32))
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


def test_a_prompt_that_was_not_recorded_is_an_error_that_shows_the_difference(store: Store) -> None:
    record(store, "r1", [("planner", "one\ntwo\nthree", "plan 1"), *CALLS[1:]])
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    with pytest.raises(RecordingDiffers) as caught:
        ask(provider, "planner", "one\n2\nthree")
    said = str(caught.value)
    assert "-two" in said and "+2" in said and "three" not in said and "run r1" in said
    with pytest.raises(RecordingDiffers, match="has no further answer"):
        ask(provider, "debugger", "d1")
    assert ask(provider, "planner", "one\ntwo\nthree") == "plan 1"


def test_the_key_is_agent_prompt_and_occurrence(store: Store) -> None:
    same = [("coder", "c", "first"), ("planner", "c", "plan"), ("coder", "c", "second"), ("coder", "d", "other")]
    record(store, "r1", same)
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    asked = [("coder", "d"), ("coder", "c"), ("planner", "c"), ("coder", "c")]
    assert [ask(provider, *one) for one in asked] == ["other", "first", "plan", "second"]


def test_an_answer_that_held_nothing_is_replayed_as_the_error_that_it_was(store: Store) -> None:
    record(store, "r1", [])
    store.add_call(
        run_id="r1", step_number=1, number=1, agent="planner", messages=[("user", "p")], reply="refused: It: won't.", role="error",
        model="m", seconds=1.0,
    )  # fmt: skip
    provider = providers.pick("replay", store=store)
    provider.begin("new", TASK, [])
    with pytest.raises(ReplyError, match=r"^It: won't\.$") as caught:
        ask(provider, "planner", "p")
    assert caught.value.kind == "refused"


def test_a_resumed_run_goes_on_behind_its_stored_answers(store: Store) -> None:
    record(store, "r1", CALLS)
    record(store, "r2", CALLS[:2], provider="replay", status="running")
    provider = providers.pick("replay", store=store, run="r1")
    provider.begin("r2", TASK, [call.row for call in store.calls("r2")])
    assert ask(provider, "planner", "p2") == "plan 2"
    assert provider.note() == "All 3 prompts were the recorded ones."


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


def test_a_run_of_the_default_strategy_comes_before_newer_ones_of_others(store: Store) -> None:
    for number, strategy in enumerate(("cudamaster", "cudamaster", "best_of_n")):
        record(store, f"r{number}", CALLS, started_at=factories.instant(number), strategy=strategy)
    found = providers.pick("replay", store=store).recording(TASK)
    assert found is not None and found.id == "r1"
    record(store, "stopped", CALLS, status="stopped")
    assert (again := providers.pick("replay", store=store).recording(TASK)) is not None and again.id == "r1"


def test_nothing_to_replay_is_said_before_the_run_begins(store: Store) -> None:
    with pytest.raises(ProviderUnavailable, match=r"no recorded conversation for scale/fp32.*manual"):
        providers.pick("replay", store=store).begin("new", TASK, [])
    with pytest.raises(UnknownNameError):
        providers.pick("replay", store=store, run="gone").begin("new", TASK, [])
    record(store, "r1", CALLS)
    with pytest.raises(ProviderUnavailable, match="is for scale/fp32, not scale/bf16"):
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
