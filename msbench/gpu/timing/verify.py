"""Compares the outputs of timed repetitions with the expected outputs of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msbench.errors import DeviceError
from msbench.gpu.timing.permute import permute
from msbench.gpu.timing.track import BUSY_S, Compared, Track
from msbench.harness.arena import Arena
from msbench.harness.check.case import POISONS, describe, look
from msbench.harness.check.compare import Expectation, expect, outliers, touch
from msbench.harness.inputs import generate
from msbench.harness.protocols import ONLY_TURN, Turn
from msbench.harness.spans import span
from msbench.model import Failure, Fault
from msbench.spec import Problem

_TRIES = 8  # of a batch that the host could not enqueue in time: each has half the repetitions of the one before

Draw = Callable[[], int]
"""A number below 2^64 that nobody can foresee."""


@dataclass(frozen=True)
class Verifier:
    """``rounds.Verify`` for one case: input set i, in arena i, holds the inputs of ``seed + i``. ``xp`` is its arrays' module.

    ``keeps``: what was drawn, which is drawn again for each comparison where that takes too much memory. ``permuted``: False for calls whose inputs stay as drawn. ``turn`` is taken alone for what is timed, and beside other tasks for the rest.
    """

    problem: Problem
    arenas: Sequence[Arena]
    seed: int
    xp: Any
    draw: Draw
    keeps: bool = True
    permuted: bool = True
    turn: Turn = ONLY_TURN
    kept: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def timed(self, turn: int) -> Comparison:
        """See ``rounds.Verify``: on the inputs that are timed."""
        self.beside_others()
        number = turn % len(self.arenas)
        return Comparison(self, number, self.inputs(number), self.draw(), self.draw())

    def with_outliers(self) -> Comparison:
        """See ``rounds.Verify``: assumptions from sampling the inputs are wrong now."""
        self.beside_others()
        with span("inputs"):
            inputs = _copied(self.inputs(0))
            others = outliers(self.problem, self.seed + len(self.arenas), self.xp)
            touch(self.problem, self.seed, inputs, others, self.xp)
        return Comparison(self, 0, inputs, self.draw(), self.draw())

    def inputs(self, number: int) -> Mapping[str, Any]:
        """A set's, not to be changed."""
        if number in self.kept:
            return self.kept[number]
        with span("inputs"):
            drawn = generate(self.problem, self.seed + number, self.xp)
        if self.keeps:
            self.kept[number] = drawn
        return drawn

    def beside_others(self) -> None:
        """For what follows: others may be at work on the device, and where it is all done in the host's memory one may be alone there."""
        if self.xp is np:
            self.turn.leave()
        else:
            self.turn.take(alone=False)


@dataclass
class Comparison:
    """One batch of each of some versions, on the same inputs, of which one repetition is compared."""

    verifier: Verifier
    number: int
    inputs: Mapping[str, Any]
    drawn: int
    which: int
    _expected: dict[int, Expectation] = field(default_factory=dict)  # by the repetitions up to the one that is compared

    def batch(self, track: Track) -> tuple[tuple[float, ...], Failure | None]:
        """Run it; its times, and what is wrong with what was written. Raises what ``Track.batch`` raises."""
        arena, turn = self.verifier.arenas[self.number], self.verifier.turn
        for _ in range(_TRIES):
            self.verifier.beside_others()
            arena.write_inputs(self.inputs)
            arena.poison(POISONS[0])
            turn.take(alone=True)
            arena.send()
            track.subject.busy(BUSY_S)
            samples, told = track.compared(self.number, self.drawn, self.which)
            if samples:
                break
        else:
            raise DeviceError("The host takes too long to enqueue a batch: something else keeps it busy.")
        arena.fetch()
        self.verifier.beside_others()
        with span("compare"):
            return samples, self._look(told)

    def hot(self, track: Track) -> Failure | None:
        """Calls in a row, as hot ones are timed, on the inputs as the batch before has left them, and one more over other outputs.

        The workspace is as the previous call left it: a kernel that counts calls there and stops after some has stopped.
        """
        arena = self.verifier.arenas[self.number]
        self.verifier.turn.take(alone=True)
        track.subject.hot(track.hot_plays, 1)
        arena.fetch()
        arena.poison(POISONS[0])
        arena.send()
        track.subject.hot(1, 1, warm=False)
        arena.fetch()
        self.verifier.beside_others()
        inputs = self._moved(track.repetitions)
        with span("compare"):
            return _look(arena, self._expect(inputs), inputs, "in a row of calls")

    def _look(self, told: Compared) -> Failure | None:
        if told.kept not in self._expected:
            self._expected.clear()  # those of large cases would not fit beside each other
            self._expected[told.kept] = self._expect(self._moved(told.kept + 1))
        arena = self.verifier.arenas[self.number]
        return _look(arena, self._expected[told.kept], self._moved(told.repetitions))

    def _moved(self, repetitions: int) -> dict[str, Any]:
        """The inputs after so many repetitions."""
        made = _copied(self.inputs)
        if self.verifier.permuted:
            permute(made, self.drawn, self.number, repetitions, len(self.verifier.arenas), self.number)
        return made

    def _expect(self, inputs: Mapping[str, Any]) -> Expectation:
        v = self.verifier
        return expect(v.problem, v.seed, inputs, v.xp)


def _copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array.copy() for name, array in arrays.items()}


def _look(
    arena: Arena, expectation: Expectation, inputs: Mapping[str, Any], when: str = "while it was timed"
) -> Failure | None:
    """``inputs``: as they must be now."""
    found = look(arena, expectation, inputs=inputs)
    if not found.intact:
        outside = bool(arena.damaged_redzones())
        fault = Fault.OUT_OF_BOUNDS if outside else Fault.INPUT_CHANGED
        return Failure(fault, f"{when}, the kernel wrote {'outside its arrays' if outside else 'to its inputs'}.")
    for name, seen in found.comparisons(arena, expectation, POISONS[0]).items():
        if seen.wrong:
            fault = Fault.UNWRITTEN if seen.poisoned == seen.wrong else Fault.MISMATCH
            return Failure(fault, f"{when}, {describe(name, seen)}.")
    return None
