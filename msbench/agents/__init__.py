"""Strategies: one file each, named on the command line by ``--strategy``.

A strategy decides *where to go on from* (:meth:`Strategy.ask`, a pure function of the stored history and the seed) and
turns that decision into a draft by talking to a language model (:meth:`Strategy.draft`). It evaluates
and stores nothing: the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from msbench import plugins
from msbench.conversation import Message, Reply
from msbench.model import Outcome

if TYPE_CHECKING:
    from msbench.agents._briefing import Briefing


@dataclass(frozen=True)
class Attempt:
    """One step of a run as strategies and prompts see it. ``speedup`` is over naive, the geometric mean over cases."""

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


@dataclass(frozen=True)
class History:
    """Everything a strategy may base a decision on: the stored steps, in order, and the run's seed."""

    attempts: tuple[Attempt, ...]
    seed: int

    @property
    def best(self) -> Attempt:
        """The fastest version so far; where nothing was measured, the last that passed its checks, or the baseline.

        That is the last that improved: each was measured beside the best before it. Their ratios to naive come from
        different sessions and differ by more than that.
        """
        improved = [a for a in self.attempts if a.outcome is Outcome.IMPROVED]
        if improved or self.attempts[0].speedup is not None:
            return improved[-1] if improved else self.attempts[0]
        checked = [a for a in self.attempts if a.outcome is Outcome.CHECKED]
        return checked[-1] if checked else self.attempts[0]

    def of_version(self, version: str) -> Attempt | None:
        """The step that brought ``version``."""
        return next((a for a in self.attempts if a.version == version), None)


@dataclass(frozen=True)
class Proposal:
    """From which version to go on, and how. The action ``"debug"`` repairs the parent; it counts as no round."""

    parent: str
    action: str
    guidance: str = ""


@dataclass(frozen=True)
class Draft:
    """What a workflow brought back: a source, or the problem that kept it from one."""

    source: str | None
    plan: str = ""
    hypothesis: str = ""
    predicted_speedup: float | None = None
    problem: str = ""


Talk = Callable[[str, Sequence[Message]], Reply]
"""Asks the run's language model as the named agent. It stores the turn and keeps the budget."""


class Strategy(Protocol):
    """The protocol of a strategy module's ``create()``."""

    name: str

    def ask(self, history: History) -> Proposal | None:
        """The next proposal; None when there is nothing left to try. Depends on ``history`` alone."""

    def draft(self, proposal: Proposal, briefing: Briefing, talk: Talk) -> Draft:
        """Turn a proposal into a draft. Equal briefings must lead to equal prompts, or recordings can't be replayed."""


def pick(name: str) -> Strategy:
    """The strategy ``name``.

    Raises:
        UnknownNameError: there is no such strategy.
    """
    return cast(Strategy, plugins.load("msbench.agents", name, "strategy").create())
