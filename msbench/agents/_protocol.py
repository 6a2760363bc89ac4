"""The words between the engine and a strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msbench.agents._attempt import Attempt
from msbench.agents._briefing import Briefing, VersionBrief
from msbench.conversation import Message, Reply
from msbench.model import Outcome

DEBUG = "debug"
"""The action that repairs its parent."""


_RANKS = (Outcome.IMPROVED, Outcome.BASELINE, Outcome.EQUAL, Outcome.SLOWER)


@dataclass(frozen=True)
class History:
    """Everything a strategy may base a decision on: the stored steps, in order, the run's seed, and what it may still spend.

    ``rounds_left`` counts proposals, repairs not; ``budget_left`` has what is limited by the budget's names.
    """

    attempts: tuple[Attempt, ...]
    seed: int
    rounds_left: int = 0
    budget_left: Mapping[str, float] = field(default_factory=dict)

    @property
    def best(self) -> Attempt:
        """The fastest version so far; where nothing was measured, the last that passed its checks, or the baseline.

        That is the last that improved: each was measured beside the best before it. Their ratios to naive come from
        different sessions and differ by more than that.
        """
        return self.ranking[0]

    @property
    def ranking(self) -> list[Attempt]:
        """The attempts that brought a right kernel, the best first: those that improved, the last of them first, then by speed-up.

        Where nothing is measured, the last that passed its checks comes first, and the baseline last.
        """

        def rank(attempt: Attempt) -> tuple[int, float, int]:
            if attempt.outcome is Outcome.CHECKED:
                measured = self.attempts[0].speedup is not None
                return (len(_RANKS) if measured else 0), 0.0, -attempt.number
            by_speed = attempt.outcome is not Outcome.IMPROVED
            return _RANKS.index(attempt.outcome), -(attempt.speedup or 0.0) if by_speed else 0.0, -attempt.number

        right = (*_RANKS, Outcome.CHECKED)
        return sorted((a for a in self.attempts if a.outcome in right and a.version), key=rank)

    def of_version(self, version: str) -> Attempt | None:
        """The step that brought ``version``."""
        return next((a for a in self.attempts if a.version == version), None)


@dataclass(frozen=True)
class Proposal:
    """From which version to go on, and how. The action ``"debug"`` repairs the parent; it counts as no round.

    ``others``: further versions that the draft is to come from.
    """

    parent: str
    action: str
    guidance: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """What a workflow brought back: a source, or the problem that kept it from one. ``notes``, as JSON, are stored with the step."""

    source: str | None
    plan: str = ""
    hypothesis: str = ""
    predicted_speedup: float | None = None
    problem: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    predicted_cases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """What the engine's tools found of a source. ``speedup`` is over the version that it was to be held against."""

    passed: bool
    failure: str = ""
    speedup: float | None = None
    times_ns: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    bottleneck: str = ""


class Talk(Protocol):
    """The engine, as a draft sees it. Calls and evaluations count against the run's budget, and may end it."""

    def __call__(self, agent: str, messages: Sequence[Message]) -> Reply:
        """Ask the run's language model as the named agent. The turn is stored."""

    def version(self, version_id: str) -> VersionBrief:
        """Any version that the databases know, with its figures and profile where this run has them."""

    def try_out(self, source: str, cases: str = "", *, against: str | None = None, profile: bool = False) -> Trial:
        """Build and check a source quickly; time it against the version ``against``, and profile it, where that is possible.

        Args:
            cases: which, as ``--cases`` has it; by default the few on which drafts are screened.

        Raises:
            UnknownNameError: there is no such case or version.
        """


class Strategy(Protocol):
    """The protocol of a strategy module's ``create()``."""

    name: str

    def ask(self, history: History) -> Proposal | Sequence[Proposal] | None:
        """The next proposals; nothing when there is nothing left to try. Depends on ``history`` alone.

        Several are drafted at the same time and measured together; each becomes a step.
        """

    def draft(self, proposal: Proposal, briefing: Briefing, talk: Talk) -> Draft | Sequence[Draft]:
        """Turn a proposal into a draft, or several. Equal briefings must lead to equal prompts, or recordings can't be replayed."""
