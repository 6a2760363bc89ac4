"""Progress of a run's evaluations: reveals nothing of hidden cases, and stops them once the time is up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msbench.harness.evaluate import Progress
from msbench.spec import Case


class Timed(Protocol):
    """What an evaluation is for."""

    def seconds_left(self) -> float | None:
        """So long it may take; raises BudgetExceeded when nothing is left."""


class Deadline:
    """A progress that raises BudgetExceeded between two parts of an evaluation once no wall time is left.

    ``public`` are the cases that may be named.
    """

    def __init__(self, ledger: Timed, progress: Progress | None, public: Collection[Case] = ()) -> None:
        self._ledger = ledger
        self._progress = progress
        self._public = {case.id for case in public}

    def check(self) -> None:
        """Raises BudgetExceeded when the time is up."""
        self._ledger.seconds_left()

    def started(self, text: str) -> None:
        """See ``Progress``."""
        self._ledger.seconds_left()
        if self._progress:
            self._progress.started(text)

    def advanced(self, done: int, total: int, text: str) -> None:
        """See ``Progress``."""
        self._ledger.seconds_left()
        if self._progress:
            self._progress.advanced(done, total, self._told(text))

    def _told(self, text: str) -> str:
        """A case's name; of a hidden one that it is one."""
        if "=" not in text or text.rpartition(" at ")[2] in self._public:
            return text
        size = next((case for case in sorted(self._public, key=len, reverse=True) if text.startswith(f"{case},")), None)
        return text if size is not None and "=" not in text[len(size) :] else "a hidden case"
