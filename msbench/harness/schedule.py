"""Which cases are checked, and how: as much as finds wrong kernels, as little as keeps an evaluation short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    hidden scalars on all of these; every variant where a case is affordable (of ``trusted`` versions: on these cheapest cases, and misaligned on hidden sizes). Cases above ``limit``
    (``Executor.check_limit``) are left out.
    """
    found: dict[str, Scheduled] = {}
    for item in _wanted(op, plan, EXTRA_LIMIT if limit is None else limit * EXTRA_SHARE):
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
    cheapest = (min((c for c in op.cases if c.split is s), key=cost, default=None) for s in (Split.PAPER, Split.ODD))
    bases = [case for case in cheapest if case and cost(case) <= extra_limit]
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
