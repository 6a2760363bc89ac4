"""The lexemes of C++, to tell code from comments and literals."""

from __future__ import annotations

import re
from collections.abc import Iterator

LEXEME = re.compile(
    r"""
      (?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=mark)"
    | (?:u8|[uUL])?"(?P<string>(?:[^"\\\n]|\\.)*)"
    | (?:u8|[uUL])?'(?P<char>(?:[^'\\\n]|\\.)+)'
    | (?P<word> [^\W\d]\w* )
    | (?P<number> \.?\d(?:[eEpP][+-]|'?[\w.])* )
    | (?P<newline> \n )
    | (?P<blank> [^\S\n]+ )
    | (?P<operator> <<<|>>>|\.\.\.|<<=|>>=|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|. )
    """,
    re.VERBOSE | re.DOTALL,
)
"""One of them; any text is a row of these. Of a literal the group holds what is between its quotes. A quote that is not closed in its
line is an operator, as it is no literal to a compiler."""


def code(source: str) -> Iterator[re.Match[str]]:
    """Those that are neither comment nor space."""
    return (found for found in LEXEME.finditer(source) if found.lastgroup not in ("comment", "newline", "blank"))


def is_literal(found: re.Match[str]) -> bool:
    """Whether it is a string or a character."""
    return found.lastgroup in ("raw", "string", "char")
