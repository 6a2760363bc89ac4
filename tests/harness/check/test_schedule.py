"""Enough is checked, cheap cases first, and nothing that an executor can't afford."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from msbench.harness.check.case import VARIANTS
from msbench.harness.check.schedule import (
    EXTRA_LIMIT,
    EXTRA_SHARE,
    HELDOUT_ELEMENTS,
    LARGE_HELDOUT,
    Scheduled,
    schedule,
    suspects,
    work,
)
from msbench.harness.protocols import Checks, Plan
from msbench.operators import elements, patchwork
from msbench.operators.tiny import BROAD_ELEMENTS, tiny
from msbench.spec import Split
from tests import turns
from tests.harness.fakes import OPERATOR, case

LARGE = case(2**30, Split.LARGE)
WIDE = replace(OPERATOR, cases=(*OPERATOR.cases, LARGE))


def by_id(scheduled: tuple[Scheduled, ...]) -> dict[str, tuple[str, ...]]:
    return {item.case.id: item.variants for item in scheduled}


RANGED = replace(OPERATOR, scalars=(replace(OPERATOR.scalars[0], low=1.0, high=9.0),))


def varied(found: tuple[Scheduled, ...]) -> list[str]:
    """The public sizes that are checked with other scalars, and on what inputs."""
    public = {one.dims for one in OPERATOR.cases}
    return [f"{i.case.dims[0][1]} {i.case.distribution}" for i in found if i.case.scalars and i.case.dims in public]


def test_full_adds_hidden_scalars_on_public_sizes_all_inputs_once() -> None:
    for plan in (Plan((case(64),)), Plan(OPERATOR.cases, trusted=True)):
        found = schedule(RANGED, plan, None)
        spared = {*patchwork.NAMES, "nonfinite"} if plan.trusted else set()
        others = varied(found)
        assert {"64 uniform", "777 uniform"} <= set(others)
        inputs = [one.split()[1] for one in others if not one.endswith("uniform")]
        assert sorted(inputs) == sorted(set(OPERATOR.distributions[1:]) - spared)
        assert {one.split()[0] for one in others if not one.endswith("uniform")} == {"64", "777"}
        ids = by_id(found)
        assert all((f"N=64,{d}" in ids) != (f"N=777,{d}" in ids) for d in inputs)
    others = [one for one in varied(schedule(RANGED, Plan((case(2048),)), None)) if one.startswith("2048")]
    assert sorted(others) == sorted(f"2048 {d}" for d in OPERATOR.distributions[1:])
    assert varied(schedule(RANGED, Plan((case(64),), checks=Checks.QUICK), None)) == []
    assert varied(schedule(OPERATOR, Plan((case(64),)), None)) == []
    cases = [i.case for i in schedule(RANGED, Plan((case(64),)), None)]
    assert all(bool(one.scalars) == (one.split is Split.HELDOUT) for one in cases)


def test_the_cheapest_case_has_hidden_scalars_where_it_is_all_that_can_be_afforded() -> None:
    cheapest = min(work(RANGED, one) for one in RANGED.cases)
    assert "64 uniform" in varied(schedule(RANGED, Plan((case(64),)), cheapest))


def test_quick_is_the_plans_cases_once() -> None:
    plan = Plan((LARGE, case(64)), checks=Checks.QUICK)
    assert by_id(schedule(WIDE, plan, None)) == {"N=64": ("aligned",), LARGE.id: ("aligned",)}


def test_full_adds_hidden_sizes_and_distributions() -> None:
    found = by_id(schedule(WIDE, Plan((LARGE, case(64))), None))
    assert found["N=64"] == VARIANTS
    assert found[LARGE.id] == ("aligned",)
    for distribution in OPERATOR.distributions[1:]:
        assert found[f"N=64,{distribution}"] == ("aligned",)
        assert found[f"N=777,{distribution}"] == ("aligned",)
    plan = Plan((case(64),), heldout=7)
    small = {one.id for one in tiny(WIDE, plan.seed)}
    hidden = [i for i in schedule(WIDE, plan, None) if i.case.split is Split.HELDOUT and i.case.id not in small]
    assert len(hidden) == 9  # and one beside the only public size, and one beyond it
    assert [i.variants for i in hidden if "misaligned" not in i.variants] == [("aligned",)]


def test_full_adds_tiny_sizes_but_for_baselines_and_where_nothing_is_hidden() -> None:
    small = {one.id for one in tiny(OPERATOR, 3)}
    found = by_id(schedule(OPERATOR, Plan((case(64),), seed=3), None))
    assert len(small) > 10 and small <= found.keys() and ("aligned",) in {found[i] for i in small}
    for plan in (Plan((case(64),), seed=3, trusted=True), Plan((case(64),), seed=3, heldout=0)):
        assert len(small & by_id(schedule(OPERATOR, plan, None)).keys()) < 3


def test_of_few_sizes_all_are_tried() -> None:
    """As of powers of two."""
    dims = (replace(WIDE.dims[0], high=2**27),)
    op = replace(WIDE, dims=dims, valid=lambda N: N & (N - 1) == 0, cases=(case(64), case(2**22)))
    tried = {i.case.dims[0][1] for i in schedule(op, Plan(op.cases, seed=1), None)}
    assert tried == {2**k for k in range(28)}


def test_one_hidden_size_is_in_the_upper_fifth_and_misaligned_too() -> None:
    sizes, dotted = set(), 0
    for seed in range(20):
        plan = Plan((case(64), case(4000)), heldout=0, seed=seed)
        found = schedule(replace(OPERATOR, cases=(case(64),)), plan, None)
        near, beyond = sorted((i for i in found if i.case.split is Split.HELDOUT), key=lambda i: i.case.dims)
        assert beyond.variants == ("aligned",) and 4000 < beyond.case.dims[0][1] <= OPERATOR.dims[0].high
        assert near.variants == ("aligned", "misaligned") and near.case.distribution == "scattered"
        sizes.add(near.case.dims[0][1])
        dotted += beyond.case.distribution == "dotted"
        assert [i for i in schedule(OPERATOR, replace(plan, trusted=True), None) if i.case.split is Split.HELDOUT] == []
    assert len(sizes) > 15 and all(size % 2 and 3200 <= size < 4000 for size in sizes)
    assert 5 < dotted < 18  # one number nearly everywhere


def test_of_trusted_versions_the_cheapest_cases_alone_are_tried_for_cheating_and_no_hidden_sizes() -> None:
    sizes = {case.dims for case in OPERATOR.cases}
    planned = schedule(OPERATOR, Plan(OPERATOR.cases), None)
    every = by_id(planned)
    trusted = by_id(schedule(OPERATOR, Plan(OPERATOR.cases, trusted=True), None))
    only = every.keys() - trusted.keys()
    assert {i for i in only if i.startswith("N=2048")} == {f"N=2048,{d}" for d in OPERATOR.distributions[1:]}
    hidden = {item.case.id for item in planned if item.case.dims not in sizes}
    assert len(hidden) > 4 and hidden <= only
    others = {i for i in only - hidden if not i.startswith("N=2048")}
    assert others and all("," in i and i.split(",")[1] in patchwork.NAMES for i in others)
    assert [i for i in trusted if trusted[i] == VARIANTS] == ["N=64", "N=777"]
    assert (every["N=2048"], trusted["N=2048"]) == (VARIANTS, ("aligned",))


def test_baselines_are_tried_on_no_patches() -> None:
    op = replace(OPERATOR, distributions=("uniform", "spiked", "patchwork", "scattered"))
    for seed in range(10):
        plan = Plan(op.cases, heldout=8, seed=seed)
        assert {"patchwork", "scattered"} <= {i.case.distribution for i in schedule(op, plan, None)}
        trusted = {i.case.distribution for i in schedule(op, replace(plan, trusted=True), None)}
        assert trusted == {"uniform", "spiked"}


def test_where_every_public_case_is_expensive_a_hidden_size_stands_in() -> None:
    """As a matrix product on a CPU."""
    expensive = replace(OPERATOR, flops=lambda N: 10**12 if N in (64, 777, 2048) else N)
    found = schedule(expensive, Plan(expensive.cases), 1e9)
    (base,) = (i.case for i in found if i.variants == VARIANTS)
    assert base.split is Split.HELDOUT
    assert {i.case.distribution for i in found if i.case.dims == base.dims} == set(OPERATOR.distributions)


def test_hidden_sizes_depend_on_the_seed_alone() -> None:
    def hidden(seed: int) -> set[str]:
        found = schedule(OPERATOR, Plan((case(64),), seed=seed), None)
        return {i.case.id for i in found if i.case.split is Split.HELDOUT}

    assert hidden(1) == hidden(1)
    assert hidden(1) != hidden(2)


@settings(max_examples=turns.examples(100))
@given(sizes=st.sets(st.integers(1, 10**7), min_size=1), limit=st.none() | st.floats(1e3, 1e9), full=st.booleans())
def test_cheap_first_and_nothing_above_the_limit(sizes: set[int], limit: float | None, full: bool) -> None:
    plan = Plan(tuple(case(n) for n in sizes), checks=Checks.FULL if full else Checks.QUICK)
    found = schedule(OPERATOR, plan, limit)
    costs = [work(OPERATOR, item.case) for item in found]
    assert costs == sorted(costs)
    assert len({item.case.id for item in found}) == len(found)
    affordable = {c.id for c in plan.cases if limit is None or work(OPERATOR, c) <= limit}
    assert affordable <= {item.case.id for item in found}
    if limit is not None:
        assert all(cost <= limit for cost in costs)
        costly = [i for i, cost in zip(found, costs, strict=True) if cost > limit * EXTRA_SHARE]
        assert sum(i.variants != ("aligned",) for i in costly) <= 1  # a hidden one


def test_large_sizes_and_other_inputs_of_them_are_no_safe_place() -> None:
    plan = Plan((case(64), case(2**22), LARGE))
    op = replace(WIDE, dims=(replace(WIDE.dims[0], high=2**30),))
    found = schedule(op, plan, None)
    large = [i.case for i in found if elements(op, dict(i.case.dims)) > BROAD_ELEMENTS]
    public = [one for one in large if one.dims in {one.dims for one in plan.cases}]
    inputs = {one.distribution for one in public}
    assert "uniform" in inputs and len(inputs & set(patchwork.NAMES)) == 2 and len(inputs) == 4
    assert len({one.dims for one in public if one.distribution != "uniform"}) == 2
    assert len(large) - len(public) == LARGE_HELDOUT + 1
    assert sorted(i.variants for i in found if i.case.split is Split.HELDOUT and i.case in large) == [
        ("aligned",),
        ("aligned", "misaligned"),
    ]
    trusted = schedule(op, replace(plan, trusted=True), None)
    assert [i.case.id for i in trusted if i.case.dims[0][1] > HELDOUT_ELEMENTS] == [case(2**22).id, LARGE.id]


def test_other_inputs_of_sizes_between_the_cheapest_and_the_large_ones_are_no_safe_place() -> None:
    plan = Plan((case(64), case(2048), case(4096), case(2**22)))
    for some, inputs in ((plan, set(OPERATOR.distributions)), (replace(plan, trusted=True), {"uniform"})):
        between = [i.case for i in schedule(WIDE, some, None) if i.case.dims[0][1] in (2048, 4096)]
        assert {one.distribution for one in between} == inputs
        assert len({one.dims for one in between}) == 2
        assert len({one.id for one in between}) == len(inputs) + 1  # which is uniform on both


def test_which_large_size_has_which_inputs_is_the_seeds_secret() -> None:
    def inputs(seed: int) -> set[str]:
        found = schedule(WIDE, Plan((case(2**22), case(2**23), LARGE), seed=seed), None)
        return {i.case.id for i in found if i.case.dims[0][1] in (2**22, 2**23, 2**30)}

    first = inputs(1)
    assert first == inputs(1)
    assert any(inputs(seed) != first for seed in range(2, 11))


def test_a_case_that_only_a_gpu_can_afford() -> None:
    assert work(WIDE, LARGE) > EXTRA_LIMIT > work(WIDE, case(64))


def test_baselines_are_suspected_on_the_cheapest_case_only() -> None:
    cases = (case(2048), case(64), case(777))
    assert [suspects(OPERATOR, Plan(cases), one) for one in cases] == [True, True, True]
    assert [suspects(OPERATOR, Plan(cases, trusted=True), one) for one in cases] == [False, True, False]
