"""What is said to a language model, and what it answers. Standard library only, as ``model.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One turn of a conversation. ``role`` is ``"system"``, ``"user"`` or ``"assistant"``."""

    role: str
    content: str


@dataclass(frozen=True)
class Limits:
    """What one call may use at most: tokens of the answer, and seconds until it is there (None: no limit of ours)."""

    max_tokens: int | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Reply:
    """What a provider answered, and what that cost; None where the provider does not say."""

    text: str
    model: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
