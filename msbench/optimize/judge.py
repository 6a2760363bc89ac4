"""What a step came to: its outcome, whether its hypothesis held, and the lesson, in one sentence each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msbench.model import Evaluation, Outcome, Status

RESOLUTION = 0.01
"""Measurements stop at a 95 % interval of 1 %: a smaller gain is none."""

USABLE = (Status.PASSED, Status.PROFILE_FAILED)
"""A version whose profile failed is right and has times all the same."""


@dataclass(frozen=True)
class Verdict:
    """What is stored of a step's result; ``told`` is the lesson for whoever watches, with what the decisions hung on.

    Lessons stand in the prompts of later steps. They stay as short as they are in the recorded ones.
    """

    outcome: Outcome
    speedup: float | None
    held: bool | None
    lesson: str
    told: str = ""


def judge(
    evaluation: Evaluation,
    speedup: float | None,
    over_best: float | None,
    over_parent: float | None,
    predicted: float | None,
) -> Verdict:
    """The verdict on an evaluated draft.

    Args:
        evaluation: of the draft.
        speedup: the draft's, over naive; None if it was not measured on every case.
        over_best: the draft's, over the best version before it.
        over_parent: the draft's, over the version that it was predicted to beat; the best version, more often than not.
        predicted: the predicted speed-up over that one.
    """
    if evaluation.status not in USABLE:
        return Verdict(Outcome.FAILED, None, None, failure_text(evaluation))
    if speedup is None:
        return Verdict(Outcome.CHECKED, None, None, "Passed every check; not measured on every case here.")
    held = hypothesis_held(predicted, over_parent)
    parts, told = [f"{speedup:.2f}x over naive"], [f"{speedup:.2f}x over naive"]
    needed = None if predicted is None else _needed(predicted)
    if over_parent is not None and over_parent != speedup:
        parts.append(f"{over_parent:.2f}x over its parent")
        told.append(f"{_told_apart(over_parent, needed)}x over its parent, timed side by side")
    if over_best is not None and over_best not in (speedup, over_parent):
        parts.append(f"{over_best:.2f}x over the best before it")
        told.append(f"{_told_apart(over_best)}x over the best before it, timed side by side")
    if held is not None and predicted is not None and over_parent is not None:
        verdict = f"so the hypothesis {'held' if held else 'did not hold'}"
        parts.append(f"{predicted:.2f}x was predicted, {verdict}")
        places = 2 if abs(predicted - 1) > 10 * RESOLUTION else 3
        needs = f"{_told_apart(_needed(predicted), over_parent)}x needed"
        told.append(f"{predicted:.{places}f}x was predicted and {needs}, {verdict}")
    return Verdict(_outcome(over_best), speedup, held, "; ".join(parts) + ".", "; ".join(told) + ".")


def _told_apart(ratio: float, other: float | None = None) -> str:
    """With as many digits as it takes to see on which side of ``other`` it is, and whether it is a gain or a loss."""
    limits = [limit for limit in (other, 1 + RESOLUTION, 1 - RESOLUTION) if limit is not None and limit != ratio]
    for places in (2, 3, 4):
        if all(f"{ratio:.{places}f}" != f"{limit:.{places}f}" for limit in limits):
            return f"{ratio:.{places}f}"
    return f"{ratio:.5f}"


def _outcome(over_best: float | None) -> Outcome:
    if over_best is None or over_best > 1 + RESOLUTION:
        return Outcome.IMPROVED
    return Outcome.SLOWER if over_best < 1 - RESOLUTION else Outcome.EQUAL


def hypothesis_held(predicted: float | None, gain: float | None) -> bool | None:
    """Whether at least half of the predicted gain came, on a logarithmic scale.

    A prediction of no gain, or of a loss, holds if it is reached within the measurement's resolution. None without a
    prediction or a measurement.
    """
    if predicted is None or gain is None:
        return None
    return gain >= _needed(predicted)


def _needed(predicted: float) -> float:
    return math.sqrt(predicted) if predicted > 1 else predicted * (1 - RESOLUTION)


def failure_text(evaluation: Evaluation) -> str:
    """The failure in one sentence."""
    failure = evaluation.failure
    return f"{failure.fault.replace('_', ' ')}: {failure.message}" if failure else evaluation.status.replace("_", " ")
