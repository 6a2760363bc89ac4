"""Checks whether a candidate computes its operator on one case, and describes how it fails.

The candidate runs in its own process on an arena that it shares with this one; expected values never leave this
process. Outputs are poisoned before a launch; after it, redzones and inputs are verified before any value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from msbench.arrays import every
from msbench.errors import LaunchFailed, WorkerError, WorkerTimeout
from msbench.harness import pool
from msbench.harness.arena import Arena, Damage, Layout, Poison, equal
from msbench.harness.check.compare import (
    Comparison,
    Expectation,
    compare,
    expect,
    expected,
    glance,
    outliers,
    prepare,
    touch,
)
from msbench.harness.check.cost import Computes, module, within_reach
from msbench.harness.protocols import Executor, Runner
from msbench.harness.spans import span
from msbench.model import CheckResult, Failure, Fault, digest
from msbench.spec import Case, Problem, Split

__all__ = ["VARIANTS", "CaseCheck", "check_case", "compare", "expected", "fault_of", "prepare"]

VARIANTS = ("aligned", "misaligned", "repeat", "aba", "touched")
"""The kinds of check.

``aligned``: two launches on differently poisoned outputs, compared with each other bitwise.
``misaligned``: arrays aligned to their element only, each differently; of hidden sizes also one array alone.
``repeat``: further launches over the outputs of the one before, compared bitwise with the first.
``aba``: other inputs in between, in the same memory, so that a kernel that remembers anything fails.
``touched``: a second launch on inputs of which few elements differ, by much, over the outputs and in the workspace of the
first, so that a kernel fails that looks at a few places to see whether anything is new, or of what kind.
"""

POISONS = (Poison(floats=0xFF, integers=0xC3), Poison(floats=0x5D, integers=0x61))
"""NaN and, since a NaN may be what is expected, 1e18 in both float formats; integers that no operator is likely to give."""

_REPEATS = 3
_MIXED_BYTES = 2**30
_EACH_BYTES = 2**24


class Memory(Computes, Protocol):
    """What a check needs of an ``Executor``."""

    def arena(self, layout: Layout) -> Arena:
        """See ``Executor``."""


class CaseCheck:
    """One case, ready to be checked on any number of candidates: inputs, expected values and arenas are made once.

    Everything is made on first use; ``close`` (or leaving the ``with``) gives the memory back.
    """

    def __init__(self, executor: Memory, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._executor = executor
        self._xp = module(problem, executor)
        self._seed = seed
        self._memory = ExitStack()
        self.right: Right | None = None  # of what is expected of most launches

    @property
    def case(self) -> Case:
        """Which one."""
        return self.problem.case

    @cached_property
    def expectation(self) -> Expectation:
        """What must come out."""
        return prepare(self.problem, self._seed, self._xp)

    @cached_property
    def _other(self) -> Expectation:
        return prepare(self.problem, self._seed + 1, self._xp)

    @cached_property
    def touched(self) -> Expectation:
        """What must come out once a few elements of the inputs are others."""
        problem, seed, xp = self.problem, self._seed, self._xp
        inputs = {name: array.copy() for name, array in self.expectation.inputs.items()}
        touch(problem, seed, inputs, outliers(problem, seed, xp), xp)
        return expect(problem, seed, inputs, xp)

    @cached_property
    def _arena(self) -> Arena:
        return self._lay_out(misaligned=False)

    @cached_property
    def _misaligned_arena(self) -> Arena:
        return self._lay_out(misaligned=True)

    @cached_property
    def _mixed_arenas(self) -> tuple[Arena, ...]:
        """Each with one misaligned array: a kernel has to look at all. Of a large case only one, drawn; none where a size is public, or too large."""
        layout = self._misaligned_arena.layout
        if self.case.split is not Split.HELDOUT or layout.nbytes > _MIXED_BYTES:
            return ()
        count = len(layout.slots)
        drawn = int(digest(self.case.id, str(self._seed))[:8], 16) % count
        each = range(count) if layout.nbytes <= _EACH_BYTES else (drawn,)
        return tuple(self._lay_out(misaligned=True, only=only) for only in each)

    def _lay_out(self, misaligned: bool, only: int | None = None) -> Arena:
        layout = Layout.of(self.problem, misaligned=misaligned, only=only)
        pool.shrink(self._xp)  # a reference's float64 inputs: an arena is of memory that CuPy does not have
        return self._memory.enter_context(within_reach(self._executor.arena(layout), self._xp))

    def run(self, runner: Runner, variants: Sequence[str] = VARIANTS, *, once: bool = False) -> tuple[CheckResult, ...]:
        """Check one candidate, up to its first failure. ``once``: ``aligned`` is one launch, over one kind of poison.

        Raises:
            UnsupportedError: the executor can't run this kernel.
        """
        results: list[CheckResult] = []
        for variant in variants:
            results.append(_Attempt(self, runner, variant, once).result())
            if not results[-1].passed:
                break
        return tuple(results)

    def close(self) -> None:
        """Give back arenas and arrays."""
        self._memory.close()
        self.right = None
        for made in ("expectation", "_other", "touched", "_arena", "_misaligned_arena", "_mixed_arenas"):
            self.__dict__.pop(made, None)
        with span("memory"):
            pool.shrink(self._xp)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_case(
    executor: Executor, runner: Runner, problem: Problem, seed: int, variants: Sequence[str] = VARIANTS
) -> tuple[CheckResult, ...]:
    """Check one candidate on one problem, up to its first failure; for several candidates use ``CaseCheck``."""
    with CaseCheck(executor, problem, seed) as check:
        return check.run(runner, variants)


def fault_of(error: WorkerError) -> Fault:
    """The kind of failure that a worker's end or answer means."""
    try:
        return Fault(error.kind)
    except ValueError:
        if isinstance(error, WorkerTimeout):
            return Fault.TIMEOUT
        return Fault.LAUNCH if isinstance(error, LaunchFailed) else Fault.CRASH


