"""What an agent is told: plain data that the engine gathers and the prompt templates print."""

from __future__ import annotations

from dataclasses import dataclass, field

from msbench.agents._attempt import Attempt
from msbench.model import Ceilings, Device, Failure
from msbench.spec import Operator, Precision


@dataclass(frozen=True)
class CaseBrief:
    """One case and its roofline bound (None where the device's ceilings are not known)."""

    name: str
    nbytes: int
    flops: int
    bound_ns: float | None = None
    bound_by: str = ""


Interval = tuple[float, float, float]
"""A ratio, and the ends of its 95 % interval."""


@dataclass(frozen=True)
class ProfileBrief:
    """What the profile of one case says: the bottleneck, why it is that, and counters in words."""

    case: str
    bottleneck: str
    evidence: tuple[str, ...]
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class VersionBrief:
    """One version: its cold times by case, and its speed-up over naive by case and over all cases.

    ``beaten``: of a version that is compared with, by case how many times as fast as it the version to start from is.
    """

    id: str
    title: str
    source: str
    times_ns: dict[str, float] = field(default_factory=dict)
    speedups: dict[str, Interval] = field(default_factory=dict)
    beaten: dict[str, Interval] = field(default_factory=dict)
    speedup: float | None = None
    failure: Failure | None = None
    resources: tuple[str, ...] = ()
    profiles: tuple[ProfileBrief, ...] = ()


@dataclass(frozen=True)
class Briefing:
    """The task, the machine, the version to start from, what it is compared with, and what was tried before.

    ``others``: further versions that the draft is to come from. ``knowledge``: what is known of tasks like this one.
    """

    operator: Operator
    precision: Precision
    prototype: str
    workspace_prototype: str
    helpers: str
    cases: tuple[CaseBrief, ...]
    device: Device
    ceilings: Ceilings | None
    parent: VersionBrief
    references: tuple[VersionBrief, ...]
    attempts: tuple[Attempt, ...]
    measures: bool
    others: tuple[VersionBrief, ...] = ()
    knowledge: tuple[str, ...] = ()
