"""The conversation behind a step, without saying anything twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from msbench.sitegen import format as fmt
from msbench.sitegen import highlight
from msbench.store.runs import Call
from msbench.store.tables import MessageRow

LONGEST = 24_000
"""Characters of one message that a page shows; the database has all of it."""


@dataclass(frozen=True)
class Said:
    """One message, ready for the page."""

    role: str
    agent: str
    size: str
    html: Markup


@dataclass(frozen=True)
class Exchange:
    """One call: what was new in its prompt, and the reply. ``continues``: the prompt's beginning stands further up."""

    number: int
    agent: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    seconds: float
    said: tuple[Said, ...]
    continues: bool


def exchanges(
    calls: Iterable[Call], seen: set[tuple[str, str]], elsewhere: Mapping[str, Markup]
) -> tuple[Exchange, ...]:
    """The calls in order; ``seen`` holds the (role, text) of what the page already shows, and is added to.

    ``elsewhere``: see ``highlight.prose``.
    """
    found = []
    for call in calls:
        new = [m for m in call.prompt if (m.role, m.content) not in seen]
        seen.update((m.role, m.content) for m in (*call.prompt, call.reply))
        row = call.row
        found.append(
            Exchange(
                row.number,
                row.agent,
                row.model,
                row.prompt_tokens,
                row.completion_tokens,
                row.cost_usd,
                row.seconds,
                tuple(_said(m, elsewhere) for m in (*new, call.reply)),
                len(new) < len(call.prompt),
            )
        )
    return tuple(found)


def _said(message: MessageRow, elsewhere: Mapping[str, Markup]) -> Said:
    text = message.content
    size = f"{fmt.count(len(text))} characters"
    if len(text) > LONGEST:
        text = text[:LONGEST]
        size += f", the first {fmt.count(LONGEST)} shown"
    return Said(message.role, message.agent, size, highlight.prose(text, elsewhere))
