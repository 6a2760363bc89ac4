"""What checking a case costs, and whether it is done on the device or in the host's memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from msbench.harness.arena import Arena, Mirror
from msbench.operators import elements
from msbench.spec import Case, Operator, Problem

HOST_WORK = 8e6
"""The work up to which inputs, references and comparisons are NumPy's. For so little a device needs dozens of launches, each of which
waits for the other processes that share it: NumPy takes one to twenty milliseconds."""

_ELEMENT_OPERATIONS = 16  # what drawing, referencing and comparing one element costs, roughly


def work(op: Operator, case: Case) -> float:
    """What checking a case costs, in operations: those of the definition, and a few for each element of each array."""
    dims = dict(case.dims)
    return float(op.flops(**dims)) + _ELEMENT_OPERATIONS * elements(op, dims)


def module(problem: Problem, xp: Any) -> Any:
    """The array module of what a problem's outputs are compared with: ``xp``, or NumPy where that is little work."""
    return np if work(problem.operator, problem.case) <= HOST_WORK else xp


def within_reach(arena: Arena, xp: Any) -> Arena:
    """The arena as ``xp``, a problem's ``module``, reaches it."""
    return arena if arena.xp is xp else Mirror(arena)
