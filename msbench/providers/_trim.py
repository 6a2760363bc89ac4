"""Makes a prompt fit a small context window, dropping the least important parts first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from msbench.conversation import Message

_SECTION = re.compile(r"(?m)^# ")
_SPARE = ("# Helpers", "# What was tried")
CUT = "\n[... left out, as it does not fit the model's context ...]\n"


def trimmed(messages: Sequence[Message], longest: int) -> list[Message]:
    """``messages`` with at most ``longest`` bytes in all, as far as that can be: sections that can be spared are left out,
    then the middle of the longest message."""
    found = list(messages)
    for title in _SPARE:
        if size(found) <= longest:
            return found
        found = [replace(m, content=_without(m.content, title)) if m.role == "user" else m for m in found]
    while (over := size(found) - longest) > 0:
        at = max(range(len(found)), key=lambda i: len(found[i].content))
        text = found[at].content
        keep = max(len(text) - over - len(CUT), len(text) // 2)
        if keep <= 2 * len(CUT):
            return found
        found[at] = replace(found[at], content=text[: keep * 2 // 3] + CUT + text[len(text) - keep // 3 :])
    return found


def size(messages: Sequence[Message]) -> int:
    """Bytes of all messages."""
    return sum(len(m.content.encode("utf-8", "replace")) for m in messages)


def _without(text: str, title: str) -> str:
    starts = [match.start() for match in _SECTION.finditer(text)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=False):
        if text.startswith(title, start):
            return text[:start] + text[end:]
    return text
