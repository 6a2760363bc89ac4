"""What the databases know from similar tasks: measured gains, and failed attempts."""

from __future__ import annotations

from sqlmodel import col, select

from msbench.model import Outcome
from msbench.spec import Task
from msbench.store.store import Store
from msbench.store.tables import RunRow, StepRow, TaskRow

GAINS, FAILURES = 8, 5
"""So many lines of each: a prompt has other things to say."""

_LONGEST = 400


def gather(store: Store, task: Task) -> tuple[str, ...]:
    """One line per step of other tasks of the same scenario, each with its version's id: gains first, then failures.

    The same operator in another precision comes before other operators; of equals the larger gain.
    """
    with store.session() as session:
        query = (
            select(TaskRow, StepRow)
            .join(RunRow, col(RunRow.task_id) == col(TaskRow.id))
            .join(StepRow, col(StepRow.run_id) == col(RunRow.id))
            .where(TaskRow.scenario == task.operator.scenario, TaskRow.id != task.id)
            .where(col(StepRow.version_id).is_not(None), StepRow.number > 0)
        )
        found = session.exec(query).all()

    def order(pair: tuple[TaskRow, StepRow]) -> tuple[bool, float, str]:
        known, step = pair
        return known.operator != task.operator.name, -(step.speedup or 0.0), step.id

    ordered = _once_each(sorted(found, key=order))
    gains = [pair for pair in ordered if pair[1].outcome == Outcome.IMPROVED]
    failures = [pair for pair in ordered if pair[1].outcome in (Outcome.SLOWER, Outcome.FAILED) and pair[1].plan]
    return tuple(map(_line, gains[:GAINS] + failures[:FAILURES]))


def _once_each(pairs: list[tuple[TaskRow, StepRow]]) -> list[tuple[TaskRow, StepRow]]:
    """Without the repetitions of a version that several runs tried."""
    first: dict[str | None, tuple[TaskRow, StepRow]] = {}
    for pair in pairs:
        first.setdefault(pair[1].version_id, pair)
    return [*first.values()]


def _line(pair: tuple[TaskRow, StepRow]) -> str:
    task, step = pair
    plan = " ".join(step.plan.split())
    return f"{task.id}, version {(step.version_id or '')[:12]}, {step.outcome}: {plan[:_LONGEST]} Result: {step.lesson[:_LONGEST]}"
