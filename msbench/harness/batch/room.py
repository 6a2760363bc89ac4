"""The device's memory, for cases that are checked at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from msbench.operators import elements
from msbench.spec import Case, Operator

CHECK_BYTES = 48
"""What checking takes of the device's memory for each element of a case's arrays: float64 copies of it, mostly."""

ROOM = 3 / 4
"""Of the device's memory for cases that are checked side by side. They take less of it than ``CHECK_BYTES`` says. On an H200 two of 2^30 elements
go in together then, and one of 2^31 beside little ones: with two thirds, twelve tasks wait for one another, and two of them for all."""

LITTLE = 1 / 64
"""Of that room. Cases that take no more, which are most, never wait for a larger one that waits until others leave."""
_USUAL_MEMORY = 2**37  # of a device that does not tell


class Ended(Exception):
    """Nobody enters any more."""


class Room:
    """Lets cases be checked at once while the device has room, first come, first in but for little ones; one that never fits goes in alone.

    Those that go in alone wait until nobody else is in or waits: each time the others make way for one, the device is idle for a while.
    While it is ``closed`` only they go in, one by one: then nobody else does anyway. ``changed`` is notified whenever anyone
    comes, enters or leaves.
    """

    def __init__(self, memory_bytes: int | None, changed: threading.Condition | None = None) -> None:
        self.closed = self.ended = False
        self.waiting = self.inside = self.alone = 0
        self._room = (memory_bytes or _USUAL_MEMORY) * ROOM
        self._changed = changed or threading.Condition()
        self._queue: deque[object] = deque()
        self._taken = 0.0

    @contextmanager
    def enter(self, op: Operator, case: Case) -> Iterator[None]:
        """While a case is checked. Raises Ended. ``waiting`` counts those that wait, ``alone`` those of them that go in alone."""
        nbytes = min(CHECK_BYTES * elements(op, dict(case.dims)), self._room)
        with self._changed:
            self.waiting += 1
            self._changed.notify_all()
            self._wait(nbytes)
            self.waiting -= 1
            if self.ended:
                raise Ended
            self.inside += 1
            self._taken += nbytes
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.inside -= 1
                self._taken -= nbytes
                self._changed.notify_all()

    def end(self) -> None:
        """Nobody enters any more."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def _wait(self, nbytes: float) -> None:
        if nbytes == self._room:
            self.alone += 1
            self._changed.wait_for(lambda: self.ended or (not self.inside and (self.closed or not self._queue)))
            self.alone -= 1
        elif nbytes <= LITTLE * self._room:
            self._changed.wait_for(lambda: self.ended or (not self.closed and self._taken < self._room))
        else:
            turn = object()
            self._queue.append(turn)
            self._changed.wait_for(lambda: self.ended or (self._queue[0] is turn and self._has_room(nbytes)))
            self._queue.remove(turn)

    def _has_room(self, nbytes: float) -> bool:
        return not self.closed and self._taken + nbytes <= self._room
