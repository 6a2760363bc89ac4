"""A run's best version must pass hidden cases that the run never used."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import col, select

from msbench.model import Origin, Status
from msbench.store.store import Store
from msbench.store.tables import EvaluationRow, RunRow, StepRow

_USABLE = (Status.PASSED.value, Status.PROFILE_FAILED.value)


def proven(store: Store, run: RunRow, version_id: str) -> bool:
    """Whether a version has passed hidden cases of a seed that no step of ``run`` was evaluated by, and failed none."""
    rows = _apart(store, run, version_id)
    return any(row.status in _USABLE for row in rows) and all(row.status in _USABLE for row in rows)


def refuted(store: Store, run: RunRow, version_id: str) -> str | None:
    """A later evaluation that a version failed, beside another step's draft or apart; None if there is none."""
    rows, _ = _since(store, run, version_id)
    return next((row.id for row in rows if row.status not in _USABLE), None)


def _apart(store: Store, run: RunRow, version_id: str) -> list[EvaluationRow]:
    """A version's evaluations since its step, by seeds that no step of the run was evaluated by."""
    rows, own = _since(store, run, version_id)
    used = {run.seed, *own.values()}
    return [row for row in rows if row.seed not in used]


def _since(store: Store, run: RunRow, version_id: str) -> tuple[list[EvaluationRow], dict[str, int]]:
    """A version's evaluations after that of its step, and the seed of each step's evaluation."""
    with store.session() as session:
        mine = select(StepRow.evaluation_id).where(col(StepRow.run_id) == run.id)
        query = select(EvaluationRow.id, EvaluationRow.seed).where(col(EvaluationRow.id).in_(mine))
        steps = dict(session.exec(query).all())
    rows = store.evaluations(version_id)
    begun = max((row.started_at for row in rows if row.id in steps), default=run.started_at)
    judged = [row for row in rows if row.status != Status.UNSUPPORTED.value and row.recorded_from is None]
    return [row for row in judged if row.id not in steps and row.started_at >= begun], steps


def unproven(store: Store, runs: Sequence[str]) -> list[str]:
    """Of each of these runs, in words, what keeps its best version from being published; nothing where all is well.

    What a replay found is another run's.
    """
    found = []
    for run_id in runs:
        run = store.run(run_id)
        if run.best_version_id is None or run.status != "finished" or run.replay_of is not None:
            continue
        version = store.candidate(run.best_version_id)
        if version.origin is not Origin.NAIVE and not proven(store, run, version.id):
            found.append(f"run {run.id[:12]} of {run.task_id}: version {version.id[:12]}")
    return found
