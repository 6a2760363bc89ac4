"""Tunes the constants that a kernel declares (``msbench.tuning``) by measuring its points against it, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Any, Protocol

from msbench import tuning
from msbench.errors import MsbenchError
from msbench.harness.batch.coordinator import evaluate_all
from msbench.harness.batch.job import Job
from msbench.harness.evaluate import Executor, Plan, Progress
from msbench.model import Candidate, Evaluation, Origin
from msbench.optimize import rungs
from msbench.optimize.comparison import Ratio, overall, paired, rated
from msbench.optimize.judge import USABLE, failure_text
from msbench.spec import Task
from msbench.tuning import Point, Tunable

EXHAUSTIVE = 64
"""Up to this many points all are measured, else this many are chosen."""

GROUP = 7
"""Points measured in one group, together with the original source."""

Store = Callable[[Sequence[Evaluation]], object]


@dataclass(frozen=True)
class Measured:
    """One point: its speed-up over the original source, or what was wrong with it."""

    point: Point
    version: str
    ratio: Ratio | None
    problem: str = ""


@dataclass(frozen=True)
class Swept:
    """A sweep's result: every measured point, the fastest first, and the winner, if one beat the original source.

    ``confirmed``: the winner's ratio on all cases, after all checks.
    """

    measured: tuple[Measured, ...]
    winner: Candidate | None
    confirmed: Ratio | None


class _Chooser(Protocol):
    """Which points are measured next, knowing how earlier ones did."""

    def next(self, number: int) -> list[Point]: ...

    def told(self, measured: Sequence[Measured]) -> None: ...


def sweep(
    executor: Executor,
    task: Task,
    candidate: Candidate,
    plan: Plan,
    *,
    store: Store,
    command: str,
    progress: Progress,
    number: int = EXHAUSTIVE,
) -> Swept:
    """Measure the points of a kernel's constants on one case of each regime, and the best of them on all cases of the plan.

    Args:
        store: receives each group's evaluations as soon as they are done.
        number: how many points to measure if there are more.

    Raises:
        MsbenchError: nothing is declared, the declaration is wrong, or this executor measures nothing.
    """
    space = tuning.tunables(candidate.source)
    if not space:
        raise MsbenchError(
            "The source declares no constants: add one, such as `// tune: TILE = 64 | 128 | 256` (docs/contract.md)."
        )
    if not executor.measures:
        raise MsbenchError("A sweep needs times: use --executor cuda on a machine with a GPU.")
    cases = rungs.regimes(task, plan.cases, executor.ceilings())
    quick = rungs.quick(plan, cases)
    chooser: _Chooser = _All(space) if tuning.size(space) <= number else _Chosen(space, number, plan.seed)
    measured: list[Measured] = []
    while points := chooser.next(2 * GROUP):
        versions = [(point, at(candidate, point)) for point in points]
        groups = [versions[k : k + GROUP] for k in range(0, len(versions), GROUP)]
        jobs = [Job(task, (candidate, *(v for _, v in group)), quick) for group in groups]
        found: list[Measured] = []
        for job, results in evaluate_all(executor, jobs, command=command, progress=progress):
            if isinstance(results, MsbenchError):
                raise results
            store(results)
            group = groups[next(i for i, one in enumerate(jobs) if one is job)]
            base, own = results[0], results[1:]
            found += [_measured(point, base, result, quick) for (point, _), result in zip(group, own, strict=True)]
        chooser.told(found)
        measured += found
    ranked = sorted(measured, key=lambda one: one.ratio.value if one.ratio else 0.0, reverse=True)
    winner = next((one for one in ranked if one.ratio and one.ratio.low > 1), None)
    if winner is None:
        return Swept(tuple(ranked), None, None)
    best = at(candidate, winner.point)
    full = Job(task, (candidate, best), plan)
    ((_, results),) = evaluate_all(executor, [full], command=command, progress=progress)
    if isinstance(results, MsbenchError):
        raise results
    store(results)
    confirmed = _measured(winner.point, results[0], results[1], plan).ratio
    won = confirmed is not None and confirmed.low > 1
    return Swept(tuple(ranked), best if won else None, confirmed)


def at(candidate: Candidate, point: Point) -> Candidate:
    """The version with a point's values written in."""
    label = "sweep " + ", ".join(f"{name} = {value}" for name, value in point.items())
    source = tuning.written(candidate.source, point)
    origin = Origin.AGENT if candidate.origin is Origin.AGENT else Origin.EXTERNAL
    return Candidate(candidate.operator, candidate.precision, source, origin, label, (candidate.id,))


def _measured(point: Point, base: Evaluation, own: Evaluation, plan: Plan) -> Measured:
    logs = paired(base, own, plan.cases) if own.status in USABLE else {}
    ratio = overall(logs) if len(logs) == len(rated(plan.cases)) else None
    return Measured(point, own.candidate.id, ratio, "" if own.status in USABLE else failure_text(own))


class _All:
    """Every point but the one that the source has."""

    def __init__(self, space: Sequence[Tunable]) -> None:
        given = {one.name: one.given for one in space}
        self._left: Iterator[Point] = (point for point in tuning.points(space) if point != given)

    def next(self, number: int) -> list[Point]:
        return list(islice(self._left, number))

    def told(self, measured: Sequence[Measured]) -> None:
        pass


class _Chosen:
    """``number`` points of a large space, chosen by ``optuna`` from how the earlier ones did."""

    def __init__(self, space: Sequence[Tunable], number: int, seed: int) -> None:
        try:
            optuna = import_module("optuna")
        except ImportError as error:
            raise MsbenchError(
                f"There are {tuning.size(space)} points, more than {number}: install optuna to choose "
                "among them (`pip install 'mskernelbench[sweep]'`), declare fewer values, or raise --points."
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=seed % 2**32, constant_liar=True)
        self._failed = optuna.trial.TrialState.FAIL
        self._study: Any = optuna.create_study(direction="maximize", sampler=sampler)
        self._space = space
        self._left = number
        self._seen = {tuple(one.given for one in space)}
        self._trials: list[Any] = []

    def next(self, number: int) -> list[Point]:
        self._trials = []
        chosen: list[Point] = []
        for _ in range(20 * number):
            if len(chosen) == min(number, self._left):
                break
            trial = self._study.ask()
            point = {one.name: trial.suggest_categorical(one.name, list(one.values)) for one in self._space}
            if tuple(point.values()) in self._seen:
                self._study.tell(trial, state=self._failed)
                continue
            self._seen.add(tuple(point.values()))
            self._trials.append(trial)
            chosen.append(point)
        self._left -= len(chosen)
        return chosen

    def told(self, measured: Sequence[Measured]) -> None:
        by_point = {tuple(one.point.values()): one.ratio for one in measured}
        for trial in self._trials:
            ratio = by_point.get(tuple(trial.params[one.name] for one in self._space))
            if ratio is None:
                self._study.tell(trial, state=self._failed)
            else:
                self._study.tell(trial, ratio.value)