class _Wrong(Exception):
    """A check has failed; carries why."""

    def __init__(self, fault: Fault, message: str, log: str = "") -> None:
        super().__init__(message)
        self.fault = fault
        self.log = log


class _WrongValue(_Wrong):
    """An output is not what was expected."""


class _Attempt:
    """One variant of one case on one candidate."""

    def __init__(self, check: CaseCheck, runner: Runner, variant: str, once: bool = False) -> None:
        self._check = check
        self._runner = runner
        self._variant = variant
        self._poisons = POISONS[:1] if once else POISONS
        self._worst: float | None = None
        self._max_abs_error: float | None = None
        self._repeatable: bool | None = None
        self._first: Mapping[str, Any] = {}  # the outputs of the first launch, where further ones are to give the same

    def result(self) -> CheckResult:
        failure = None
        try:
            getattr(self, f"_{self._variant}")()
            if self._repeatable is False and self._check.problem.operator.deterministic:
                raise _Wrong(Fault.NONDETERMINISTIC, "the same inputs gave different bits in another launch")
        except _Wrong as wrong:
            failure = Failure(wrong.fault, self._sentence(str(wrong)), wrong.log)
        except WorkerError as error:
            failure = Failure(fault_of(error), self._sentence(str(error)), error.log)
        finite = self._worst is not None and self._worst != float("inf")
        return CheckResult(
            case=self._check.case,
            variant=self._variant,
            seed=self._check._seed,
            passed=failure is None,
            worst=self._worst if finite else None,
            max_abs_error=self._max_abs_error,
            bitwise_repeatable=self._repeatable,
            failure=failure,
        )

    def _sentence(self, what: str) -> str:
        where = self._check.case.id if self._variant == "aligned" else f"{self._check.case.id} ({self._variant})"
        return f"Case {where}: {what.rstrip('.')}."

    # ------------------------------------------------------------------ the variants

    def _aligned(self) -> None:
        arena, expectation = self._check._arena, self._check.expectation
        arena.write_inputs(expectation.inputs)
        for poison in self._poisons:
            self._launch(arena, expectation, poison, again=True)

    def _misaligned(self) -> None:
        for arena in (self._check._misaligned_arena, *self._check._mixed_arenas):
            arena.write_inputs(self._check.expectation.inputs)
            self._launch(arena, self._check.expectation, POISONS[0])

    def _repeat(self) -> None:
        arena, expectation = self._check._arena, self._check.expectation
        arena.write_inputs(expectation.inputs)
        for poison in (POISONS[0], *[None] * _REPEATS):
            self._launch(arena, expectation, poison, again=True)

    def _aba(self) -> None:
        arena, first, second = self._check._arena, self._check.expectation, self._check._other
        before: dict[str, Any] = {}
        for expectation in (first, second, first):
            arena.write_inputs(expectation.inputs)
            try:
                self._launch(arena, expectation, POISONS[1])
            except _WrongValue as wrong:
                if before and bool(_same_bits(arena, before)):
                    raise _Wrong(wrong.fault, f"the result is that of the inputs before: {wrong}") from None
                raise
            before = _copies(arena)

    def _touched(self) -> None:
        arena, first, second = self._check._arena, self._check.expectation, self._check.touched
        arena.write_inputs(first.inputs)
        self._launch(arena, first, POISONS[0])
        arena.write_inputs(second.inputs)
        try:
            self._launch(arena, second, None, fresh=False)
        except _WrongValue as wrong:
            what = f"on inputs that differ from those of the launch before in a few elements, {wrong}"
            raise _Wrong(wrong.fault, what) from None

    # ------------------------------------------------------------------ their parts

    def _launch(
        self,
        arena: Arena,
        expectation: Expectation,
        poison: Poison | None,
        again: bool = False,
        fresh: bool = True,
    ) -> None:
        """Launch once, and see that only outputs were written to, and what.

        ``poison`` None leaves in the outputs what they hold. ``again``: the outputs' bits are compared with those of the first
        such launch; over what an earlier launch has left, only other bits are other values.
        Without ``fresh`` the workspace holds what the launch before has left, and values are always looked at.
        """
        if poison is not None:
            arena.poison(poison)
        arena.send()
        self._runner.launch(arena.there, self._check.case, fresh=fresh)
        arena.fetch()
        is_usual = expectation is self._check.expectation
        right = self._check.right if is_usual else None
        found = look(arena, expectation, self._first, right, values=poison is not None or not fresh)
        if not found.intact:
            raise _Wrong(*_damage(arena, expectation))
        if self._first:
            self._repeatable = found.same and self._repeatable is not False
        if poison is not None or not fresh or not found.same:
            known = right.comparisons if right and found.right else None
            comparisons = known or found.comparisons(arena, expectation, poison)
            self._judge(comparisons)
            if is_usual and not known:
                self._check.right = Right(_copies(arena), comparisons)
        if again and not self._first:
            self._first = self._check.right.bits if is_usual and self._check.right else _copies(arena)

    def _judge(self, comparisons: Mapping[str, Comparison]) -> None:
        for name, seen in comparisons.items():
            self._worst = max(self._worst or 0.0, seen.worst)
            self._max_abs_error = max(self._max_abs_error or 0.0, seen.max_abs_error)
            if seen.wrong:
                fault = Fault.UNWRITTEN if seen.poisoned == seen.wrong else Fault.MISMATCH
                raise _WrongValue(fault, describe(name, seen))


