"""Checks what a version wrote while it was timed, so that one that is right only when it is not timed fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msbench.errors import WorkerError
from msbench.harness.arena import Arena
from msbench.harness.check import POISONS, describe, fault_of, look
from msbench.harness.compare import Expectation, expect, touch
from msbench.harness.inputs import generate
from msbench.harness.spans import span
from msbench.harness.timing import Again
from msbench.model import Failure, Fault
from msbench.spec import Case, Operator, Precision


def verify_timed(
    op: Operator,
    precision: Precision,
    case: Case,
    arenas: Sequence[Arena],
    seed: int,
    xp: Any,
    sets: Sequence[int],
    versions: Sequence[Again],
) -> list[Failure | None]:
    """Run a timed batch of each version on some of the input sets, and compare its outputs; None for those that are right.

    Input set i holds the inputs of ``seed + i``, of which a few elements are other ones than those that were timed: what a
    version remembers is wrong now. Expected values are made one set at a time, since those of several large sets would not
    fit beside the arenas.
    """
    failures: list[Failure | None] = [None] * len(versions)
    for number in sets:
        arena = arenas[number]
        expectation = _expectation(op, precision, case, seed + number, seed + len(arenas) + number, xp)
        for index, again in enumerate(versions):
            if failures[index] is not None:
                continue
            arena.write_inputs(expectation.inputs)
            arena.poison(POISONS[0])
            try:
                again(number)
            except WorkerError as error:
                failures[index] = Failure(fault_of(error), f"{str(error).rstrip('.')}.", error.log)
                continue
            with span("compare"):
                failures[index] = _look(arena, expectation)
    return failures


def _expectation(op: Operator, precision: Precision, case: Case, seed: int, other_seed: int, xp: Any) -> Expectation:
    """What must come out of the inputs of a seed with a few elements of another's."""
    with span("inputs"):
        drawn = generate(op, precision, case, seed, xp)
        inputs = touch(op, case, seed, drawn, generate(op, precision, case, other_seed, xp), xp)
    return expect(op, precision, case, seed, inputs, xp)


def _look(arena: Arena, expectation: Expectation) -> Failure | None:
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
