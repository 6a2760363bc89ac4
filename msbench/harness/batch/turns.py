"""Who is at work on the device while tasks are measured: several side by side, or one alone."""

from __future__ import annotations

import threading
from collections import deque

from msbench.harness.batch.room import Ended


class Turns:
    """First come, first in, but that those that need not be alone join each other.

    So those that are to be alone have their turns one after another, and wait no longer for many others than for the slowest of them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()
        self._inside = 0
        self._alone = False
        self._ended = False

    def enter(self, *, alone: bool) -> None:
        """Wait for that, and be at work until ``leave``. Raises Ended."""
        turn = object()
        with self._changed:
            self._queue.append(turn)
            self._changed.wait_for(lambda: self._ended or self._may_enter(turn, alone))
            self._queue.remove(turn)
            if self._ended:
                raise Ended
            self._inside += 1
            self._alone = alone
            self._changed.notify_all()

    def _may_enter(self, turn: object, alone: bool) -> bool:
        joins = self._inside > 0 and not alone
        return not self._alone and (joins or (self._queue[0] is turn and not self._inside))

    def leave(self) -> None:
        """Be at work no longer."""
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()

    def end(self) -> None:
        """Nobody enters any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Turn:
    """One that is beside others, or alone, as it needs to be; or does something else, and is not at work."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._inside = False

    def enter(self, alone: bool) -> None:
        """See ``Turns.enter``; what it was before, it is no longer."""
        self.leave()
        self._turns.enter(alone=alone)
        self._inside = True

    def leave(self) -> None:
        """Harmless when repeated."""
        if self._inside:
            self._inside = False
            self._turns.leave()
