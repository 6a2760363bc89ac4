"""Whether a candidate computes what its operator says, on one case: what is tried, and what is said when it fails.

The candidate runs in its own process on an arena that it shares with this one; expected values never leave this
process. Before a launch outputs hold a poison; after it redzones and inputs are looked at before any value is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np

from msbench.errors import LaunchFailed, WorkerError, WorkerTimeout
from msbench.harness.arena import Arena, Damage, Layout, Poison, differences
from msbench.harness.compare import Comparison, Expectation, compare, expected, prepare, touched
from msbench.harness.inputs import generate
from msbench.harness.protocols import Executor, Recorder, Runner
from msbench.harness.spans import span
from msbench.model import CheckResult, Failure, Fault
from msbench.spec import Case, Operator, Precision

__all__ = ["VARIANTS", "CaseCheck", "check_case", "compare", "expected", "fault_of", "prepare"]

VARIANTS = ("aligned", "recorded", "misaligned", "repeat", "aba", "touched")
"""The kinds of check.

``aligned``: two launches on differently poisoned outputs, compared with each other bitwise.
``recorded``: what a call puts into its stream is recorded as a CUDA graph, looked at, and replayed on other inputs, so that a
kernel fails whose work is done elsewhere, or by others. Only where the runner can (``Recorder``).
``misaligned``: arrays aligned to their element only, each differently.
``repeat``: further launches over the outputs of the one before, compared bitwise with the first.
``aba``: other inputs in between, in the same memory, so that a kernel that remembers anything fails.
``touched``: a second launch on inputs of which few elements differ, over the outputs and in the workspace of the first, so
that a kernel fails that looks at a few places to see whether anything is new.
"""

POISONS = (Poison(floats=0xFF, integers=0xC3), Poison(floats=0x5D, integers=0x61))
"""NaN and, since a NaN may be what is expected, 1e18 in both float formats; integers that no operator is likely to give."""

_REPEATS = 3


class CaseCheck:
    """One case, ready to be checked on any number of candidates: inputs, expected values and arenas are made once.

    Everything is made on first use; ``close`` (or leaving the ``with``) gives the memory back.
    """

    def __init__(self, executor: Executor, op: Operator, precision: Precision, case: Case, seed: int) -> None:
        self.case = case
        self._executor = executor
        self._op = op
        self._precision = precision
        self._seed = seed
        self._memory = ExitStack()

    @cached_property
    def expectation(self) -> Expectation:
        """What must come out."""
        return prepare(self._op, self._precision, self.case, self._seed, self._executor.xp)

    @cached_property
    def _other(self) -> Expectation:
        return prepare(self._op, self._precision, self.case, self._seed + 1, self._executor.xp)

    @cached_property
    def _touched(self) -> Expectation:
        others = generate(self._op, self._precision, self.case, self._seed + 1, self._executor.xp)
        drawn = self.expectation.inputs
        return touched(self._op, self._precision, self.case, self._seed, drawn, others, self._executor.xp)

    @cached_property
    def _arena(self) -> Arena:
        return self._lay_out(misaligned=False)

    @cached_property
    def _misaligned_arena(self) -> Arena:
        return self._lay_out(misaligned=True)

    def _lay_out(self, misaligned: bool) -> Arena:
        layout = Layout.of(self._op, self._precision, self.case, misaligned=misaligned)
        return self._memory.enter_context(self._executor.arena(layout))

    def run(self, runner: Runner, variants: Sequence[str] = VARIANTS) -> tuple[CheckResult, ...]:
        """Check one candidate, up to its first failure.

        Raises:
            UnsupportedError: the executor can't run this kernel.
        """
        results: list[CheckResult] = []
        for variant in variants:
            if variant == "recorded" and not isinstance(runner, Recorder):
                continue
            results.append(_Attempt(self, runner, variant).result())
            if not results[-1].passed:
                break
        return tuple(results)

    def close(self) -> None:
        """Give back arenas and arrays."""
        self._memory.close()
        for made in ("expectation", "_other", "_touched", "_arena", "_misaligned_arena"):
            self.__dict__.pop(made, None)
        pool = getattr(self._executor.xp, "get_default_memory_pool", None)
        if pool is not None:
            with span("memory"):
                pool().free_all_blocks()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_case(
    executor: Executor,
    runner: Runner,
    op: Operator,
    precision: Precision,
    case: Case,
    seed: int,
    variants: Sequence[str] = VARIANTS,
) -> tuple[CheckResult, ...]:
    """Check one candidate on one case, up to its first failure; for several candidates use ``CaseCheck``."""
    with CaseCheck(executor, op, precision, case, seed) as check:
        return check.run(runner, variants)


def fault_of(error: WorkerError) -> Fault:
    """The kind of a failure that a worker's end or answer stands for."""
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


