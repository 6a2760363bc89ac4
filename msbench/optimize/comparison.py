"""Times and speed-ups of stored evaluations, over the cases of one run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msbench.model import Evaluation, Measurement
from msbench.spec import Case
from msbench.statistics import estimate, geometric_mean, log_ratios
from msbench.store.samples import median_ns


def times_ns(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, float]:
    """The median cold time by case; a case without a time is absent."""
    found: dict[str, float] = {}
    for name, measurement in _measured(evaluation, cases).items():
        time = median_ns(measurement.samples_ns)
        if time is not None:
            found[name] = time
    return found


def speedups(reference: Evaluation, evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, float]:
    """t_reference / t_candidate by case, only where the two were measured in one group.

    The median over the rounds, which pair by index: the estimate of ``statistics.bootstrap_ratio``.
    """
    theirs, ours = _measured(reference, cases), _measured(evaluation, cases)
    return {
        name: math.exp(estimate(log_ratios(theirs[name].samples_ns, mine.samples_ns, mine.sittings)))
        for name, mine in ours.items()
        if name in theirs and theirs[name].group == mine.group
    }


def score(by_case: dict[str, float], cases: Sequence[Case]) -> float | None:
    """The geometric mean of the speed-ups; None unless every case has one."""
    return geometric_mean(list(by_case.values())) if cases and len(by_case) == len(cases) else None


def _measured(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, Measurement]:
    wanted = {case.id for case in cases}
    return {m.case.id: m for m in evaluation.measurements if m.case.id in wanted and m.failure is None and m.samples_ns}
