"""Chooses which cases to check and how: enough to find wrong kernels, few enough to keep an evaluation short."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, cycle

from msbench.harness.check.case import VARIANTS
from msbench.harness.check.cost import work
from msbench.harness.protocols import Checks, Plan
from msbench.operators import elements, heldout, nearly, vary
from msbench.operators.patchwork import NAMES as PATCHES
from msbench.operators.tiny import tiny
from msbench.spec import STANDARD_DISTRIBUTIONS, Case, Operator, Split

ALIGNED = VARIANTS[:1]
PLACED = ("aligned", "misaligned")

EXTRA_LIMIT = 2e9
"""The work up to which a case is also checked misaligned, repeated and with changed inputs: eight launches more."""

EXTRA_SHARE = 1 / 32
"""The same, as a share of the limit of an executor that has one: cases near it take seconds a launch."""

HELDOUT_ELEMENTS = 2**20

LARGE_HELDOUT = 1
"""Hidden sizes between HELDOUT_ELEMENTS and the largest that is measured: a version may be another one there."""

LARGE_LIMIT = 2e10
"""The work up to which they are drawn."""

LARGE_SHARE = 1 / 16
"""The same, and for other inputs on large cases, as a share of the limit of an executor that has one."""

BEYOND_ELEMENTS = 2**29
"""The elements up to which a size beyond the largest measured one is tried, where its work is within LARGE_LIMIT, too."""

FEW_SIZES = 20
"""An operator of one dimension that takes no more sizes than these within a limit, as powers of two, is tried on all of them."""

_COSTLY = 2  # of the patches, and of an operator's own distributions, are tried on large cases


@dataclass(frozen=True)
class Scheduled:
    """A case and the variants of ``check`` that it is checked in."""

    case: Case
    variants: tuple[str, ...]


def suspects(op: Operator, plan: Plan, case: Case) -> bool:
    """Whether to test for cheating when a case is measured: always, but for ``trusted`` versions only on the cheapest case."""
    return not plan.trusted or case == min(plan.cases, key=lambda case: work(op, case))


def schedule(op: Operator, plan: Plan, limit: float | None) -> tuple[Scheduled, ...]:
    """What ``plan`` checks, cheap cases first.

    Every case of the plan, and for ``Checks.FULL`` also: the operator's cheapest case; hidden sizes; all distributions
    on the cheapest paper case and on the cheapest odd one (if neither is affordable, on the largest hidden size that is);
    hidden scalars on all of these, for each distribution on one of the two; every variant where a case is affordable (of ``trusted`` versions: on these cheapest cases;
    no hidden sizes, for each of which a library would be set up, and no patches). Of versions that are not ``trusted`` also some dozens of tiny sizes, and where a size could tell them that nothing is
    tried: a hidden size in the upper fifth of the plan's, misaligned too; another among the large ones; one beyond all of them; and, with hidden
    scalars, patches and one more distribution on the plan's large cases, and each on its other ones. Cases above ``limit``
    (``Executor.check_limit``) are left out.
    """
    found: dict[str, Scheduled] = {}
    wanted = _wanted(op, plan, EXTRA_LIMIT if limit is None else limit * EXTRA_SHARE)
    if plan.checks is Checks.FULL and not plan.trusted:
        wanted = chain(wanted, _elsewhere(op, plan, None if limit is None else limit * LARGE_SHARE))
    for item in wanted:
        if limit is None or work(op, item.case) <= limit:
            found.setdefault(item.case.id, item)
    return tuple(sorted(found.values(), key=lambda item: work(op, item.case)))


def _wanted(op: Operator, plan: Plan, extra_limit: float) -> Iterator[Scheduled]:
    def cost(case: Case) -> float:
        return work(op, case)

    if plan.checks != Checks.FULL:
        yield from (Scheduled(case, ALIGNED) for case in plan.cases)
        return
    # A library that loses an infinity, or multiplies one by a padding zero, is the bar all the same.
    spared = (*PATCHES, "nonfinite") if plan.trusted else ()
    every = _few_or(plan.heldout, op, plan.seed, HELDOUT_ELEMENTS)
    hidden = sorted(every[: plan.heldout], key=cost)
    bases = [case for case in _cheapest(op) if cost(case) <= extra_limit]
    if not bases:
        bases = [replace(case, distribution="uniform") for case in hidden if cost(case) <= extra_limit][-1:]
        yield from (Scheduled(case, VARIANTS) for case in bases)
    if plan.trusted:
        yield from (Scheduled(case, VARIANTS) for case in bases)
    affordable = ALIGNED if plan.trusted else VARIANTS
    smallest = min(op.cases, key=cost)
    for case in (*plan.cases, smallest):
        yield Scheduled(case, affordable if cost(case) <= extra_limit else ALIGNED)
    for case in () if plan.trusted else hidden:
        yield Scheduled(case, PLACED if cost(case) <= extra_limit else ALIGNED)
    if plan.heldout and not plan.trusted:
        yield from (Scheduled(case, ALIGNED) for case in every[plan.heldout :])
        cheap = LARGE_SHARE / EXTRA_SHARE * extra_limit
        yield from (Scheduled(case, ALIGNED) for case in tiny(op, plan.seed) if cost(case) <= cheap)
    for number, case in enumerate(bases):
        for turn, distribution in enumerate(op.distributions, number):
            other = replace(case, distribution=distribution)
            if distribution not in spared:  # with the usual scalars on one of the two, with hidden ones on the other
                yield Scheduled(vary(op, other, plan.seed) if turn % 2 else other, ALIGNED)
    for case in (smallest, *bases):  # few elements, or other inputs, may not show that a kernel ignores a scalar
        yield Scheduled(vary(op, replace(case, distribution="uniform"), plan.seed), ALIGNED)


def _cheapest(op: Operator) -> list[Case]:
    """The paper case and the odd case that cost the least, as far as there are any."""
    splits = ([case for case in op.cases if case.split is split] for split in (Split.PAPER, Split.ODD))
    return [min(cases, key=lambda case: work(op, case)) for cases in splits if cases]


def _elsewhere(op: Operator, plan: Plan, limit: float | None) -> Iterator[Scheduled]:
    """What finds a version that is another one where only public sizes and harmless inputs were ever seen."""
    rng = random.Random(f"{op.name}:{plan.seed}:large")
    affordable = [case for case in plan.cases if limit is None or work(op, case) <= limit]
    sizes = {case: elements(op, dict(case.dims)) for case in affordable}
    if affordable:
        largest = max(affordable, key=lambda case: sizes[case])
        hidden = nearly(op, largest, rng.getrandbits(32))
        if hidden:
            patches = next((name for name in reversed(op.distributions) if name in PATCHES), "uniform")
            yield Scheduled(replace(hidden, distribution=patches), PLACED)
        if sizes[largest] > HELDOUT_ELEMENTS:
            yield from (Scheduled(case, ALIGNED) for case in _between(op, rng, sizes[largest], limit or LARGE_LIMIT))
        if limit is None and work(op, largest) < LARGE_LIMIT / 2:
            yield from (Scheduled(_or_dotted(op, case, rng), ALIGNED) for case in _beyond(op, rng, sizes[largest]))
    known = {case.dims for case in _cheapest(op)}  # all distributions are tried on these
    unseen = [case for case in affordable if case.dims not in known]
    others = [name for name in op.distributions if name != "uniform"]
    for large in (True, False):
        cases = [case for case in unseen if (sizes[case] > HELDOUT_ELEMENTS) is large]
        rng.shuffle(others)
        rng.shuffle(cases)
        for distribution, case in zip(_costly(others) if large else others, cycle(cases), strict=False):
            yield Scheduled(vary(op, replace(case, distribution=distribution), plan.seed), ALIGNED)


def _between(op: Operator, rng: random.Random, largest: int, limit: float) -> tuple[Case, ...]:
    """Hidden sizes between those of other hidden ones and the largest."""
    return _few_or(
        LARGE_HELDOUT,
        op,
        rng.getrandbits(32),
        largest,
        accept=lambda case: elements(op, dict(case.dims)) > HELDOUT_ELEMENTS and work(op, case) <= limit,
    )


def _few_or(
    count: int, op: Operator, seed: int, most: int, accept: Callable[[Case], bool] | None = None
) -> tuple[Case, ...]:
    """``count`` hidden sizes of up to ``most`` elements; first these and then all others, where an operator has so few."""
    some = heldout(op, seed, FEW_SIZES + 1 if count and len(op.dims) == 1 else count, most, accept)
    return some[:count] if len(some) > FEW_SIZES else some


def _beyond(op: Operator, rng: random.Random, largest: int) -> tuple[Case, ...]:
    """A hidden size that the operator declares, above all that are measured."""
    if not largest < elements(op, {dim.name: dim.high for dim in op.dims}):
        return ()
    return _few_or(
        1,
        op,
        rng.getrandbits(32),
        BEYOND_ELEMENTS,
        accept=lambda case: elements(op, dict(case.dims)) > largest and work(op, case) <= LARGE_LIMIT,
    )


def _or_dotted(op: Operator, case: Case, rng: random.Random) -> Case:
    """Every other time with one number nearly everywhere: what counts it overflows."""
    if "dotted" not in op.distributions or rng.random() < 0.5:
        return case
    return replace(case, distribution="dotted")


def _costly(distributions: list[str]) -> list[str]:
    """Those that are tried on large cases too: two of the patches, and two of the operator's own.

    Where it has none of its own, one of the standard ones, which show less of what goes wrong with many elements.
    """
    patches = [name for name in distributions if name in PATCHES]
    own = [name for name in distributions if name not in STANDARD_DISTRIBUTIONS]
    others = [name for name in distributions if name not in (*PATCHES, *own)]
    return patches[:_COSTLY] + (own[:_COSTLY] or others[:1])
