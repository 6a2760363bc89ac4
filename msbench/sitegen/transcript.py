"""The conversation behind a step, without saying anything twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from msbench.sitegen import format as fmt
from msbench.sitegen import highlight
from msbench.store.runs import Call
from msbench.store.tables import MessageRow

LONGEST = 48_000
"""Characters of one message that a page shows; the database has all of it."""

WORTH_A_REFERENCE = 200
"""Characters from which a section that stands further up is named and not repeated."""

_SECTION = re.compile(r"^(?=# )", re.MULTILINE)


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


Sections = dict[str, tuple[int, int]]
"""What a prompt's section says, and in which step's call it stands first."""


def exchanges(
    calls: Iterable[Call], seen: set[tuple[str, str]], elsewhere: Mapping[str, Markup], sections: Sections
) -> tuple[Exchange, ...]:
    """The calls in order; ``seen`` holds the (role, text) of what is shown already, ``sections`` likewise. Both are added to.

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
                (
                    *(_said(m, elsewhere, sections, (row.step_number, row.number)) for m in new),
                    _said(call.reply, elsewhere),
                ),
                len(new) < len(call.prompt),
            )
        )
    return tuple(found)


def _said(
    message: MessageRow,
    elsewhere: Mapping[str, Markup],
    sections: Sections | None = None,
    call: tuple[int, int] = (0, 0),
) -> Said:
    text = message.content
    size = f"{fmt.count(len(text))} characters"
    if sections is not None:
        text = _without_repeats(text, sections, call, elsewhere)
    if len(text) > LONGEST:
        text = text[:LONGEST]
        size += f", the first {fmt.count(LONGEST)} shown"
    return Said(message.role, message.agent, size, highlight.prose(text, elsewhere))


def bodies(prompt: str) -> list[str]:
    """What a prompt's sections say below their headings, of those without code."""
    found = (section.partition("\n")[2].strip() for section in _SECTION.split(prompt)[1:])
    return [body for body in found if "```" not in body]


def _without_repeats(prompt: str, sections: Sections, call: tuple[int, int], elsewhere: Mapping[str, Markup]) -> str:
    """The prompt, with sections that stand in an earlier call's only named; those of this one are added.

    What stands ``elsewhere`` becomes a block, which ``highlight.prose`` replaces by a link.
    """
    parts = []
    for section in _SECTION.split(prompt):
        heading, _, body = section.partition("\n")
        known = sections.setdefault(section.strip(), call)
        whole = section.count("```") % 2 == 0  # else it ends within code that a line like a heading is part of
        if known != call and whole and len(body) >= WORTH_A_REFERENCE:
            where = f"call {known[1]}" + (f" of step {known[0]}" if known[0] != call[0] else "")
            parts.append(f"{heading}\n\n[as in {where}]\n\n")
        elif body.strip() in elsewhere:
            parts.append(f"{heading}\n\n```\n{body.strip()}\n```\n")
        else:
            parts.append(section)
    return "".join(parts)
