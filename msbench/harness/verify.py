"""Checks what a version wrote while it was timed, so that one that is right only when it is not timed fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msbench.errors import WorkerError
from msbench.harness.arena import Arena
from msbench.harness.check import POISONS, describe, fault_of, look
from msbench.harness.compare import Expectation, expect, outliers, touch
from msbench.harness.inputs import generate
from msbench.harness.spans import span
from msbench.harness.stirring import stir
from msbench.harness.track import Again
from msbench.model import Failure, Fault
from msbench.spec import Case, Operator, Precision

Draw = Callable[[], int]
"""A number below 2^64 that nobody can foresee."""


@dataclass(frozen=True)
class Verifier:
    """``timing.Verify`` for one case: input set i, in arena i, holds the inputs of ``seed + i``.

    A version is run as it is timed: a batch of any length whose inputs are stirred, of which the last repetition is compared.
    So it can't tell that call from any other, short of keeping count. ``stirred``: False for calls whose inputs stay as drawn.
    """

    op: Operator
    precision: Precision
    case: Case
    arenas: Sequence[Arena]
    seed: int
    xp: Any
    draw: Draw
    stirred: bool = True

    def while_timed(self, versions: Sequence[Again], turn: int) -> list[Failure | None]:
        """See ``timing.Verify``: on inputs that are drawn like those that are timed."""
        number = turn % len(self.arenas)
        with span("inputs"):
            inputs = generate(self.op, self.precision, self.case, self.seed + number, self.xp)
        return self._verify(versions, inputs, number, last=False)

    def at_the_end(self, versions: Sequence[Again]) -> list[Failure | None]:
        """See ``timing.Verify``: on the first set's inputs with outliers among them, cold and hot.

        What a version remembers is wrong now, and so is what it took for granted after a look at some of the inputs.
        """
        with span("inputs"):
            inputs = generate(self.op, self.precision, self.case, self.seed, self.xp)
            others = outliers(self.op, self.precision, self.case, self.seed + len(self.arenas), self.xp)
            touch(self.op, self.case, self.seed, inputs, others, self.xp)
        return self._verify(versions, inputs, 0, last=True)

    def _verify(
        self, versions: Sequence[Again], inputs: Mapping[str, Any], number: int, last: bool
    ) -> list[Failure | None]:
        stirs, length, arena = self.draw(), self.draw(), self.arenas[number]
        failures: list[Failure | None] = [None] * len(versions)
        expected: dict[tuple[int, int], Expectation] = {}  # by how far the inputs are stirred
        for index, again in enumerate(versions):
            arena.write_inputs(inputs)
            arena.poison(POISONS[0])
            try:
                batch = again.cold(number, stirs, length, last=last)
                if batch not in expected:
                    expected.clear()  # those of large cases would not fit beside each other
                    expected[batch] = self._expectation(inputs, stirs, batch, number)
                failures[index] = _look(arena, expected[batch])
                if last and failures[index] is None:
                    arena.poison(POISONS[0])
                    if again.hot():
                        failures[index] = _look(arena, expected[batch])
            except WorkerError as error:
                failures[index] = Failure(fault_of(error), f"{str(error).rstrip('.')}.", error.log)
        return failures

    def _expectation(self, inputs: Mapping[str, Any], stirs: int, batch: tuple[int, int], number: int) -> Expectation:
        moved = {name: array.copy() for name, array in inputs.items()}
        if self.stirred:
            stir(moved, stirs, *batch, len(self.arenas), number)
        return expect(self.op, self.precision, self.case, self.seed, moved, self.xp)


def _look(arena: Arena, expectation: Expectation) -> Failure | None:
    with span("compare"):
        found = look(arena, expectation)
        if not found.intact:
            outside = bool(arena.damaged_redzones())
            fault = Fault.OUT_OF_BOUNDS if outside else Fault.INPUT_CHANGED
            return Failure(
                fault, f"while it was timed, the kernel wrote {'outside its arrays' if outside else 'to its inputs'}."
            )
        for name, seen in found.comparisons(arena, expectation, POISONS[0]).items():
            if seen.wrong:
                fault = Fault.UNWRITTEN if seen.poisoned == seen.wrong else Fault.MISMATCH
                return Failure(fault, f"while it was timed, {describe(name, seen)}.")
    return None
