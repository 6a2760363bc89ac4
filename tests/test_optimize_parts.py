"""The engine's pure parts: budget, verdicts."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from msbench.conversation import Message
from msbench.errors import BudgetExceeded
from msbench.model import Outcome, Status
from msbench.optimize.budget import FEWEST_TOKENS, Budget, Ledger
from msbench.optimize.judge import hypothesis_held, judge
from tests import factories
from tests.optimizing import Scripted

OP = factories.operator()
DRAFT = factories.candidate(OP, "draft")
(PASSED,) = factories.measured(OP, {DRAFT: 0.5})


@given(
    tokens=st.none() | st.integers(0, 60_000),
    cost=st.none() | st.floats(0, 0.6),
    calls=st.none() | st.integers(0, 6),
    prompts=st.lists(st.integers(1, 20_000), max_size=12),
    share=st.floats(0, 1),
)
def test_honest_answers_never_exceed_the_budget(
    tokens: int | None, cost: float | None, calls: int | None, prompts: list[int], share: float
) -> None:
    budget = Budget(cost_usd=cost, tokens=tokens, calls=calls)
    ledger, provider = Ledger(budget, {}), Scripted({})
    for characters in prompts:
        try:
            limits = ledger.reserve_call([Message("user", "x" * characters)], 16_000, provider)
        except BudgetExceeded as error:
            assert " of " in str(error)
            break
        assert limits.max_tokens is not None and limits.max_tokens <= 16_000
        assert (tokens, cost) == (None, None) or limits.max_tokens >= FEWEST_TOKENS
        used = (characters // 4, int(limits.max_tokens * share))
        ledger.settle_call(provider.price(*used), *used)
    spend = ledger.stored()
    assert tokens is None or spend["tokens"] <= tokens
    assert cost is None or spend["cost_usd"] <= cost + 1e-9
    assert calls is None or spend["calls"] <= calls


def test_an_evaluation_is_reserved_by_the_longest_before_it() -> None:
    ledger = Ledger(Budget(gpu_seconds=10.0, evaluations=9), {})
    for seconds in (3.0, 4.0):
        ledger.reserve_evaluation()
        ledger.settle_evaluation(seconds, on_gpu=True)
    with pytest.raises(BudgetExceeded, match="gpu seconds 7 of 10"):
        ledger.reserve_evaluation()
    on_cpu = Ledger(Budget(gpu_seconds=10.0), {})
    on_cpu.reserve_evaluation()
    on_cpu.settle_evaluation(99.0, on_gpu=False)
    on_cpu.reserve_evaluation()


def test_a_resumed_ledger_goes_on_from_what_was_stored() -> None:
    spent = {"calls": 4, "tokens": 900, "wall_seconds": 50.0, "cost_usd": 0.5, "evaluations": 2, "gpu_seconds": 6.0}
    ledger = Ledger(Budget(wall_seconds=60.0), spent)
    limits = ledger.reserve_call([Message("user", "x")], 2000, Scripted({}))
    assert limits.timeout_s is not None and 9.0 < limits.timeout_s <= 10.0
    assert {k: v for k, v in ledger.stored().items() if k != "wall_seconds"} == {k: v for k, v in spent.items() if k != "wall_seconds"}  # fmt: skip


@pytest.mark.parametrize(
    ("predicted", "gain", "held"),
    [
        (2.0, 2.0, True), (2.0, 1.42, True), (2.0, 1.3, False), (1.0, 1.0, True), (1.02, 1.0, False), (1.0, 0.9, False), (0.9, 0.9, True),
        (None, 2.0, None), (2.0, None, None),
    ],
)  # fmt: skip
def test_a_hypothesis_holds_if_half_the_gain_came(predicted: float, gain: float, held: bool) -> None:
    assert hypothesis_held(predicted, gain) is held


@given(gain=st.floats(0.98, 1.05), predicted=st.floats(0.95, 1.1))
@example(gain=1.0096, predicted=1.02)
def test_what_is_told_of_a_step_shows_why_it_was_judged_so(gain: float, predicted: float) -> None:
    verdict = judge(PASSED, 1.9, gain, gain, predicted)
    told_gain, needed = (float(x) for x in re.findall(r"([\d.]+)x (?:over its parent|needed)", verdict.told))
    least = hypothesis_needs(predicted)
    if abs(gain - least) > 1e-4:
        assert (told_gain >= needed) == verdict.held
    if min(abs(gain - 1.01), abs(gain - 0.99)) > 1e-4:
        assert (told_gain > 1.01) == (verdict.outcome is Outcome.IMPROVED)
        assert (told_gain < 0.99) == (verdict.outcome is Outcome.SLOWER)
    assert "timed side by side" in verdict.told and "timed" not in verdict.lesson


def hypothesis_needs(predicted: float) -> float:
    """The least gain with which a hypothesis holds, found by trying."""
    low, high = 0.5, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if hypothesis_held(predicted, middle) else (middle, high)
    return high


def test_verdicts() -> None:
    better = judge(PASSED, 3.0, 1.25, 1.5, 1.5)
    assert (better.outcome, better.speedup, better.held) == (Outcome.IMPROVED, 3.0, True)
    assert better.lesson == (
        "3.00x over naive; 1.50x over its parent; 1.25x over the best before it; "
        "1.50x was predicted, so the hypothesis held."
    )
    assert better.told == (
        "3.00x over naive; 1.50x over its parent, timed side by side; 1.25x over the best before it, timed side by side; "
        "1.50x was predicted and 1.22x needed, so the hypothesis held."
    )
    assert judge(PASSED, 2.01, 1.005, 1.005, None).outcome is Outcome.EQUAL
    assert judge(PASSED, 1.9, 0.95, 0.95, None).outcome is Outcome.SLOWER
    assert judge(PASSED, None, None, None, 1.5).outcome is Outcome.CHECKED
    failed = judge(factories.failed(OP, DRAFT, Status.CHECK_FAILED), None, None, None, 1.5)
    assert (failed.outcome, failed.speedup, failed.held) == (Outcome.FAILED, None, None)
    assert failed.lesson.startswith("mismatch: N=65536: y[17] is 0.5")
