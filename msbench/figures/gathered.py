"""The bytes that irregular reads move again and again, which a case's row does not have: the operator's spec derives them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msbench import operators
from msbench.errors import MsbenchError
from msbench.spec import Precision
from msbench.store.tables import CaseRow, TaskRow


def gathered(task: TaskRow, case: CaseRow) -> int:
    """``Operator.gathered`` of a stored case; 0 where msbench has no such operator, or its dimensions are others by now."""
    derive = _derivation(task.operator)
    try:
        return derive(Precision(task.precision).itemsize, **case.dims) if derive else 0
    except (TypeError, ValueError):
        return 0


@lru_cache
def _derivation(operator: str) -> Callable[..., int] | None:
    try:
        return operators.load(operator).gathered
    except MsbenchError:
        return None
