"""What a run tells while it goes on, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msbench.model import Outcome


@dataclass(frozen=True)
class Event:
    """Something that happened in a run, for display. ``kind``: started, resumed, asked, invited, answered, evaluated, step, ended."""

    run: str
    kind: str
    step: int
    text: str
    outcome: Outcome | None = None
    speedup: float | None = None
    task: str = ""


@dataclass(frozen=True)
class Summary:
    """How a run ended. ``speedup`` is the best version's over naive; None where nothing was measured."""

    run_id: str
    status: str
    note: str
    steps: int
    best_version_id: str | None
    speedup: float | None
    spend: dict[str, Any] = field(default_factory=dict)


Watcher = Callable[[Event], None]
