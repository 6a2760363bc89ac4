"""The strategy is a pure function of the history: it keeps the best, repairs what failed, and turns when it is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from msbench import agents, plugins
from msbench.agents import Attempt, History
from msbench.agents.cudamaster import DEBUG_ATTEMPTS, DIRECTIONS, PATIENCE
from msbench.conversation import Message, Reply
from msbench.errors import ReplyError, UnknownNameError
from msbench.model import Failure, Fault, Outcome
from tests.agents.samples import KERNEL, briefing, failing

BASELINE = Attempt(0, "baseline", Outcome.BASELINE, None, "naive", speedup=1.0, bottleneck="memory")


def history(*attempts: tuple[str, Outcome, str | None, str | None, float | None], seed: int = 0) -> History:
    rows = [Attempt(i, a, o, p, v, speedup=s, bottleneck="memory") for i, (a, o, p, v, s) in enumerate(attempts, 1)]
    return History((BASELINE, *rows), seed)


def test_plugins_lists_strategies_only() -> None:
    assert plugins.names("msbench.agents") == ("astra", "best_of_n", "cudamaster")
    with pytest.raises(UnknownNameError, match=r"no strategy 'cudamastre'\. Did you mean 'cudamaster'"):
        agents.pick("cudamastre")


def test_it_goes_on_from_the_best() -> None:
    strategy = agents.pick("cudamaster")
    first = strategy.ask(history())
    assert first is not None and (first.parent, first.action) == ("naive", "optimize")
    later = strategy.ask(
        history(("optimize", Outcome.IMPROVED, "naive", "a", 2.0), ("optimize", Outcome.SLOWER, "a", "b", 1.5))
    )
    assert later is not None and (later.parent, later.action) == ("a", "optimize")


def test_it_repairs_a_failed_draft_and_then_gives_up() -> None:
    strategy = agents.pick("cudamaster")
    steps = [("optimize", Outcome.FAILED, "naive", "f0", None)]
    for k in range(DEBUG_ATTEMPTS):
        proposal = strategy.ask(history(*steps))
        assert proposal is not None and (proposal.parent, proposal.action) == (f"f{k}", "debug")
        steps.append(("debug", Outcome.FAILED, f"f{k}", f"f{k + 1}", None))
    given_up = strategy.ask(history(*steps))
    assert given_up is not None and (given_up.parent, given_up.action) == ("naive", "optimize")


def test_no_repair_without_a_kernel() -> None:
    proposal = agents.pick("cudamaster").ask(history(("optimize", Outcome.NO_KERNEL, "naive", None, None)))
    assert proposal is not None and (proposal.parent, proposal.action) == ("naive", "optimize")


def test_stuck_it_turns_each_time_to_another_direction() -> None:
    strategy = agents.pick("cudamaster")
    steps = [("optimize", Outcome.SLOWER, "naive", f"s{k}", 0.9) for k in range(PATIENCE)]
    guidance = []
    for k in range(len(DIRECTIONS["memory"])):
        proposal = strategy.ask(history(*steps))
        assert proposal is not None and proposal.action == "explore" and proposal == strategy.ask(history(*steps))
        guidance.append(proposal.guidance)
        steps.append(("explore", Outcome.SLOWER, "naive", f"e{k}", 0.9))
    assert len(set(guidance)) == len(DIRECTIONS["memory"])
    assert all(any(d in text for d in DIRECTIONS["memory"]) for text in guidance)
    orders = {strategy.ask(history(*steps[:PATIENCE], seed=seed)).guidance for seed in range(20)}  # type: ignore[union-attr]
    assert len(orders) > 1


class Script:
    """A language model that reads its answers off a list."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, list[Message]]] = []

    def __call__(self, agent: str, messages: Sequence[Message]) -> Reply:
        self.asked.append((agent, list(messages)))
        return Reply(self.answers.pop(0), "script")


PLAN = '{"plan": "Load 16 bytes.", "hypothesis": "Fewer loads.", "predicted_speedup": 1.5}'
FENCED = f"```cuda\n{KERNEL}```"


def test_planner_then_coder() -> None:
    strategy = agents.pick("cudamaster")
    proposal = strategy.ask(history())
    assert proposal is not None
    script = Script(PLAN, FENCED)
    draft = strategy.draft(proposal, briefing(), script)
    assert draft.source == KERNEL
    assert (draft.plan, draft.hypothesis, draft.predicted_speedup) == ("Load 16 bytes.", "Fewer loads.", 1.5)
    assert [agent for agent, _ in script.asked] == ["planner", "coder"]
    assert "Load 16 bytes." in script.asked[1][1][-1].content


def test_one_request_to_reformat() -> None:
    strategy = agents.pick("cudamaster")
    proposal = strategy.ask(history())
    assert proposal is not None
    good = Script(PLAN, "Just use float4.", FENCED)
    assert strategy.draft(proposal, briefing(), good).source == KERNEL
    again = good.asked[2][1]
    assert [m.role for m in again] == ["system", "user", "assistant", "user"]
    assert "holds no code" in again[-1].content
    bad = Script(PLAN, "Just use float4.", "As I said.", FENCED)
    draft = strategy.draft(proposal, briefing(), bad)
    assert draft.source is None and "no code" in draft.problem and draft.plan == "Load 16 bytes."
    assert bad.answers == [FENCED]


def test_a_vendor_library_is_not_a_kernel() -> None:
    strategy = agents.pick("cudamaster")
    proposal = strategy.ask(history())
    assert proposal is not None
    script = Script(PLAN, f"```cuda\n// msbench: link cublas\n{KERNEL}```", FENCED)
    assert strategy.draft(proposal, briefing(), script).source == KERNEL
    assert "cublas" in script.asked[2][1][-1].content


def test_the_debugger_sees_source_message_and_log() -> None:
    strategy = agents.pick("cudamaster")
    failed = Attempt(1, "optimize", Outcome.FAILED, "naive", "bad", "Load 16 bytes.", "Fewer loads.", 1.5)
    proposal = strategy.ask(History((BASELINE, failed), 0))
    assert proposal is not None
    told = failing(Failure(Fault.COMPILE, "Line 3: no such thing.", "x" * 9000 + "THE END"), (BASELINE, failed))
    script = Script(FENCED)
    draft = strategy.draft(proposal, told, script)
    assert draft.source == KERNEL and draft.predicted_speedup == 1.5
    prompt = script.asked[0][1][-1].content
    assert script.asked[0][0] == "debugger"
    assert "Line 3: no such thing." in prompt and "THE END" in prompt and "Load 16 bytes." in prompt
    assert told.parent.source in prompt and len(prompt) < 8000


def test_provider_errors_pass_through() -> None:
    def refuses(agent: str, messages: Sequence[Message]) -> Reply:
        raise ReplyError("It refused.", "refused")

    strategy = agents.pick("cudamaster")
    proposal = strategy.ask(history())
    assert proposal is not None
    with pytest.raises(ReplyError, match="refused"):
        strategy.draft(proposal, replace(briefing(), measures=False), refuses)
