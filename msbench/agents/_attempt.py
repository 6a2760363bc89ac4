"""A step of a run, as strategies and prompts see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msbench.model import Outcome


@dataclass(frozen=True)
class Attempt:
    """``speedup`` is over naive, the geometric mean over cases.

    ``times_ns`` are cold medians by case, ``metrics`` the profile's, ``fault`` the kind of a failure, and ``notes`` what
    the strategy said of its draft, and what each rung took (``"seconds"``).
    """

    number: int
    action: str
    outcome: Outcome
    parent: str | None
    version: str | None
    plan: str = ""
    hypothesis: str = ""
    predicted_speedup: float | None = None
    speedup: float | None = None
    held: bool | None = None
    lesson: str = ""
    bottleneck: str = ""
    fault: str = ""
    times_ns: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
