"""Which cases are checked, and how: as much as finds wrong kernels, as little as keeps an evaluation short."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, cycle

from msbench.harness.check import VARIANTS
from msbench.harness.protocols import Checks, Plan
from msbench.operators import elements, heldout, vary
from msbench.spec import Case, Operator, Split

ALIGNED = VARIANTS[:1]
PLACED = ("aligned", "misaligned")

EXTRA_LIMIT = 2e9
"""The work up to which a case is also checked misaligned, repeated and with changed inputs: eight launches more."""

EXTRA_SHARE = 1 / 32
"""The same, as a share of the limit of an executor that has one: cases near it take seconds a launch."""

HELDOUT_ELEMENTS = 2**20

LARGE_HELDOUT = 2
"""Hidden sizes beyond HELDOUT_ELEMENTS, up to the largest that is measured: a version may be another one there."""

LARGE_LIMIT = 2e10
"""The work up to which they are drawn."""

LARGE_SHARE = 1 / 16
"""The same, and for other inputs on large cases, as a share of the limit of an executor that has one."""

_ELEMENT_OPERATIONS = 16  # what drawing, referencing and comparing one element costs, roughly


@dataclass(frozen=True)
class Scheduled:
    """A case and the variants of ``check`` that it is checked in."""

    case: Case
    variants: tuple[str, ...]


def work(op: Operator, case: Case) -> float:
    """What checking a case costs, in operations: those of the definition, and a few for each element of each array."""
    dims = dict(case.dims)
    return float(op.flops(**dims)) + _ELEMENT_OPERATIONS * elements(op, dims)


def suspects(op: Operator, plan: Plan, case: Case) -> bool:
    """Whether what finds cheating is tried when a case is measured: always, but of ``trusted`` versions on the cheapest case only."""
    return not plan.trusted or case == min(plan.cases, key=lambda case: work(op, case))


def schedule(op: Operator, plan: Plan, limit: float | None) -> tuple[Scheduled, ...]:
    """What ``plan`` checks, cheap cases first.

    Every case of the plan, and for ``Checks.FULL`` also: the operator's cheapest case; hidden sizes; all distributions
    on the cheapest paper case and on the cheapest odd one (if neither is affordable, on the largest hidden size that is);
    hidden scalars on all of these; every variant where a case is affordable (of ``trusted`` versions: on these cheapest cases,
    and misaligned on hidden sizes). Of versions that are not ``trusted`` also what a size could tell them is not tried: hidden
    sizes among the large ones, and each distribution, with hidden scalars, on one of the plan's large cases and on one of
    its other cases. Cases above ``limit`` (``Executor.check_limit``) are left out.
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
    hidden = sorted(heldout(op, plan.seed, plan.heldout, HELDOUT_ELEMENTS), key=cost)
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
    for case in hidden:
        yield Scheduled(case, PLACED if cost(case) <= extra_limit else ALIGNED)
    for case in bases:
        yield from (Scheduled(replace(case, distribution=d), ALIGNED) for d in op.distributions)
    for case in (smallest, *bases):  # few elements, or other inputs, may not show that a kernel ignores a scalar
        yield Scheduled(vary(op, replace(case, distribution="uniform"), plan.seed), ALIGNED)


def _cheapest(op: Operator) -> list[Case]:
    """The paper case and the odd case that cost the least, as far as there are any."""
    splits = ([case for case in op.cases if case.split is split] for split in (Split.PAPER, Split.ODD))
    return [min(cases, key=lambda case: work(op, case)) for cases in splits if cases]


def _elsewhere(op: Operator, plan: Plan, limit: float | None) -> Iterator[Scheduled]:
    """What finds a version that is another one where only public sizes and harmless inputs were ever seen."""
    rng = random.Random(f"{op.name}:{plan.seed}:large")
    sizes = {case: elements(op, dict(case.dims)) for case in plan.cases}
    largest = max(sizes.values(), default=0)
    if largest > HELDOUT_ELEMENTS:
        affordable = LARGE_LIMIT if limit is None else limit
        hidden = heldout(
            op,
            rng.getrandbits(32),
            LARGE_HELDOUT,
            largest,
            accept=lambda case: elements(op, dict(case.dims)) > HELDOUT_ELEMENTS and work(op, case) <= affordable,
        )
        yield from (Scheduled(case, ALIGNED) for case in hidden)
    known = {case.dims for case in _cheapest(op)}  # all distributions are tried on these
    unseen = [case for case in plan.cases if case.dims not in known and (limit is None or work(op, case) <= limit)]
    others = [name for name in op.distributions if name != "uniform"]
    for large in (True, False):
        cases = [case for case in unseen if (sizes[case] > HELDOUT_ELEMENTS) is large]
        rng.shuffle(others)
        rng.shuffle(cases)
        for distribution, case in zip(others, cycle(cases), strict=False):
            yield Scheduled(vary(op, replace(case, distribution=distribution), plan.seed), ALIGNED)
