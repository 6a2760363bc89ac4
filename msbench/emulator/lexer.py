"""Cuts CUDA C++ into tokens: just enough to find launches, shared variables and inline PTX, never fooled by comments or strings.

Bodies of ``#define`` are cut like code, since launches may stand in them; other directives are skipped. The lexer never
fails: what is not C++ becomes tokens that the compiler will complain about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

_SPACE = re.compile(r"(?:\s|\\\n)+")
_COMMENT = re.compile(r"//(?:[^\n\\]|\\.|\\\n)*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_RAW_STRING = re.compile(r'(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(')
_STRING = re.compile(r'(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"?', re.DOTALL)
_CHARACTER = re.compile(r"(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?", re.DOTALL)
_WORD = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"\.?\d(?:[eEpP][+-]|'?[\w.])*")
_PUNCTUATION = re.compile(r"<<<|::|->|##|\.\.\.|.", re.DOTALL)
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
    if found := _RAW_STRING.match(source, position):
        closing = f'){found["mark"]}"'
        end = source.find(closing, found.end())
        return Kind.STRING, len(source) if end < 0 else end + len(closing)
    for pattern, kind in (
        (_STRING, Kind.STRING),
        (_CHARACTER, Kind.STRING),
        (_WORD, Kind.WORD),
        (_NUMBER, Kind.NUMBER),
        (_PUNCTUATION, Kind.PUNCTUATION),
    ):
        if found := pattern.match(source, position):
            return kind, found.end()
    raise AssertionError("a character that is neither space nor token")


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"(?P<local>[^"\n]+)"|<(?P<system>[^>\n]+)>)', re.MULTILINE)


def includes(source: str) -> list[str]:
    """The names that a file includes, also those in comments: a name too many does no harm."""
    return [found["local"] or found["system"] for found in _INCLUDE.finditer(source)]
