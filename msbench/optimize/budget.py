"""What a run may spend and has spent. Everything is reserved before it is dispatched, so that limits are never exceeded.

Each request to a provider and each evaluation is a row that is stored before it begins. Its actual cost replaces what was
reserved; if that is unknown, the reserved amount counts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from msbench.conversation import Attempts, Limits, Message, Reply
from msbench.errors import BudgetExceeded, MsbenchError
from msbench.providers import Provider
from msbench.store.tables import LedgerRow

CHARACTERS_A_TOKEN = 3
"""A cautious guess of a prompt's length before the provider has counted it: English and C++ have about four bytes."""

LONGEST_ANSWER = 32_000
"""What is reserved where nobody limits an answer: reasoning models think in the same tokens."""

FEWEST_TOKENS = 1024
"""An answer with fewer tokens than this can't hold a kernel: better not ask."""

REQUEST, EVALUATION, PROOF, EARLIER = "request", "evaluation", "proof", "earlier"
RESERVED, SETTLED, UNKNOWN = "reserved", "settled", "unknown"


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

    def changed_by(self, other: Budget) -> Budget:
        """These limits, but for those that ``other`` has."""
        given = {name: value for name, value in asdict(other).items() if value is not None}
        return Budget(**{**asdict(self), **given})


@dataclass
class Spend:
    """What a run has spent. The kinds of tokens are those that are known; ``tokens`` has what was reserved for the others.

    ``unknown``: requests whose cost is unknown.
    """

    cost_usd: float = 0.0
    tokens: int = 0
    calls: int = 0
    evaluations: int = 0
    gpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    uncached_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    output_tokens: int = 0
    unknown: int = 0


