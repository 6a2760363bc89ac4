"""What checking a case costs, and whether it is done on the device or in the host's memory."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from msbench.harness.arena import Arena, Mirror
from msbench.operators import elements
from msbench.spec import Case, Operator, Problem

HOST_WORK = 8e6
"""The work up to which inputs, references and comparisons are NumPy's, which takes one to twenty milliseconds: a device needs dozens
of launches, and as many answers."""

SHARED_HOST_WORK = 6.4e7
"""The same beside other processes, for which each of those launches waits: there a check of so much work keeps a processor busy for 0.1 s,
and took a quarter of a second on an H200 that fourteen referees shared (2026-11-27, the mean of all checks on the device)."""

_ELEMENT_OPERATIONS = 16  # what drawing, referencing and comparing one element costs, roughly


def work(op: Operator, case: Case) -> float:
    """What checking a case costs, in operations: those of the definition, and a few for each element of each array."""
    dims = dict(case.dims)
    return float(op.flops(**dims)) + _ELEMENT_OPERATIONS * elements(op, dims)


class Computes(Protocol):
    """Where a check may be computed: with an executor's array module, and, up to so much work, in the host's memory."""

    host_work: float

    @property
    def xp(self) -> Any:
        """The array module."""


def module(problem: Problem, executor: Computes) -> Any:
    """The array module of what a problem's outputs are compared with: the executor's, or NumPy where that is little work."""
    return np if work(problem.operator, problem.case) <= executor.host_work else executor.xp


def within_reach(arena: Arena, xp: Any) -> Arena:
    """The arena as ``xp``, a problem's ``module``, reaches it."""
    return arena if arena.xp is xp else Mirror(arena)
