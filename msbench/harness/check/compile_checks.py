"""A process that has CuPy compile what checking operators runs on the device, before a check does.

CuPy compiles a kernel for each kind of expression, which takes a second, and keeps it in a cache on disk. The threads of
one process wait for each other there; processes don't, but those that check the same operator would each compile it. Here
the cheapest case of each distribution is checked with a kernel that is always right, since it is made of the expected
values: what references, bounds and comparisons launch is then in the cache; those of little ``work`` launch nothing. To CuPy an array with a dimension of one element is
another kind than one without, so the cheapest case is one for each set of dimensions that are 1, too; and it reduces many
elements by other kernels than few, so a large case is checked besides. Where referees share the device, most cases are computed in the host's
memory, and only those kinds are compiled of which a case is not.

Started as ``python -m msbench.harness.check.compile_checks``; ``gpu_runner.py``'s side of it is ``executors/cuda.py``.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from msbench import operators
from msbench.harness.arena import ALIGNMENT, Arena, Layout
from msbench.harness.check.case import CaseCheck
from msbench.harness.check.cost import HOST_WORK, SHARED_HOST_WORK, module, work
from msbench.harness.check.schedule import Scheduled, schedule
from msbench.harness.protocols import Plan
from msbench.harness.sandbox import wire
from msbench.model import Candidate
from msbench.spec import Case, Operator

_ELEMENTS = 2**22  # of a case: several such processes share the device's memory
_WORK = 2e10


class Memory:
    """What a check needs of an executor: the array module, and arenas in its memory."""

    host_work = HOST_WORK

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def arena(self, layout: Layout) -> Arena:
        """One that no other process reaches."""
        memory = self.xp.zeros(layout.nbytes + ALIGNMENT, dtype="uint8")
        address = memory.ctypes.data if self.xp.__name__ == "numpy" else memory.data.ptr
        start = -address % ALIGNMENT
        return Arena(layout, memory[start : start + layout.nbytes], self.xp)


class Right:
    """In a runner's place: writes what a check expects."""

    def __init__(self, check: CaseCheck, candidate: Candidate) -> None:
        self.candidate = candidate
        self._check = check

    def launch(self, arena: Arena, case: Case, *, fresh: bool = True) -> None:
        """See ``protocols.Runner``."""
        expectation = self._check.expectation if fresh else self._check.touched
        for slot in arena.layout.outputs:
            values = expectation.references[slot.name]
            if slot.dtype.kind != "i":
                values = values.astype("float32")  # as inputs are on their way to bf16
            arena.view(slot.name)[...] = values.astype(slot.dtype)

    def close(self) -> None:
        """See ``protocols.Runner``."""


def compile_checks(op: Operator, xp: Any, part: int = 0, parts: int = 1, seed: int | None = None) -> int:
    """Check the cheapest cases of each distribution in both precisions; how many passed. Why others did not, their check tells.

    Several processes may share these cases, each with one ``part`` of several. ``seed``: see ``protocols.Compiles``.
    """
    passed = 0
    cheapest: dict[tuple[str, ...], Scheduled] = {}
    largest: dict[int, Scheduled] = {}
    kinds = None if seed is None else _beside_others(op, seed)
    for item in schedule(op, Plan(cases=op.cases), None):
        size = operators.elements(op, dict(item.case.dims))
        launches = module(op.tasks[0].at(item.case), Memory(xp)) is xp
        if launches and work(op, item.case) <= _WORK and size <= _ELEMENTS and (kinds is None or _kind(item) in kinds):
            cheapest.setdefault(_kind(item), item)
            largest[size] = item
    chosen = {item.case.id: item for item in (*cheapest.values(), *([largest[max(largest)]] if largest else []))}
    for task, item in list(product(op.tasks, chosen.values()))[part::parts]:
        with suppress(Exception), CaseCheck(Memory(xp), task.at(item.case), seed=0) as check:
            right = Right(check, Candidate(op.name, task.precision, ""))
            variants = [variant for variant in ("aligned", "touched") if variant in item.variants]
            passed += all(result.passed for result in check.run(right, variants))
    return passed


def _kind(item: Scheduled) -> tuple[str, ...]:
    """What is drawn and compared by the same kernels: a distribution, and which dimensions are 1."""
    return (item.case.distribution, *(name for name, size in item.case.dims if size == 1))


def _beside_others(op: Operator, seed: int) -> set[tuple[str, ...]]:
    """The kinds that a plan with that seed has computed on a device that referees share."""
    plan = Plan(cases=operators.with_twins(op, op.cases), seed=seed)
    return {_kind(item) for item in schedule(op, plan, None) if work(op, item.case) > SHARED_HOST_WORK}


def _compile(operator: str, folder: str, part: int, parts: int, seed: int | None) -> dict[str, Any]:
    import cupy

    try:
        return {"passed": compile_checks(operators.load(operator, Path(folder)), cupy, part, parts, seed)}
    finally:
        cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    with suppress(ImportError):  # the first call tells
        importlib.import_module("cupy")  # while nothing is to be compiled yet
    wire.serve({"compile": _compile})