@dataclass(frozen=True)
class Right:
    """Outputs' ``bits`` that were compared and found right, and how they compared: whatever has the same bits is as right."""

    bits: Mapping[str, Any]
    comparisons: Mapping[str, Comparison]


@dataclass(frozen=True)
class Look:
    """What one look at an arena after a launch told, see ``look``; ``glances`` holds each output's ``compare.glance``."""

    intact: bool
    same: bool
    right: bool
    glances: Mapping[str, Sequence[float]]

    def comparisons(self, arena: Arena, expectation: Expectation, poison: Poison | None) -> dict[str, Comparison]:
        """Each output compared with what was expected, up to the first that is wrong."""
        found: dict[str, Comparison] = {}
        for slot in arena.layout.outputs:
            name = slot.name
            within, worst, max_abs_error = self.glances.get(name, (0.0, 0.0, 0.0))
            if within:
                found[name] = Comparison(slot.size, 0, worst, max_abs_error)
                continue
            byte = None if poison is None else poison.byte(slot.dtype)
            reference, bound = expectation.references[name], expectation.bounds[name]
            found[name] = compare(reference, bound, arena.view(name), arena.xp, byte, expectation.bound_place)
            if found[name].wrong:
                break
        return found


def look(
    arena: Arena,
    expectation: Expectation,
    first: Mapping[str, Any] | None = None,
    right: Right | None = None,
    *,
    values: bool = True,
    inputs: Mapping[str, Any] | None = None,
) -> Look:
    """Whether redzones and inputs are intact (what was expected of, or these), and whether outputs are bitwise those of ``first``, if
    there are any, and the ``right`` ones; otherwise how their ``values`` differ from what was expected.

    As few questions as possible to a device that several processes share, where each answer may take a while.
    """
    xp = arena.xp
    kept = {id(bits): bits for bits in (first, right and right.bits) if bits}.values()  # often the same
    facts = [arena.intact(expectation.inputs if inputs is None else inputs), *(_same_bits(arena, one) for one in kept)]
    glances = [] if right else _glances(arena, expectation, values)
    answers = xp.concatenate([xp.stack(facts).astype(np.float64), *glances]).tolist()
    intact, *same = map(bool, answers[: len(facts)])
    answers = answers[len(facts) :]
    is_right = bool(right and same[-1])
    if right and values and intact and not is_right:
        answers = xp.concatenate(_glances(arena, expectation, values)).tolist()
    seen = {slot.name: answers[3 * i : 3 * i + 3] for i, slot in enumerate(arena.layout.outputs) if answers}
    return Look(intact, not first or same[0], is_right, seen)


