"""Compares each task's best version with the bar and the roofline, by split of its cases.

The bar is, for each case, the faster of the naive kernel and the libraries, measured in the same session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlmodel import col, select

from msbench import roofline
from msbench.figures.figures import CaseFigures, TaskFigures
from msbench.figures.gathered import gathered
from msbench.figures.ratios import Ratio
from msbench.model import Ceilings, Origin
from msbench.statistics import geometric_mean
from msbench.store.store import Store
from msbench.store.tables import CaseRow, EvaluationRow, ProfileRow, TaskRow

LOST = 0.98
"""A case is lost where even the upper end of the interval of its ratio to the bar stays below."""


@dataclass(frozen=True)
class Standing:
    """A task's best version on the cases of one split; times are geometric means in ns.

    ``over_bar``: t_bar / t_version; ``of_roofline``: t_bound / t_version, an empty call's time being a bound, too.
    """

    task_id: str
    precision: str
    split: str
    cases: int
    bound_ns: float
    time_ns: float
    over_bar: float
    of_roofline: float
    worst: float
    worst_case: str


@dataclass(frozen=True)
class Lost:
    """A case on which the best version is slower than the bar."""

    task_id: str
    case_name: str
    ratio: Ratio


@dataclass(frozen=True)
class Short:
    """A best version that takes ``over_target`` times its target, with the newest profile of it on a case like those, if there is one."""

    task_id: str
    split: str
    over_target: float
    profile: ProfileRow | None
    case_name: str


def over_bar(case: CaseFigures) -> Ratio | None:
    """The ratio to the faster of the naive kernel and the libraries."""
    known = [one for one in (case.speedup, case.library) if one is not None]
    return min(known, key=lambda one: one.value, default=None)


def standings(tasks: Iterable[TaskFigures]) -> tuple[list[Standing], list[Lost]]:
    """Those of all tasks that have a best version, and the cases that are lost, the worst first.

    Where its time on a large case and on its twin differs, and no library's does, the slower one is what it is rated by.
    A task that has libraries is left out on cases on which none was timed beside it: without them the bar would be too low.
    """
    found, lost = [], []
    for task in tasks:
        if task.best is None:
            continue
        has_libraries = any(one.version.origin == Origin.LIBRARY for one in task.versions)
        slower = [case.slower for case in task.best.cases]
        cases = [case for case in slower if case.library is not None or not has_libraries]
        rated = [(case, ratio) for case in cases if (ratio := over_bar(case)) is not None]
        for split in dict.fromkeys(case.case.split for case, _ in rated):
            found += _standing(task, split, [one for one in rated if one[0].case.split == split])
        lost += [Lost(task.task.id, case.case.name, ratio) for case, ratio in rated if ratio.high < LOST]
    return found, sorted(lost, key=lambda one: one.ratio.value)


def _standing(task: TaskFigures, split: str, rated: Sequence[tuple[CaseFigures, Ratio]]) -> list[Standing]:
    timed = [(case.bound.time_ns, case.median_ns, ratio) for case, ratio in rated if case.bound and case.median_ns]
    if not timed:
        return []
    bound, time = geometric_mean([one[0] for one in timed]), geometric_mean([one[1] for one in timed])
    case, worst = min(rated, key=lambda one: one[1].value)
    return [
        Standing(
            task_id=task.task.id,
            precision=task.task.precision,
            split=split,
            cases=len(timed),
            bound_ns=bound,
            time_ns=time,
            over_bar=geometric_mean([ratio.value for *_, ratio in timed]),
            of_roofline=bound / time,
            worst=worst.value,
            worst_case=case.case.name,
        )
    ]


@dataclass(frozen=True)
class Mean:
    """Geometric means over the ``tasks`` of one precision and split; ``at_target``: of ``over_bar`` if no time were above its target."""

    tasks: int
    over_bar: float
    of_roofline: float
    at_target: float | None


def means(
    found: Iterable[Standing], targets: Mapping[tuple[str, str], float] | None = None
) -> dict[tuple[str, str], Mean]:
    """By precision and split. ``targets``: in ns, by task and split."""
    groups: dict[tuple[str, str], list[Standing]] = {}
    for one in found:
        groups.setdefault((one.precision, one.split), []).append(one)
    return {key: _mean(of_one, targets or {}) for key, of_one in groups.items()}


def _mean(found: Sequence[Standing], targets: Mapping[tuple[str, str], float]) -> Mean:
    aimed = [
        one.over_bar * max(1.0, one.time_ns / target)
        for one in found
        if (target := targets.get((one.task_id, one.split)))
    ]
    return Mean(
        len(found),
        geometric_mean([one.over_bar for one in found]),
        geometric_mean([one.of_roofline for one in found]),
        geometric_mean(aimed) if len(aimed) == len(found) else None,
    )


def elsewhere(
    targets: Mapping[tuple[str, str], float], tasks: Iterable[TaskFigures], ceilings: Ceilings
) -> dict[tuple[str, str], float]:
    """Targets of a device with these ``ceilings`` as those of the tasks' own: each times the mean ratio of its cases' bounds."""
    found = {}
    for task in tasks:
        for split in {case.case.split for case in task.best.cases} if task.best else ():
            ratios = [
                case.bound.time_ns / _bound_ns(task.task, case.case, ceilings)
                for case in (task.best.cases if task.best else ())
                if case.case.split == split and case.bound
            ]
            target = targets.get((task.task.id, split))
            if target and ratios:
                found[task.task.id, split] = target * geometric_mean(ratios)
    return found


def _bound_ns(task: TaskRow, case: CaseRow, ceilings: Ceilings) -> float:
    return roofline.bound_ns(case.nbytes, case.flops, task.compute, ceilings, gathered(task, case)).time_ns


SHORT = 1.03
"""A version that takes so many times its target falls short of it."""

_LIKE = {"paper": ("paper", "odd"), "large": ("large",), "odd": ("odd",)}
"""Of which splits a profile speaks for a split: small cases are bound alike."""


def short_of(
    store: Store, tasks: Iterable[TaskFigures], found: Iterable[Standing], targets: Mapping[tuple[str, str], float]
) -> list[Short]:
    """Those of ``found`` that fall short of their target, in ns by task and split; the furthest first."""
    best = {task.task.id: task.best.version.id for task in tasks if task.best}
    query = (
        select(ProfileRow, EvaluationRow.version_id, CaseRow.split, CaseRow.name)
        .join(EvaluationRow, col(EvaluationRow.id) == col(ProfileRow.evaluation_id))
        .join(CaseRow, col(CaseRow.id) == col(ProfileRow.case_id))
        .where(col(EvaluationRow.version_id).in_(list(best.values())), ProfileRow.source == "ncu")
        .where(col(ProfileRow.fault).is_(None))
        .order_by(col(EvaluationRow.started_at), col(CaseRow.nbytes), col(ProfileRow.id))
    )
    profiles: dict[tuple[str, str], tuple[ProfileRow, str]] = {}
    with store.session() as session:
        for profile, version, split, name in session.exec(query):
            profiles[version, split] = profile, name
    missed = []
    for one in found:
        target = targets.get((one.task_id, one.split))
        if target and one.time_ns > SHORT * target:
            known = (profiles.get((best[one.task_id], split)) for split in _LIKE.get(one.split, ()))
            newest = next(filter(None, known), None)
            missed.append(Short(one.task_id, one.split, one.time_ns / target, *(newest or (None, ""))))
    return sorted(missed, key=lambda one: -one.over_target)