class _Attempt:
    """One variant of one case on one candidate."""

    def __init__(self, check: CaseCheck, runner: Runner, variant: str) -> None:
        self._check = check
        self._runner = runner
        self._variant = variant
        self._worst: float | None = None
        self._max_abs_error: float | None = None
        self._repeatable: bool | None = None

    def result(self) -> CheckResult:
        failure = None
        try:
            getattr(self, f"_{self._variant}")()
            if self._repeatable is False and self._check._op.deterministic:
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
        first: dict[str, Any] = {}
        for poison in POISONS:
            self._launch(arena, expectation, poison)
            self._look_at_values(arena, expectation, poison)
            self._compare_bits(arena, first)

    def _recorded(self) -> None:
        """Its result is what the stream's work gives on inputs that the launcher has not seen."""
        arena, first, second = self._check._arena, self._check.expectation, self._check._other
        assert isinstance(self._runner, Recorder)
        arena.write_inputs(first.inputs)
        arena.poison(POISONS[0])
        if not self._runner.record(arena, self._check.case):
            return
        arena.write_inputs(second.inputs)
        self._runner.replay_record()
        try:
            self._look_at_values(arena, second, POISONS[0])
        except _Wrong as wrong:
            what = f"the work that the launcher put into its stream does not give the result, on inputs that came later: {wrong}"
            raise _Wrong(Fault.FORBIDDEN, what) from None

    def _misaligned(self) -> None:
        arena, expectation = self._check._misaligned_arena, self._check.expectation
        arena.write_inputs(expectation.inputs)
        self._launch(arena, expectation, POISONS[0])
        self._look_at_values(arena, expectation, POISONS[0])

    def _repeat(self) -> None:
        arena, expectation = self._check._arena, self._check.expectation
        arena.write_inputs(expectation.inputs)
        first: dict[str, Any] = {}
        for poison in (POISONS[0], *[None] * _REPEATS):
            self._launch(arena, expectation, poison)
            if not self._compare_bits(arena, first) or poison is not None:
                self._look_at_values(arena, expectation, poison)

    def _aba(self) -> None:
        arena, first, second = self._check._arena, self._check.expectation, self._check._other
        before: dict[str, Any] = {}
        for expectation in (first, second, first):
            arena.write_inputs(expectation.inputs)
            self._launch(arena, expectation, POISONS[1])
            try:
                self._look_at_values(arena, expectation, POISONS[1])
            except _Wrong as wrong:
                if before and all(_same_bits(arena, n, before[n]) for n in before):
                    raise _Wrong(wrong.fault, f"the result is that of the inputs before: {wrong}") from None
                raise
            before = {s.name: arena.raw(s.name).copy() for s in arena.layout.outputs}

    def _touched(self) -> None:
        arena, first, second = self._check._arena, self._check.expectation, self._check._touched
        arena.write_inputs(first.inputs)
        self._launch(arena, first, POISONS[0])
        arena.write_inputs(second.inputs)
        try:
            self._launch(arena, second, None, fresh=False)
            self._look_at_values(arena, second, None)
        except _Wrong as wrong:
            what = f"on inputs that differ from those of the launch before in a few elements, {wrong}"
            raise _Wrong(wrong.fault, what) from None

    # ------------------------------------------------------------------ their parts

    def _launch(self, arena: Arena, expectation: Expectation, poison: Poison | None, fresh: bool = True) -> None:
        """Launch once, and see that only outputs were written to; ``poison`` None leaves in them what they hold."""
        if poison is not None:
            arena.poison(poison)
        self._runner.launch(arena, self._check.case, fresh=fresh)
        damages = arena.damaged_redzones()
        if damages:
            raise _Wrong(Fault.OUT_OF_BOUNDS, _out_of_bounds(damages, arena.layout))
        for name, element, count in arena.changed_inputs(expectation.inputs):
            index = _index(arena.layout[name].shape, element)
            what = f"the kernel wrote to its input {name}: {count} bytes differ, first at {name}{index}"
            raise _Wrong(Fault.INPUT_CHANGED, what)

    def _look_at_values(self, arena: Arena, expectation: Expectation, poison: Poison | None) -> None:
        for slot in arena.layout.outputs:
            name = slot.name
            reference, bound = expectation.references[name], expectation.bounds[name]
            byte = None if poison is None else poison.byte(slot.dtype)
            found = compare(reference, bound, arena.view(name), arena.xp, byte)
            self._worst = max(self._worst or 0.0, found.worst)
            self._max_abs_error = max(self._max_abs_error or 0.0, found.max_abs_error)
            if found.wrong:
                fault = Fault.UNWRITTEN if found.poisoned == found.wrong else Fault.MISMATCH
                raise _Wrong(fault, describe(name, found))

    def _compare_bits(self, arena: Arena, first: dict[str, Any]) -> bool:
        """Whether the outputs are bitwise those of the first launch, which are kept in ``first``."""
        if not first:
            first.update({s.name: arena.raw(s.name).copy() for s in arena.layout.outputs})
            return True
        same = all(_same_bits(arena, name, bits) for name, bits in first.items())
        self._repeatable = same and self._repeatable is not False
        return same


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


def _out_of_bounds(damages: Sequence[Damage], layout: Layout) -> str:
    nearest = min(damages, key=lambda d: (not layout[d.array].output, d.distance))
    shape = list(layout[nearest.array].shape)
    away = " just" if nearest.distance == 0 else f", {nearest.distance} bytes"
    return f"the kernel wrote outside its arrays: {nearest.count} bytes{away} {nearest.side} {nearest.array}{shape}"


def _index(shape: tuple[int, ...], element: int) -> list[int]:
    return [int(i) for i in np.unravel_index(element, shape)]


def _same_bits(arena: Arena, name: str, bits: Any) -> bool:
    return differences(arena.raw(name), bits, arena.xp)[1] == 0
