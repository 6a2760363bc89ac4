"""Where the time of one group of versions goes: named stages on the way from source to stored verdict.

A stage is marked where the work is done, with ``with span("inputs"):``. That costs nothing unless someone listens: a
thread records while it is inside ``Spans.recording``. Stages nest, and each is charged only with what none within it
took, so that the stages of a group add up to its time. Asynchronous device work is charged to the stage that waits
for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from types import TracebackType
from typing import NamedTuple, Self

OTHER = "other"
"""What is in no stage of its own."""


class Recorded(NamedTuple):
    """What ``Spans`` hold, for another process of this machine: ``time.perf_counter`` is the same in all of them."""

    seconds: dict[str, float]
    overlapped_s: float
    began: float | None
    taken_up: float | None
    ended: float | None


class Spans:
    """The stages of one group. Several threads may record, one after another; ``alongside`` takes any at any time.

    ``seconds`` holds what each stage took of the group's own time. ``overlapped_s`` is work for the group that other
    threads did meanwhile or before: what of it the group had to wait for is one of its stages.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self.overlapped_s = 0.0
        self.began: float | None = None
        self.taken_up: float | None = None
        self.ended: float | None = None
        self._clock = clock
        self._lock = threading.Lock()

    @property
    def elapsed_s(self) -> float:
        """From the first thing done for the group to the last."""
        return self.ended - self.began if self.began is not None and self.ended is not None else 0.0

    @property
    def ahead_s(self) -> float:
        """How much of that came before its first stage: its compilers ran."""
        return self.taken_up - self.began if self.began is not None and self.taken_up is not None else 0.0

    @property
    def waiting_s(self) -> float:
        """How long it waited between its stages: others had their turn."""
        return max(0.0, self.elapsed_s - self.ahead_s - sum(self.seconds.values()))

    @contextmanager
    def recording(self, phase: str = "") -> Iterator[None]:
        """Record what this thread does inside as the group's own work; stages of a named ``phase`` begin with its name."""
        prefix = f"{phase}: " if phase else ""
        with self._noted(), _Open(self, OTHER, None, self._clock, prefix) as stage:
            if self.taken_up is None:
                self.taken_up = stage.start
            yield

    @contextmanager
    def alongside(self) -> Iterator[None]:
        """Record what this thread does inside as work for the group that it need not wait for."""
        start = self._clock()
        with self._noted():
            try:
                yield
            finally:
                with self._lock:
                    self.overlapped_s += self._clock() - start

    def hand_over(self) -> Recorded:
        """What was recorded since the last time; it is forgotten here."""
        with self._lock:
            found = Recorded(self.seconds, self.overlapped_s, self.began, self.taken_up, self.ended)
            self.seconds, self.overlapped_s = {}, 0.0
            self.began = self.taken_up = self.ended = None
        return found

    def absorb(self, found: Recorded) -> None:
        """Add what was recorded elsewhere."""
        with self._lock:
            for stage, seconds in found.seconds.items():
                self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
            self.overlapped_s += found.overlapped_s
            self.began = _outermost(min, self.began, found.began)
            self.taken_up = _outermost(min, self.taken_up, found.taken_up)
            self.ended = _outermost(max, self.ended, found.ended)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        with self._lock:
            self.began = self._clock() if self.began is None else self.began
        try:
            yield
        finally:
            with self._lock:
                self.ended = self._clock()

    def _add(self, stage: str, seconds: float) -> None:
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


def _outermost(order: Callable[[list[float]], float], *times: float | None) -> float | None:
    known = [one for one in times if one is not None]
    return order(known) if known else None


def span(stage: str) -> AbstractContextManager[object]:
    """Charge what happens inside to ``stage``, where this thread's time is recorded."""
    outer = _innermost.get()
    return _SILENT if outer is None else outer.within(stage)


class _Open:
    """A stage that has begun; ``inner_s`` is what the stages within it took."""

    def __init__(self, spans: Spans, stage: str, outer: _Open | None, clock: Callable[[], float], prefix: str) -> None:
        self._spans = spans
        self._stage = stage
        self._outer = outer
        self._clock = clock
        self._prefix = prefix
        self.inner_s = 0.0

    def within(self, stage: str) -> _Open:
        return _Open(self._spans, stage, self, self._clock, self._prefix)

    def __enter__(self) -> Self:
        self._token: Token[_Open | None] = _innermost.set(self)
        self.start = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        elapsed = self._clock() - self.start
        _innermost.reset(self._token)
        self._spans._add(self._prefix + self._stage, elapsed - self.inner_s)
        if self._outer is not None:
            self._outer.inner_s += elapsed


_SILENT = nullcontext()
_innermost: ContextVar[_Open | None] = ContextVar("msbench_innermost_span", default=None)  # each thread has its own
