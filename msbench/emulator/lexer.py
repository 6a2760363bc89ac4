"""Cuts CUDA C++ into tokens: just enough to find launches, shared variables and inline PTX, never fooled by comments or strings.

Bodies of ``#define`` are cut like code, since launches may stand in them; other directives are skipped. The lexer never
fails: what is not C++ becomes tokens that the compiler will complain about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from msbench.lexemes import LEXEME, is_literal

_SPACE = re.compile(r"(?:\s|\\\n)+")
_COMMENT = re.compile(r"//(?:[^\n\\]|\\.|\\\n)*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WHOLE = ("<<<", "::", "->", "##", "...")  # operators that are one token; of others each character is one
_DIRECTIVE = re.compile(r"#[ \t]*(?P<name>\w*)")
_DEFINED = re.compile(r"[ \t]*\w+(?:\([^)\n]*\))?")
_LINE_REST = re.compile(r"(?:/\*.*?(?:\*/|\Z)|\\\n|[^\n])*", re.DOTALL)


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    NUMBER = auto()
    STRING = auto()
    PUNCTUATION = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token and where it is in the source; ``macro``: it stands in the body of a ``#define``."""

    kind: Kind
    text: str
    start: int
    end: int
    macro: bool


def tokens(source: str) -> list[Token]:
    """All tokens of a file."""
    return list(_scan(source))


def _scan(source: str) -> Iterator[Token]:
    position, line_start, macro_end = 0, True, -1
    while position < len(source):
        if macro_end >= 0 and position >= macro_end:
            macro_end = -1
        macro = macro_end >= 0
        if found := _SPACE.match(source, position, macro_end if macro else len(source)):
            line_start = line_start or "\n" in found[0]
            position = found.end()
        elif found := _COMMENT.match(source, position):
            position = found.end()
        elif line_start and not macro and (found := _DIRECTIVE.match(source, position)):
            rest = _LINE_REST.match(source, position)
            assert rest is not None
            position = rest.end()
            if found["name"] == "define":
                name = _DEFINED.match(source, found.end())
                macro_end, position = position, name.end() if name else position
        else:
            line_start = False
            kind, end = _token(source, position)
            yield Token(kind, source[position:end], position, end, macro)
            position = end


def _token(source: str, position: int) -> tuple[Kind, int]:
    found = LEXEME.match(source, position)
    assert found is not None
    if is_literal(found):
        return Kind.STRING, found.end()
    if found["operator"] is None:
        return Kind.WORD if found["word"] is not None else Kind.NUMBER, found.end()
    whole = next((one for one in _WHOLE if found[0].startswith(one)), found[0][0])
    return Kind.PUNCTUATION, position + len(whole)


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"(?P<local>[^"\n]+)"|<(?P<system>[^>\n]+)>)', re.MULTILINE)


def includes(source: str) -> list[str]:
    """The names that a file includes, also those in comments: a name too many does no harm."""
    return [found["local"] or found["system"] for found in _INCLUDE.finditer(source)]
