"""What a run's steps came to, by the session in which each was measured: gains with their intervals, and predictions judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msbench.statistics import needed, prediction_held

if TYPE_CHECKING:
    from msbench.figures.ratios import Ratio
    from msbench.sitegen.entries import Run, Version
    from msbench.sitegen.facts import Site
    from msbench.store.tables import StepRow


@dataclass(frozen=True)
class Gain:
    """What came out on one case, over the version that a step went on from, and what was predicted of it alone, if anything."""

    case: str
    ratio: Ratio
    predicted: float | None

    @property
    def verdict(self) -> str:
        """As ``Told.verdict``."""
        return judged(self.predicted, self.ratio)


@dataclass(frozen=True)
class Told:
    """A step's figures. ``before`` is its nearest ancestor with times, over which the planner predicts.

    All are of one session, the step's own, at ``measured_at``; without times they are None, and a prediction is open.
    """

    row: StepRow
    before: Version | None
    over_naive: Ratio | None
    over_before: Ratio | None
    gains: tuple[Gain, ...]
    measured_at: str | None

    @property
    def predicted(self) -> float | None:
        """The predicted speed-up over ``before``."""
        return self.row.predicted_speedup if self.row.outcome != "baseline" else None

    @property
    def needed(self) -> float | None:
        """The least gain with which the prediction holds."""
        return needed(self.predicted) if self.predicted else None

    @property
    def verdict(self) -> str:
        """``held``, ``did not hold`` or ``undecided``; empty where nothing was predicted or measured."""
        return judged(self.predicted, self.over_before)

    @property
    def tone(self) -> str:
        """The verdict's colour."""
        return TONES.get(self.verdict, "")


TONES = {"held": "good", "did not hold": "bad"}


def judged(predicted: float | None, came: Ratio | None) -> str:
    """``held``, ``did not hold`` or ``undecided``, by the interval of what came out; empty without one of the two."""
    if not predicted or came is None:
        return ""
    held = prediction_held(predicted, came.low, came.high)
    return "undecided" if held is None else "held" if held else "did not hold"


def told(site: Site, run: Run, row: StepRow) -> Told:
    """A step with the figures of its own session."""
    version = site.versions.get(row.version_id or "")
    evaluation = site.evaluations.get(row.evaluation_id or "")
    baseline = run.baseline
    if version is None or evaluation is None:
        return Told(row, None, None, None, (), None)
    session = evaluation.recorded_from or evaluation.id
    before = site.predecessor(version) if version.id != (baseline.version_id if baseline else None) else None
    predicted = {
        name: one for name, one in (row.predicted_cases or {}).items() if isinstance(one, (int, float)) and one > 0
    }
    over_naive = site.within(session, version.id, (baseline.version_id if baseline else None) or "")
    over_before = site.within(session, version.id, before.id) if before else None
    return Told(
        row,
        before,
        over_naive.overall,
        over_before.overall if over_before else None,
        tuple(Gain(case.name, ratio, predicted.get(case.name)) for case, ratio in over_before.cases)
        if over_before
        else (),
        over_naive.measured_at,
    )
