"""What a run may spend. Everything is reserved before it is dispatched, so that a limit is kept, not noticed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from msbench.conversation import Limits, Message
from msbench.errors import BudgetExceeded, MsbenchError
from msbench.providers import Provider
from msbench.store.tables import CallRow

CHARACTERS_A_TOKEN = 3
"""A cautious guess of a prompt's length before the provider has counted it: English and C++ have about four."""

LONGEST_ANSWER = 32_000
"""What is reserved where nobody limits an answer: reasoning models think in the same tokens."""

FEWEST_TOKENS = 1024
"""An answer with fewer tokens than this can't hold a kernel: better not ask."""


@dataclass(frozen=True)
class Budget:
    """Limits of a whole run, over all its sessions; None: no limit."""

    cost_usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    evaluations: int | None = None
    gpu_seconds: float | None = None
    wall_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 0:
                raise MsbenchError(f"The budget's {name} is {value}: give a number that is not negative.")


@dataclass
class Spend:
    """What a run has spent."""

    cost_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    evaluations: int = 0
    gpu_seconds: float = 0.0
    wall_seconds: float = 0.0


class Ledger:
    """Keeps a run's spend below its budget."""

    def __init__(self, budget: Budget, spent: dict[str, Any], calls: Iterable[CallRow] = ()) -> None:
        """Go on from ``spent``, as it was stored; ``calls`` that were stored after it count too."""
        self.budget = budget
        self.spend = Spend(**{f.name: spent[f.name] for f in fields(Spend) if f.name in spent})
        known = list(calls)
        self.spend.calls = max(self.spend.calls, len(known))
        self.spend.tokens = max(self.spend.tokens, sum(_tokens(c.prompt_tokens, c.completion_tokens) for c in known))
        self.spend.cost_usd = max(self.spend.cost_usd, sum(c.cost_usd or 0.0 for c in known))
        self._earlier_s = self.spend.wall_seconds
        self._started = time.monotonic()
        self._longest_s = 0.0

    def reserve_call(self, messages: Sequence[Message], max_tokens: int | None, provider: Provider) -> Limits:
        """The limits of the next call, such that even its longest answer stays within the budget.

        An answer is limited only where ``max_tokens`` or a budget of tokens or dollars asks for it: endpoints
        refuse a limit that is longer than their context.

        Raises:
            BudgetExceeded: there is not enough left for a useful answer.
        """
        self._require("calls", 1)
        if self.budget.tokens is None and self.budget.cost_usd is None:
            return Limits(max_tokens, self._seconds_left())
        max_tokens = LONGEST_ANSWER if max_tokens is None else max_tokens
        prompt = sum(len(m.content) for m in messages) // CHARACTERS_A_TOKEN
        if self.budget.tokens is not None:
            max_tokens = min(max_tokens, self.budget.tokens - self.spend.tokens - prompt)
        if self.budget.cost_usd is not None:
            left = self.budget.cost_usd - self.spend.cost_usd
            while max_tokens >= FEWEST_TOKENS and cost_of(provider, prompt, max_tokens) > left:
                max_tokens //= 2
        if max_tokens < FEWEST_TOKENS:
            raise BudgetExceeded(f"The budget does not reach for another answer: {self.summary()}.")
        return Limits(max_tokens, self._seconds_left())

    def settle_call(self, cost_usd: float | None, prompt_tokens: int | None, completion_tokens: int | None) -> None:
        """A call came back."""
        self.spend.calls += 1
        self.spend.tokens += _tokens(prompt_tokens, completion_tokens)
        self.spend.cost_usd += cost_usd or 0.0

    def reserve_evaluation(self) -> None:
        """Room for one evaluation, that takes as long as the longest before it.

        Raises:
            BudgetExceeded: there is none.
        """
        self._require("evaluations", 1)
        self._require("gpu_seconds", self._longest_s)
        self._seconds_left()

    def settle_evaluation(self, seconds: float, *, on_gpu: bool) -> None:
        """An evaluation came back."""
        self.spend.evaluations += 1
        if on_gpu:
            self.spend.gpu_seconds += seconds
            self._longest_s = max(self._longest_s, seconds)

    def stored(self) -> dict[str, Any]:
        """The spend as the run's row holds it."""
        self.spend.wall_seconds = self._wall_s()
        return asdict(self.spend)

    def summary(self) -> str:
        """What is spent of what is limited: ``calls 3 of 3, tokens 41200 of 50000``."""
        spent, limits = self.stored(), asdict(self.budget)
        return ", ".join(
            f"{name.replace('_', ' ')} {_short(spent[name])} of {_short(limit)}"
            for name, limit in limits.items()
            if limit is not None
        )

    def _require(self, name: str, amount: float) -> None:
        limit, spent = getattr(self.budget, name), getattr(self.spend, name)
        if limit is not None and (spent + amount > limit or spent >= limit):
            raise BudgetExceeded(f"The budget is spent: {self.summary()}.")

    def _wall_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._started

    def _seconds_left(self) -> float | None:
        if self.budget.wall_seconds is None:
            return None
        left = self.budget.wall_seconds - self._wall_s()
        if left <= 0:
            raise BudgetExceeded(f"The budget is spent: {self.summary()}.")
        return left


def cost_of(provider: Provider, prompt_tokens: int, completion_tokens: int) -> float:
    """Dollars that so many tokens cost.

    Raises:
        MsbenchError: the provider does not know.
    """
    cost = provider.price(prompt_tokens, completion_tokens)
    if cost is None:
        raise MsbenchError(f"A limit in dollars needs {provider.model}'s prices: give them with --price.")
    return cost


def _tokens(prompt: int | None, completion: int | None) -> int:
    return (prompt or 0) + (completion or 0)


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
