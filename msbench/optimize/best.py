"""Takes a run's best version out of the database."""

from __future__ import annotations

from pathlib import Path

from msbench.errors import MsbenchError
from msbench.figures.proven import proven
from msbench.model import Origin
from msbench.store.store import Store


def write_best(store: Store, run_id: str, folder: Path) -> Path:
    """Write a run's best version to ``folder/<operator>/best/<precision>.cu``; returns the file.

    With ``folder`` being ``kernels`` (or a folder of your own operators) it becomes the version known as ``best``.

    Raises:
        UnknownNameError: there is no such run.
        MsbenchError: the run found nothing better than the naive kernel, or its best was never checked on hidden cases
            that the run did not use.
    """
    run = store.run(run_id)
    best = store.candidate(run.best_version_id) if run.best_version_id else None
    if best is None or best.origin is Origin.NAIVE:
        raise MsbenchError(f"Run {run.id[:12]} found nothing better than the naive kernel of {run.task_id}.")
    if not proven(store, run, best.id):
        raise MsbenchError(
            f"Version {best.id[:12]} of run {run.id[:12]} has passed only hidden cases that the run used: resume the "
            "run with a larger budget, so that it can check others."
        )
    path = folder / best.operator / "best" / f"{best.precision}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(best.source, "utf-8")
    return path