def _glances(arena: Arena, expectation: Expectation, values: bool) -> list[Any]:
    """Of each output, if its values are wanted."""
    return [
        glance(expectation.references[slot.name], expectation.bounds[slot.name], arena.view(slot.name), arena.xp)
        for slot in arena.layout.outputs
        if values
    ]


def describe(name: str, found: Comparison) -> str:
    """Say what is wrong with one output, without the final full stop."""
    count = f"{found.wrong} of {found.total} elements"
    where = f"{name}{list(found.index or ())}"
    if found.poisoned == found.wrong:
        # not "was never written": a NaN that is added to stays the same NaN on some processors
        return f"{where} still holds what was there before the launch, as do {count} in all: write every output, add to none"
    assert found.expected is not None and found.got is not None and found.bound is not None
    error = abs(found.got - found.expected)
    if not error < float("inf"):
        verdict = f"{where} is {found.got:.9g} where {found.expected:.9g} was expected"
    elif found.bound == 0:
        verdict = f"{where} is {found.got:.9g} where exactly {found.expected:.9g} was expected"
    else:
        verdict = (
            f"{where} is {found.got:.9g} where {found.expected:.9g} was expected: "
            f"the error {error:.3g} is {error / found.bound:.3g} times the bound {found.bound:.3g}"
        )
    unwritten = f" ({found.poisoned} still hold what was there before)" if found.poisoned else ""
    return f"{verdict}; {count} are wrong{unwritten}"


def _damage(arena: Arena, expectation: Expectation) -> tuple[Fault, str]:
    """Which of a launch's surroundings changed."""
    damages = arena.damaged_redzones()
    if damages:
        return Fault.OUT_OF_BOUNDS, _out_of_bounds(damages, arena.layout)
    name, element, count = arena.changed_inputs(expectation.inputs)[0]
    index = _index(arena.layout[name].shape, element)
    return Fault.INPUT_CHANGED, f"the kernel wrote to its input {name}: {count} bytes differ, first at {name}{index}"


def _out_of_bounds(damages: Sequence[Damage], layout: Layout) -> str:
    nearest = min(damages, key=lambda d: (not layout[d.array].output, d.distance))
    shape = list(layout[nearest.array].shape)
    away = " just" if nearest.distance == 0 else f", {nearest.distance} bytes"
    return f"the kernel wrote outside its arrays: {nearest.count} bytes{away} {nearest.side} {nearest.array}{shape}"


def _index(shape: tuple[int, ...], element: int) -> list[int]:
    return [int(i) for i in np.unravel_index(element, shape)]


def _copies(arena: Arena) -> dict[str, Any]:
    return {slot.name: arena.view(slot.name).copy() for slot in arena.layout.outputs}


def _same_bits(arena: Arena, kept: Mapping[str, Any]) -> Any:
    """Whether all outputs are bitwise those that were kept: a bool that nobody has waited for yet."""
    return every(arena.xp.stack([equal(arena.view(name), bits, arena.xp) for name, bits in kept.items()]), arena.xp)
