"""Providers: how a language model is reached. One file each, named on the command line by ``--provider``."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

from msbench import plugins
from msbench.conversation import Limits, Message, Reply
from msbench.errors import UnknownNameError
from msbench.store.tables import CallRow, RunRow

AUTO = "auto"


class Provider(ABC):
    """What the engine asks of a provider; only :meth:`complete` has to be written.

    ``model`` is who answered, as the database and the site say. ``replay_of``: the run whose answers are given again.
    ``free``: nobody bills its answers, so that tokens which it does not count are none.
    """

    name: str
    model: str
    replay_of: str | None = None
    free: bool = False

    def begin(self, run_id: str, task_id: str, answered: Sequence[CallRow]) -> None:
        """A run starts, or continues after the calls that are already ``answered`` and stored."""
        return

    @abstractmethod
    def complete(self, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """The answer to a conversation that ends with a user's message. ``agent`` is who asks, say ``"coder"``.

        Raises:
            ReplyError: the answer is empty; the step fails, the run continues.
            ProviderUnavailable: no answer can be had; the run stops and can be resumed.
            WaitingForAnswer: a person has not answered yet; the run waits and can be resumed.
            RecordingEnded: a recording has no further answer; the run finishes with what it has.
        """

    def recording(self, task_id: str) -> RunRow | None:
        """The run whose answers will be given again for a task; a new run takes its settings. None for new answers."""
        return None

    def price(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """The cost of this many tokens in dollars; None if unknown."""
        return None

    def answer(self, place: str, agent: str, messages: Sequence[Message], limits: Limits) -> Reply:
        """``complete``, for who wants to know the ``place`` of the call in its run: ``"003"``, beside it ``"003b"``.

        Called from several threads at once if drafts are concurrent. Raises what :meth:`complete` does.
        """
        return self.complete(agent, messages, limits)

    def invitation(self, agent: str, place: str = "") -> str:
        """What a person has to do for the next answer to come; empty where a machine answers."""
        return ""

    def note(self) -> str:
        """What a reader of the run should know about its answers; empty for nothing."""
        return ""


def names() -> tuple[str, ...]:
    """What ``pick`` knows."""
    return (AUTO, *plugins.names(__name__))


def pick(name: str, **options: Any) -> Provider:
    """The provider called ``name``; ``auto`` is ``openai`` where a key or an endpoint is set, else ``replay``.

    Options, of which each provider takes those it knows: ``model``; ``base_url``, ``price`` (dollars per million prompt
    tokens, and per million completion tokens), ``timeout_s``, ``retries``; ``folder``, ``wait``; ``store``, ``run``.

    Raises:
        UnknownNameError: there is no such provider.
        ProviderUnavailable: it can't work here; the message says what it needs.
    """
    if name not in names():
        raise UnknownNameError("provider", name, names())
    if name == AUTO:
        name = "openai" if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL") else "replay"
    return cast(Provider, plugins.load(__name__, name, "provider").create(**options))
