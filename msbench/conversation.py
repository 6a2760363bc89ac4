"""What is said to a language model, and what it answers. Standard library only, as ``model.py``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One turn of a conversation. ``role`` is ``"system"``, ``"user"`` or ``"assistant"``."""

    role: str
    content: str


class Attempts:
    """The requests of one call, as they are counted. This one counts nothing; a run's ledger counts them.

    The first is reserved before the provider is asked. A provider that sends another one says with ``settle`` what became
    of the one before, and asks with ``again`` for the next.
    """

    def settle(self, reply: Reply | None = None, note: str = "", *, sent: bool = True) -> None:
        """The open request is over: with a reply's usage, with unknown usage, or it was never sent. Once for each."""

    def again(self, max_tokens: int | None = None) -> int | None:
        """Reserve another request for an answer of at most so many tokens; the tokens that the budget allows it.

        Raises:
            BudgetExceeded: there is no room for it.
        """
        return max_tokens


@dataclass(frozen=True)
class Limits:
    """What one call may use at most: tokens of the answer, and seconds until it is there (None: no limit of ours)."""

    max_tokens: int | None = None
    timeout_s: float | None = None
    attempts: Attempts = field(default_factory=Attempts)


@dataclass(frozen=True)
class Reply:
    """What a provider answered, and what that cost; None where the provider does not say.

    ``cached_tokens`` are part of ``prompt_tokens``, ``reasoning_tokens`` of ``completion_tokens``. ``priced_by`` says whose
    figure ``cost_usd`` is. ``reasoning`` is what the endpoint showed of it; it goes into no prompt.
    """

    text: str
    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    priced_by: str = ""
    reasoning: str = ""

    def __post_init__(self) -> None:
        for name in ("text", "model", "reasoning"):
            object.__setattr__(self, name, encodable(getattr(self, name)))


def encodable(text: str) -> str:
    """``text`` with U+FFFD for what UTF-8 can't encode: JSON can hold one half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
