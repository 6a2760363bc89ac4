"""Judges a step: its outcome, whether its hypothesis held, and the lesson, in one sentence each."""

from __future__ import annotations

from dataclasses import dataclass

from msbench.model import Evaluation, Outcome, Status
from msbench.optimize.comparison import Ratio
from msbench.statistics import needed, prediction_held

CLEARLY = 0.97
"""On the few cases of the screening: who is below this with the whole interval is not measured further."""

USABLE = (Status.PASSED, Status.PROFILE_FAILED)
"""A version whose profile failed is right and has times all the same."""


@dataclass(frozen=True)
class Verdict:
    """What is stored of a step's result."""

    outcome: Outcome
    speedup: float | None
    held: bool | None
    lesson: str


UNCHANGED = Verdict(Outcome.UNCHANGED, None, None, "The draft is its parent, but for comments and blanks.")
DUPLICATE = Verdict(Outcome.DUPLICATE, None, None, "This run already had this very program.")


def judge(
    evaluation: Evaluation,
    speedup: float | None,
    over_best: Ratio | None,
    over_parent: Ratio | None,
    predicted: float | None,
    *,
    screened: bool = False,
) -> Verdict:
    """The verdict on an evaluated draft.

    Args:
        evaluation: of the draft.
        speedup: the draft's, over naive; None if it was not measured on every case.
        over_best: the draft's, over the best version before it.
        over_parent: the draft's, over the version that it was predicted to beat; usually the best version.
        predicted: the predicted speed-up over that one.
        screened: whether these are the few cases of the screening, on which it was clearly slower than its parent.
    """
    if evaluation.status not in USABLE:
        return Verdict(Outcome.FAILED, None, None, failure_text(evaluation))
    if screened and over_parent is not None:
        held = prediction_held(predicted, over_parent.low, over_parent.high)
        few = len(evaluation.measurements)
        text = f"{over_parent} over its parent on the {few} cases of the screening: not measured further{_predicted(predicted, held)}."
        return Verdict(Outcome.SLOWER, None, held, text)
    if speedup is None:
        return Verdict(Outcome.CHECKED, None, None, "Passed every check; not measured on every case here.")
    held = None if over_parent is None else prediction_held(predicted, over_parent.low, over_parent.high)
    parts = [f"{speedup:.3f}x over naive"]
    if over_parent is not None and over_parent.value != speedup:
        parts.append(f"{over_parent} over its parent")
    if over_best is not None and over_best != over_parent and over_best.value != speedup:
        parts.append(f"{over_best} over the best before it")
    return Verdict(
        _outcome(over_best),
        speedup,
        held,
        "; ".join(parts) + (_predicted(predicted, held) if over_parent else "") + ".",
    )


def _predicted(predicted: float | None, held: bool | None) -> str:
    if predicted is None:
        return ""
    verdict = "is undecided" if held is None else "held" if held else "did not hold"
    needs = f"{needed(predicted):.3f}x needed"
    return f"; {predicted:.3f}x was predicted and {needs}, so the hypothesis {verdict}"


def _outcome(over_best: Ratio | None) -> Outcome:
    """An improvement is what can't be chance: the interval excludes 1."""
    if over_best is None or over_best.low > 1:
        return Outcome.IMPROVED
    return Outcome.SLOWER if over_best.high < 1 else Outcome.EQUAL


def clearly_slower(over_parent: Ratio | None) -> bool:
    """Whether the screening is enough to give a draft up."""
    return over_parent is not None and over_parent.high < CLEARLY


def failure_text(evaluation: Evaluation) -> str:
    """The failure in one sentence."""
    failure = evaluation.failure
    return f"{failure.fault.replace('_', ' ')}: {failure.message}" if failure else evaluation.status.replace("_", " ")
