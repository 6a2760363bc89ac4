"""The engine's pure parts: budget, verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.agents import Attempt
from msbench.conversation import Message, Reply
from msbench.errors import BudgetExceeded
from msbench.model import Outcome, Status
from msbench.optimize.briefings import remembered
from msbench.optimize.budget import FEWEST_TOKENS, Budget, Ledger
from msbench.optimize.comparison import Ratio, paired, rated, score
from msbench.optimize.journal import Journal
from msbench.optimize.judge import clearly_slower, judge
from msbench.statistics import prediction_held
from msbench.store.store import Store
from msbench.store.tables import RunRow
from tests import factories
from tests.optimizing import Scripted

OP = factories.operator()
LARGE = max(OP.cases, key=lambda case: case.dim("N"))
TWIN = replace(LARGE, distribution="spiked")
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
        limits.attempts.settle(Reply("", "", *used, provider.price(*used)))
    spend = ledger.stored()
    assert tokens is None or spend["tokens"] <= tokens
    assert cost is None or spend["cost_usd"] <= cost + 1e-9
    assert calls is None or spend["calls"] <= calls


def test_an_evaluation_is_reserved_by_the_longest_before_it() -> None:
    ledger = Ledger(Budget(gpu_seconds=10.0, evaluations=9), {})
    for seconds in (3.0, 4.0):
        ledger.settle_evaluation(ledger.reserve_evaluation(), seconds, gpu_seconds=seconds)
    with pytest.raises(BudgetExceeded, match="gpu seconds 7 of 10"):
        ledger.reserve_evaluation()
    on_cpu = Ledger(Budget(gpu_seconds=10.0), {})
    on_cpu.settle_evaluation(on_cpu.reserve_evaluation(), 99.0, gpu_seconds=0.0)
    on_cpu.reserve_evaluation()


def test_a_resumed_ledger_goes_on_from_what_was_stored() -> None:
    spent = {"calls": 4, "tokens": 900, "wall_seconds": 50.0, "cost_usd": 0.5, "evaluations": 2, "gpu_seconds": 6.0}
    ledger = Ledger(Budget(wall_seconds=60.0), spent)
    limits = ledger.reserve_call([Message("user", "x")], 2000, Scripted({}))
    assert limits.timeout_s is not None and 9.0 < limits.timeout_s <= 10.0
    limits.attempts.settle(sent=False)
    stored = ledger.stored()
    assert {k: stored[k] for k in spent if k != "wall_seconds"} == {
        k: v for k, v in spent.items() if k != "wall_seconds"
    }


@pytest.mark.parametrize(
    ("predicted", "low", "high", "held"),
    [
        (2.0, 1.9, 2.1, True), (2.0, 1.42, 1.5, True), (2.0, 1.2, 1.4, False), (2.0, 1.41, 1.42, None), (2.0, 1.0, 3.0, None),
        (1.0, 0.995, 1.0, True), (1.02, 0.99, 1.0, False), (1.0, 0.88, 0.9, False), (0.9, 0.9, 0.95, True),
        (None, 1.9, 2.1, None), (2.0, None, None, None),
    ],
)  # fmt: skip
def test_a_prediction_is_judged_by_the_interval_of_what_came(
    predicted: float | None, low: float | None, high: float | None, held: bool | None
) -> None:
    assert prediction_held(predicted, low, high) is held


def ratio(value: float, within: float = 0.004) -> Ratio:
    return Ratio(value, value - within, value + within)


def test_verdicts() -> None:
    better = judge(PASSED, 3.0, ratio(1.25), ratio(1.5), 1.5)
    assert (better.outcome, better.speedup, better.held) == (Outcome.IMPROVED, 3.0, True)
    assert better.lesson == (
        "3.000x over naive; 1.500x [1.496, 1.504] over its parent; 1.250x [1.246, 1.254] over the best before it; "
        "1.500x was predicted and 1.225x needed, so the hypothesis held."
    )
    assert judge(PASSED, None, None, None, 1.5).outcome is Outcome.CHECKED
    failed = judge(factories.failed(OP, DRAFT, Status.CHECK_FAILED), None, None, None, 1.5)
    assert (failed.outcome, failed.speedup, failed.held) == (Outcome.FAILED, None, None)
    assert failed.lesson.startswith("mismatch: N=65536: y[17] is 0.5")


def test_what_was_tried_stays_short_after_a_hundred_rounds() -> None:
    def attempt(number: int) -> Attempt:
        outcome = Outcome.IMPROVED if number == 3 else Outcome.SLOWER
        return Attempt(
            number, "optimize", outcome, "p", f"v{number}", "plan " * 800, "why " * 1000, 1.5, 1.0, None, "lesson " * 99
        )

    attempts = tuple(attempt(number) for number in range(101))
    told = remembered(attempts)
    assert sum(len(a.plan) + len(a.hypothesis) + len(a.lesson) for a in told[1:]) < 18_000
    numbers = [a.number for a in told]
    assert numbers[0] == 0 and 3 in numbers and numbers == sorted(numbers) and numbers[-20:] == list(range(81, 101))
    assert len(told[-1].plan) > 1000 and len(told[-20].plan) < 150
    assert [a.number for a in remembered(attempts[:3])] == [0, 1, 2] and remembered(attempts[:1]) == attempts[:1]


@pytest.mark.parametrize(
    ("over_best", "outcome"),
    [
        (ratio(1.005), Outcome.IMPROVED),
        (ratio(1.003), Outcome.EQUAL),
        (ratio(0.997), Outcome.EQUAL),
        (ratio(0.995), Outcome.SLOWER),
        (ratio(1.05, 0.06), Outcome.EQUAL),
    ],
)
def test_what_the_interval_does_not_exclude_is_no_change(over_best: Ratio, outcome: Outcome) -> None:
    assert judge(PASSED, 2.0, over_best, over_best, None).outcome is outcome


def test_only_what_is_clearly_slower_is_given_up_after_the_screening() -> None:
    assert clearly_slower(ratio(0.9)) and not clearly_slower(ratio(0.968)) and not clearly_slower(None)
    verdict = judge(PASSED, None, None, ratio(0.9), 2.0, screened=True)
    assert (verdict.outcome, verdict.speedup, verdict.held) == (Outcome.SLOWER, None, False)
    assert (
        "0.900x [0.896, 0.904] over its parent on the 4 cases of the screening: not measured further" in verdict.lesson
    )


def test_a_run_s_profiles_are_its_own_though_another_run_made_newer_ones_of_the_version() -> None:
    with Store(":memory:") as store:
        for seed, at in ((1, 10.0), (2, 20.0)):
            store.add_evaluations(OP, factories.measured(OP, {DRAFT: seed / 4}, seed=seed, at=at))
        for seed, efficiency in ((1, 0.25), (2, 0.5), (3, 0.5)):  # one without profiles of its own has the newest
            run = RunRow(
                id=f"run{seed}",
                task_id=f"{OP.name}/{DRAFT.precision}",
                strategy="best_of_n",
                provider="manual",
                model="",
                executor="cuda",
                seed=seed,
                budget={},
                spend={},
                settings={},
                status="running",
                note="",
                command="",
                started_at=factories.instant(5.0),
            )
            (found,) = Journal(store, None, run, OP).profiles(DRAFT.id)
            assert found.metrics["dram__throughput.avg.pct_of_peak_sustained_elapsed"] == 100 * efficiency


def test_a_draft_that_is_fast_on_uniform_inputs_alone_is_not_fast() -> None:
    cases = (*OP.cases, TWIN)
    naive, draft = factories.measured(OP, {factories.candidate(OP, "naive"): 0.2, DRAFT: 0.4}, cases=cases)
    assert score(paired(naive, draft, cases), cases) == pytest.approx(2, rel=0.01)
    slow = naive.measurements[-1].samples_ns
    draft = replace(draft, measurements=(*draft.measurements[:-1], replace(draft.measurements[-1], samples_ns=slow)))
    by_case = paired(naive, draft, cases)
    assert [*by_case] == [case.id for case in rated(cases)] and TWIN.id not in by_case
    assert score({LARGE.id: by_case[LARGE.id]}, (LARGE, TWIN)) == pytest.approx(1)


def test_without_its_twin_a_large_case_counts_as_it_is() -> None:
    naive, draft = factories.measured(OP, {factories.candidate(OP, "naive"): 0.2, DRAFT: 0.4})
    assert paired(naive, draft, (*OP.cases, TWIN)).keys() == {case.id for case in OP.cases}
