"""The versions of a task in an operator's folder: naive, library baselines, the best known."""

from __future__ import annotations

from pathlib import Path

from msbench.errors import SpecError
from msbench.model import Candidate, Origin
from msbench.spec import Precision, Task

NAIVE = "naive.cu"
BEST = "best.cu"


def versions(task: Task) -> list[Candidate]:
    """The naive kernel, then library baselines by name, then the best: ``best/<precision>.cu``, else ``best.cu`` for both.

    A file whose ``// msbench: precisions …`` directive leaves the task's precision out is left out.

    Raises:
        SpecError: there is no naive.cu, or a directive names a precision that does not exist.
    """
    folder = Path(task.operator.folder)
    if not (folder / NAIVE).is_file():
        raise SpecError(
            f"{folder / NAIVE} is missing. Every operator has a plain kernel that others are compared with."
        )
    libraries = sorted(path for path in folder.glob("*.cu") if path.name not in (NAIVE, BEST))
    found = [
        _read(task, folder / NAIVE, Origin.NAIVE, "naive"),
        *(_read(task, path, Origin.LIBRARY, path.stem) for path in libraries),
    ]
    best = next((path for path in (folder / "best" / f"{task.precision}.cu", folder / BEST) if path.is_file()), None)
    if best:
        found.append(_read(task, best, Origin.EXPERT, "best"))
    return [candidate for candidate in found if task.precision in _precisions(folder, candidate)]


def _read(task: Task, path: Path, origin: Origin, label: str) -> Candidate:
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} can't be read: {error}.") from None
    return Candidate(task.operator.name, task.precision, source, origin, label)


def _precisions(folder: Path, candidate: Candidate) -> tuple[Precision, ...]:
    try:
        return tuple(Precision(name) for name in candidate.directives.get("precisions", tuple(Precision)))
    except ValueError as error:
        known = ", ".join(Precision)
        raise SpecError(f"{folder}: {candidate.label}: directive 'precisions': {error}. Known: {known}.") from None