class Ledger:
    """Keeps a run's spend below its budget."""

    def __init__(
        self,
        budget: Budget,
        spent: dict[str, Any],
        rows: Iterable[LedgerRow] = (),
        *,
        run_id: str = "",
        save: Callable[[LedgerRow], None] = lambda row: None,
        drop: Callable[[LedgerRow], None] = lambda row: None,
    ) -> None:
        """Continue from the stored ``rows``. What was in progress when the process ended is unknown from now on.

        Args:
            spent: as the run's row has it. A run without rows has spent it before there were any.
            save: stores a row, new or changed.
            drop: forgets one.
        """
        self.budget = budget
        self._run_id = run_id
        self._save = save
        self._drop = drop
        self._lock = threading.RLock()
        self._rows = list(rows)
        for row in self._rows:
            if row.state == RESERVED:
                row.state, row.note = UNKNOWN, "The process ended before it came back."
                save(row)
        self._earlier = Spend()
        if not self._rows:
            known = {f.name: spent[f.name] for f in fields(Spend) if f.name in spent}
            self._earlier = Spend(**known)
        else:
            self._earlier = _earlier(self._rows)
        begun = [row.wall_seconds + (row.seconds or 0.0) for row in self._rows]
        self._earlier_s = max([float(spent.get("wall_seconds", 0.0)), *begun])
        self._started = time.monotonic()
        if not self._rows and (self._earlier.calls or self._earlier.evaluations):
            self._add(
                EARLIER, 0, "", state=SETTLED, cost_usd=self._earlier.cost_usd, output_tokens=self._earlier.tokens,
                gpu_seconds=self._earlier.gpu_seconds, note=f"{self._earlier.calls} {self._earlier.evaluations}",
            )  # fmt: skip

    # ------------------------------------------------------------------ requests

    def reserve_call(
        self, messages: Sequence[Message], max_tokens: int | None, provider: Provider, step: int = 0, agent: str = ""
    ) -> Limits:
        """The limits of the next call, such that even its longest answer stays within the budget. Its request is reserved.

        An answer is limited only where ``max_tokens`` or a budget of tokens or dollars asks for it: endpoints
        refuse a limit that is longer than their context.

        Raises:
            BudgetExceeded: there is not enough left for a useful answer.
        """
        prompt = sum(len(m.content.encode("utf-8", "replace")) for m in messages) // CHARACTERS_A_TOKEN
        requests = _Requests(self, prompt, provider, step, agent)
        allowed = requests.again(max_tokens)
        return Limits(allowed, self.seconds_left(), requests)

    def reserve_request(
        self, prompt: int, max_tokens: int | None, provider: Provider, step: int, agent: str
    ) -> tuple[LedgerRow, int | None]:
        """One row for a request, and the longest answer that it may ask for; raises what ``reserve_call`` does."""
        with self._lock:
            self._require("calls", 1)
            self.seconds_left()
            limited = self.budget.tokens is not None or self.budget.cost_usd is not None
            longest = LONGEST_ANSWER if max_tokens is None else max_tokens
            if limited:
                longest = self._affordable(prompt, longest, provider)
            row = self._add(
                REQUEST,
                step,
                agent,
                reserved_tokens=0 if provider.free else prompt + longest,
                reserved_usd=provider.price(prompt, longest),
            )
            return row, longest if limited else max_tokens

    def _affordable(self, prompt: int, longest: int, provider: Provider) -> int:
        spend = self.spend
        if self.budget.tokens is not None:
            longest = min(longest, self.budget.tokens - spend.tokens - prompt)
        if self.budget.cost_usd is not None:
            left = self.budget.cost_usd - spend.cost_usd
            while longest >= FEWEST_TOKENS and cost_of(provider, prompt, longest) > left:
                longest //= 2
        if longest < FEWEST_TOKENS:
            raise BudgetExceeded(f"The budget does not reach for another answer: {self.summary()}.")
        return longest

    def settle_request(self, row: LedgerRow, reply: Reply | None, note: str, sent: bool, seconds: float) -> None:
        """Settle a request. Without a reply's counts, or with impossible ones, the reserved amount counts."""
        with self._lock:
            if not sent:
                self._rows.remove(row)
                self._drop(row)
                return
            row.state, row.note, row.seconds = UNKNOWN, note[:2000], seconds
            if reply is not None:
                row.reasoning, row.priced_by, row.cost_usd = reply.reasoning, reply.priced_by, _amount(reply.cost_usd)
                counts = _apart(reply) or ((0, 0, 0, 0) if row.reserved_tokens == 0 else None)
                if counts is not None:
                    row.state = SETTLED
                    row.uncached_tokens, row.cached_tokens, row.reasoning_tokens, row.output_tokens = counts
            self._save(row)

    # ------------------------------------------------------------------ evaluations

    def reserve_evaluation(self, step: int = 0, rung: str = "", *, apart: bool = False) -> LedgerRow:
        """Room for one evaluation, that takes as long as the longest before it on its rung; ``apart``: it counts as none.

        Raises:
            BudgetExceeded: there is none.
        """
        with self._lock:
            longest = max(
                (row.gpu_seconds or 0.0 for row in self._rows if row.kind == EVALUATION and row.agent == rung),
                default=0.0,
            )
            if not apart:
                self._require("evaluations", 1)
            self._require("gpu_seconds", longest)
            self.seconds_left()
            return self._add(PROOF if apart else EVALUATION, step, rung, reserved_gpu_seconds=longest)

    def settle_evaluation(self, row: LedgerRow, seconds: float, *, gpu_seconds: float, note: str = "") -> None:
        """An evaluation came back, or failed. ``seconds`` have passed; of a device that is shared it took ``gpu_seconds``."""
        with self._lock:
            row.state, row.seconds, row.note = SETTLED, seconds, note
            row.gpu_seconds = gpu_seconds
            self._save(row)

    # ------------------------------------------------------------------ sums

    @property
    def spend(self) -> Spend:
        """What is spent, by the rows; for work in progress the reserved amount counts."""
        with self._lock:
            total = Spend(**asdict(self._earlier))
            for row in self._rows:
                if row.kind != EARLIER:
                    _count(total, row)
            total.wall_seconds = self._wall_s()
            return total

    def stored(self) -> dict[str, Any]:
        """The spend as the run's row holds it."""
        return asdict(self.spend)

    def summary(self) -> str:
        """What is spent of what is limited: ``calls 3 of 3, tokens 41200 of 50000``."""
        spent, limits = self.stored(), asdict(self.budget)
        return ", ".join(
            f"{name.replace('_', ' ')} {_short(spent[name])} of {_short(limit)}"
            for name, limit in limits.items()
            if limit is not None
        )

    def seconds_left(self) -> float | None:
        """Of the wall time; None without a limit.

        Raises:
            BudgetExceeded: nothing is left.
        """
        if self.budget.wall_seconds is None:
            return None
        left = self.budget.wall_seconds - self._wall_s()
        if left <= 0:
            raise BudgetExceeded(f"The budget is spent: {self.summary()}.")
        return left

    def _require(self, name: str, amount: float) -> None:
        limit, spent = getattr(self.budget, name), getattr(self.spend, name)
        if limit is not None and (spent + amount > limit or spent >= limit):
            raise BudgetExceeded(f"The budget is spent: {self.summary()}.")

    def _wall_s(self) -> float:
        return self._earlier_s + time.monotonic() - self._started

    def _add(self, kind: str, step: int, agent: str, **values: Any) -> LedgerRow:
        numbers = [row.number for row in self._rows]
        row = LedgerRow(
            **{
                "id": "", "run_id": self._run_id, "number": max(numbers, default=0) + 1, "step_number": step, "kind": kind,
                "agent": agent, "state": RESERVED, "priced_by": "", "wall_seconds": self._wall_s(), "note": "", "reasoning": "",
                "created_at": datetime.now(UTC).isoformat(), **values,
            }
        )  # fmt: skip
        self._save(row)
        self._rows.append(row)
        return row


