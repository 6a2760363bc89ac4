"""Twins: a large case timed on other inputs, beside the one with the same sizes and scalars and uniform inputs.

A twin is in no score, mean or chart. It tells whether a version owes its speed to the inputs that it is timed on.
"""

from __future__ import annotations

from collections.abc import Iterable

from msbench.spec import Split
from msbench.store.tables import CaseRow

DIFFERENT = 1.1
"""Two times differ where the longer one is more than so many times the other."""


def twins(cases: Iterable[CaseRow]) -> set[str]:
    """The names of those that are twins of others among them."""
    large = [case for case in cases if case.split == Split.LARGE]
    return {case.name for case in large if any(are_twins(one, case) for one in large)}


def are_twins(case: CaseRow, other: CaseRow) -> bool:
    """Whether ``other`` is the large ``case`` with other inputs."""
    alike = (case.split, case.dims, case.scalars) == (Split.LARGE, other.dims, other.scalars)
    return alike and case.distribution == "uniform" != other.distribution and other.split == Split.LARGE


def differ(one_ns: float, other_ns: float) -> bool:
    """Whether two times are further apart than chance and the clocks explain."""
    return max(one_ns, other_ns) > DIFFERENT * min(one_ns, other_ns)
