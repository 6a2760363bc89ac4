"""Times and speed-ups of stored evaluations, over the cases of one run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msbench import operators
from msbench.model import Evaluation, Measurement
from msbench.spec import Case
from msbench.statistics import Logs, bootstrap_geometric_mean, estimate, log_ratios
from msbench.store.samples import median_ns


@dataclass(frozen=True)
class Ratio:
    """How many times as fast, with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f}x [{self.low:.3f}, {self.high:.3f}]"


def times_ns(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, float]:
    """The median cold time by case; a case without a time is absent."""
    found: dict[str, float] = {}
    for name, measurement in _measured(evaluation, cases).items():
        time = median_ns(measurement.samples_ns)
        if time is not None:
            found[name] = time
    return found


def rated(cases: Sequence[Case]) -> list[Case]:
    """Those that have a speed-up of their own: all but the twins of others."""
    twins = set(operators.twins_among(cases).values())
    return [case for case in cases if case.id not in twins]


def paired(reference: Evaluation, evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, Logs]:
    """ln(t_reference / t_candidate) of each pair of rounds by case, only where the two were measured in one group.

    Of a large case and its twin, the same sizes with other inputs, only the smaller speed-up counts: who is faster on some numbers alone is not.
    """
    theirs, ours = _measured(reference, cases), _measured(evaluation, cases)
    found = {
        name: log_ratios(theirs[name].samples_ns, mine.samples_ns, mine.sittings)
        for name, mine in ours.items()
        if name in theirs and theirs[name].group == mine.group
    }
    of_twin = {twin: name for name, twin in operators.twins_among(cases).items()}
    smaller: dict[str, Logs] = {}
    for name, logs in found.items():
        name = of_twin.get(name, name)
        smaller[name] = min(smaller.get(name, logs), logs, key=estimate)
    return smaller


def speedups(by_case: Mapping[str, Logs]) -> dict[str, Ratio]:
    """The speed-up by case, of ``paired``."""
    return {name: overall({name: logs}) for name, logs in by_case.items()}


def overall(by_case: Mapping[str, Logs]) -> Ratio:
    """The geometric mean of the speed-ups on these cases, of which there is one at least; their order does not matter."""
    return Ratio(*bootstrap_geometric_mean([logs for _, logs in sorted(by_case.items())]))


def score(by_case: Mapping[str, Logs], cases: Sequence[Case]) -> float | None:
    """The geometric mean of the speed-ups; None unless every case has one."""
    if not cases or len(by_case) != len(rated(cases)):
        return None
    return math.exp(math.fsum(map(estimate, by_case.values())) / len(by_case))


def _measured(evaluation: Evaluation, cases: Sequence[Case]) -> dict[str, Measurement]:
    wanted = {case.id for case in cases}
    return {m.case.id: m for m in evaluation.measurements if m.case.id in wanted and m.failure is None and m.samples_ns}
