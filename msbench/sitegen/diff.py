"""Two sources side by side: which lines changed, and within a changed line, which characters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from msbench.sitegen import highlight
from msbench.sitegen.highlight import Span

CONTEXT = 3
"""Unchanged lines kept open around a change."""
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class DiffLine:
    """One line of one side: its number from 1, its HTML, and whether it is new (or gone). A block's lines follow each other."""

    number: int
    html: Markup
    changed: bool


@dataclass(frozen=True)
class Block:
    """Lines that belong together: ``kind`` is ``"equal"``, ``"folded"`` (equal, away from changes) or ``"change"``."""

    kind: str
    left: tuple[DiffLine, ...]
    right: tuple[DiffLine, ...]


@dataclass(frozen=True)
class Diff:
    """The way from one source to another."""

    blocks: tuple[Block, ...]
    added: int
    removed: int

    @property
    def same(self) -> bool:
        """Whether nothing changed."""
        return self.added == self.removed == 0


def diff(before: str, after: str) -> Diff:
    """Compare two sources line by line (trailing blanks and line ends don't count)."""
    left, right = highlight.lines(before.rstrip("\n")), highlight.lines(after.rstrip("\n"))
    texts = [highlight.text(line).rstrip() for line in left], [highlight.text(line).rstrip() for line in right]
    blocks: list[Block] = []
    added = removed = 0
    opcodes = difflib.SequenceMatcher(None, *texts, autojunk=False).get_opcodes()
    for kind, i1, i2, j1, j2 in opcodes:
        if kind == "equal":
            same = [
                (DiffLine(i + 1, highlight.html(left[i]), False), DiffLine(j + 1, highlight.html(right[j]), False))
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True)
            ]
            blocks += _fold(same, first=i1 == 0 and j1 == 0, last=i2 == len(left) and j2 == len(right))
            continue
        removed += i2 - i1
        added += j2 - j1
        marks = _pair_marks(texts[0][i1:i2], texts[1][j1:j2])
        blocks.append(
            Block(
                "change",
                tuple(DiffLine(i + 1, highlight.html(left[i], marks[0][i - i1]), True) for i in range(i1, i2)),
                tuple(DiffLine(j + 1, highlight.html(right[j], marks[1][j - j1]), True) for j in range(j1, j2)),
            )
        )
    return Diff(tuple(blocks), added, removed)


def _fold(same: list[tuple[DiffLine, DiffLine]], *, first: bool, last: bool) -> list[Block]:
    """Split unchanged lines into context, a folded middle, and context."""
    head = 0 if first else CONTEXT
    tail = 0 if last else CONTEXT
    if len(same) <= head + tail + 2:  # folding two lines saves nothing
        return [_block("equal", same)]
    parts = (("equal", same[:head]), ("folded", same[head : len(same) - tail]), ("equal", same[len(same) - tail :]))
    return [_block(kind, part) for kind, part in parts if part]


def _block(kind: str, same: Sequence[tuple[DiffLine, DiffLine]]) -> Block:
    return Block(kind, tuple(pair[0] for pair in same), tuple(pair[1] for pair in same))


def _pair_marks(before: list[str], after: list[str]) -> tuple[list[list[Span]], list[list[Span]]]:
    """The changed columns of lines that were edited in place; a line with no likeness opposite has no marks."""
    left: list[list[Span]] = [[] for _ in before]
    right: list[list[Span]] = [[] for _ in after]
    at = 0
    for i, old in enumerate(before):
        for j in range(at, min(len(after), at + 8)):  # a line moves a few lines at most within one change
            words = _WORD.findall(old), _WORD.findall(after[j])
            match = difflib.SequenceMatcher(None, *words, autojunk=False)
            if old.strip() and match.ratio() >= 0.6:
                left[i], right[j] = _columns(match, *words)
                at = j + 1
                break
    return left, right


def _columns(match: difflib.SequenceMatcher[str], old: list[str], new: list[str]) -> tuple[list[Span], list[Span]]:
    ends = _ends(old), _ends(new)
    spans: tuple[list[Span], list[Span]] = ([], [])
    for kind, i1, i2, j1, j2 in match.get_opcodes():
        if kind == "equal":
            continue
        for side, low, high in ((0, i1, i2), (1, j1, j2)):
            if high > low:
                spans[side].append((ends[side][low], ends[side][high]))
    return spans


def _ends(words: list[str]) -> list[int]:
    """Where each word starts, and where the last one ends."""
    at = [0]
    for word in words:
        at.append(at[-1] + len(word))
    return at