class _Requests(Attempts):
    """The requests of one call, on a ledger."""

    def __init__(self, ledger: Ledger, prompt: int, provider: Provider, step: int, agent: str) -> None:
        self._ledger = ledger
        self._for = prompt, provider, step, agent
        self._open: LedgerRow | None = None
        self._begun = 0.0

    def settle(self, reply: Reply | None = None, note: str = "", *, sent: bool = True) -> None:
        if self._open is not None:
            self._ledger.settle_request(self._open, reply, note, sent, time.monotonic() - self._begun)
            self._open = None

    def again(self, max_tokens: int | None = None) -> int | None:
        self.settle()
        prompt, provider, step, agent = self._for
        self._open, allowed = self._ledger.reserve_request(prompt, max_tokens, provider, step, agent)
        self._begun = time.monotonic()
        return allowed


def cost_of(provider: Provider, prompt_tokens: int, completion_tokens: int) -> float:
    """Dollars that so many tokens cost.

    Raises:
        MsbenchError: the provider does not know.
    """
    cost = provider.price(prompt_tokens, completion_tokens)
    if cost is None:
        raise MsbenchError(f"A limit in dollars needs {provider.model}'s prices: give them with --price.")
    return cost


def _earlier(rows: Sequence[LedgerRow]) -> Spend:
    """What was spent before there were rows."""
    found = next((row for row in rows if row.kind == EARLIER), None)
    if found is None:
        return Spend()
    calls, evaluations = (int(number) for number in found.note.split())
    tokens = found.output_tokens or 0
    return Spend(found.cost_usd or 0.0, tokens, calls, evaluations, found.gpu_seconds or 0.0)


def _count(total: Spend, row: LedgerRow) -> None:
    total.evaluations += row.kind == EVALUATION
    total.gpu_seconds += (row.gpu_seconds if row.gpu_seconds is not None else row.reserved_gpu_seconds) or 0.0
    if row.kind != REQUEST:
        return
    total.calls += 1
    total.unknown += row.state == UNKNOWN
    total.cost_usd += (row.cost_usd if row.cost_usd is not None else row.reserved_usd) or 0.0
    kinds = ("uncached_tokens", "cached_tokens", "reasoning_tokens", "output_tokens")
    for kind in kinds:
        setattr(total, kind, getattr(total, kind) + (getattr(row, kind) or 0))
    known = row.state == SETTLED
    total.tokens += sum(getattr(row, kind) or 0 for kind in kinds) if known else row.reserved_tokens or 0


def _apart(reply: Reply) -> tuple[int, int, int, int] | None:
    """Uncached, cached, reasoning and output tokens; None where the counts are missing or impossible."""
    prompt, completion = reply.prompt_tokens, reply.completion_tokens
    if prompt is None or completion is None or prompt < 0 or completion < 0:
        return None
    cached = min(max(reply.cached_tokens or 0, 0), prompt)
    reasoning = min(max(reply.reasoning_tokens or 0, 0), completion)
    return prompt - cached, cached, reasoning, completion - reasoning


def _amount(dollars: float | None) -> float | None:
    return dollars if dollars is not None and dollars >= 0 else None


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
