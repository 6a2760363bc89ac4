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
        self._lock = threading.Lock()
        # By whether they are to be alone.
        self._queues: dict[bool, deque[threading.Event]] = {True: deque(), False: deque()}
        self._inside = 0
        self._alone = False
        self._ended = False

    def enter(self, *, alone: bool) -> None:
        """Wait for that, and be at work until ``leave``. Raises Ended."""
        turn = threading.Event()  # each waits for its own: to wake all at every turn takes longer than most turns
        with self._lock:
            if self._ended:
                raise Ended
            self._queues[alone].append(turn)
            self._admit()
        turn.wait()
        if self._ended:
            raise Ended

    def _admit(self) -> None:
        """Let in who may enter now."""
        alone, others = self._queues[True], self._queues[False]
        if not self._inside and alone:
            self._alone = True
            self._let_in(alone)
        elif not self._inside or not self._alone:
            self._alone = False
            while others:
                self._let_in(others)

    def _let_in(self, queue: deque[threading.Event]) -> None:
        self._inside += 1
        queue.popleft().set()

    def leave(self) -> None:
        """Be at work no longer."""
        with self._lock:
            self._inside -= 1
            self._admit()

    def end(self) -> None:
        """Nobody enters any more."""
        with self._lock:
            self._ended = True
            for queue in self._queues.values():
                while queue:
                    queue.popleft().set()


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
