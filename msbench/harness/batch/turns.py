"""Who is at work on the device while tasks are measured: several side by side, or one alone."""

from __future__ import annotations

import threading
from collections import deque

from msbench.harness.batch.room import Ended


class Turns:
    """Those that are to be alone have their turns one after another, first come, first in; the others once nobody waits for that, all together.

    So many of them are seldom waited for longer than the slowest of them takes. Nobody waits for ever: who was alone does something else next.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queues: dict[bool, deque[object]] = {True: deque(), False: deque()}  # by whether they are to be alone
        self._inside = 0
        self._alone = False
        self._ended = False

    def enter(self, *, alone: bool) -> None:
        """Wait for that, and be at work until ``leave``. Raises Ended."""
        turn = object()
        with self._changed:
            self._queues[alone].append(turn)
            self._changed.wait_for(lambda: self._ended or self._may_enter(turn, alone))
            self._queues[alone].remove(turn)
            if self._ended:
                raise Ended
            self._inside += 1
            self._alone = alone
            self._changed.notify_all()

    def _may_enter(self, turn: object, alone: bool) -> bool:
        if self._inside:
            return not self._alone and not alone
        waiting = self._queues[True]
        return waiting[0] is turn if alone else not waiting

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
