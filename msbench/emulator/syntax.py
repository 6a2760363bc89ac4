"""Questions about a token list: matching brackets, the scopes around a token, where a statement begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from msbench.emulator.lexer import Kind, Token, tokens

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = {closing: opening for opening, closing in _OPENING.items()}


class NotUnderstood(Exception):
    """The tokens are not what the caller expected; the compiler will say what is wrong with them."""


@dataclass(frozen=True)
class Edit:
    """Replace ``source[start:end]`` by ``text``, which holds no line break: line numbers stay."""

    start: int
    end: int
    text: str


class SourceFile:
    """A file's text and tokens. ``name`` is what messages call it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tokens: Sequence[Token] = tokens(text)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, c in enumerate(self.text) if c == "\n")]

    def line(self, index: int) -> int:
        """The line number, from 1, of token ``index``."""
        return bisect_right(self._line_starts, self.tokens[index].start)

    def is_(self, index: int, *texts: str) -> bool:
        """Whether token ``index`` exists and is one of these words or punctuators."""
        return (
            0 <= index < len(self.tokens)
            and self.tokens[index].kind != Kind.STRING
            and self.tokens[index].text in texts
        )

    @cached_property
    def _partners(self) -> dict[int, int]:
        partners: dict[int, int] = {}
        open_: list[int] = []
        for i, token in enumerate(self.tokens):
            if token.kind != Kind.PUNCTUATION:
                continue
            if token.text in _OPENING:
                open_.append(i)
            elif token.text in _CLOSING and open_ and self.tokens[open_[-1]].text == _CLOSING[token.text]:
                partners[i] = open_.pop()
                partners[partners[i]] = i
        return partners

    def partner(self, index: int) -> int:
        """The bracket that belongs to bracket ``index``."""
        if index not in self._partners:
            raise NotUnderstood("an unbalanced bracket")
        return self._partners[index]

    @cached_property
    def _scopes(self) -> list[tuple[int, ...]]:
        """For each token the indices of the braces that are open there."""
        scopes: list[tuple[int, ...]] = []
        current: tuple[int, ...] = ()
        for i, token in enumerate(self.tokens):
            if token.kind == Kind.PUNCTUATION and token.text == "}" and i in self._partners:
                current = current[:-1]
            scopes.append(current)
            if token.kind == Kind.PUNCTUATION and token.text == "{" and i in self._partners:
                current = (*current, i)
        return scopes

    def scope(self, index: int) -> int | None:
        """The opening brace of the innermost block that token ``index`` is in."""
        return self._scopes[index][-1] if self._scopes[index] else None

    def header(self, brace: int) -> range:
        """The tokens that introduce an opening brace: a function's signature, ``struct X``, ``namespace x``."""
        return range(self.statement_start(brace), brace)

    def statement_start(self, index: int) -> int:
        """The first token of the statement or declaration that token ``index`` is in."""
        i = index
        while (
            i > 0 and not self.is_(i - 1, ";", "{", "}", ":") and self.tokens[i - 1].macro == self.tokens[index].macro
        ):
            if self.is_(i - 1, ")", "]"):
                i = self.partner(i - 1)
            else:
                i -= 1
        return i

    def statement_end(self, index: int) -> int:
        """The semicolon that ends the statement that token ``index`` is in."""
        i = index
        while i < len(self.tokens) and not self.is_(i, ";"):
            if self.is_(i, "}", ")", "]"):
                break
            i = self.partner(i) + 1 if self.is_(i, "(", "[", "{") else i + 1
        if not self.is_(i, ";"):
            raise NotUnderstood("a declaration without its semicolon")
        return i

    def in_function(self, index: int) -> bool:
        """Whether a token stands in a function's body."""
        if self.tokens[index].macro:
            return True
        return any(self._is_body(brace) for brace in self._scopes[index])

    def in_device_code(self, index: int) -> bool:
        """Whether a token stands in a ``__device__`` or ``__global__`` function (or lambda); a macro's body may."""
        if self.tokens[index].macro:
            return True
        return any(self.is_(i, "__device__", "__global__") for brace in self._scopes[index] for i in self.header(brace))

    def _is_body(self, brace: int) -> bool:
        header = self.header(brace)
        if any(self.is_(i, "namespace") for i in header) or (
            len(header) and self.is_(header[0], "extern") and len(header) == 2
        ):
            return False
        return any(self.is_(i, "(", ")") for i in header) or self.is_(brace - 1, "else", "do", "try")

    def arguments(self, opening: int, closing: int) -> list[range]:
        """The comma-separated parts between two brackets, which may be angle brackets."""
        parts: list[range] = []
        start, i, angles = opening + 1, opening + 1, 0
        while i < closing:
            if self.is_(i, "(", "[", "{"):
                i = self.partner(i)
            elif self.is_(i, "<"):
                angles += 1
            elif self.is_(i, ">"):
                angles -= 1
            elif self.is_(i, ",") and angles <= 0:
                parts.append(range(start, i))
                start = i + 1
            i += 1
        if start < closing:
            parts.append(range(start, closing))
        return parts

    def angle_before(self, closing: int) -> int:
        """The ``<`` that belongs to the ``>`` at ``closing``, walking back."""
        depth, i = 0, closing
        while i >= 0:
            if self.is_(i, ")", "]", "}"):
                i = self.partner(i)
            elif self.is_(i, ">"):
                depth += 1
            elif self.is_(i, "<"):
                depth -= 1
                if depth == 0:
                    return i
            elif self.is_(i, ";", "{"):
                break
            i -= 1
        raise NotUnderstood("a '>' without its '<'")

    def source_of(self, indices: Iterable[int]) -> str:
        """These tokens' text, separated by single blanks."""
        return " ".join(self.tokens[i].text for i in indices)
