"""Reads C++ source as tokens: enough to tell code from comments, and one program from another."""

from __future__ import annotations

import re
from functools import lru_cache

from msbench.model import Candidate

_LITERAL = r"""
      (?P<comment> //[^\n]*+ | /\*(?:.*?\*/|.*+) )
    | (?P<string> (?:\b(?:u8|[uUL])?R"(?P<d>[^()\\\s"]{0,16}+)\((?:.*?\)(?P=d)"|.*+)) | "(?:\\.|[^"\\\n])*+"? )
    | (?P<number> \.?\d(?:'?[\w.]|(?<=[eEpP])[+-])*+ )
    | (?P<char> '(?:\\.|[^'\\\n])*+'? )
    | (?P<word> [^\W\d]\w*+ )
"""
_LEXEME = re.compile(
    _LITERAL
    + r"""
    | (?P<newline> \n )
    | (?P<blank> [^\S\n]++ )
    | (?P<mark> <<<|>>>|\.\.\.|<<=|>>=|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|. )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Every alternative takes what it can and gives nothing back, so that any text is read in one pass: a literal or a comment
that is not closed goes on to the end, of the line or of the text."""

_BLANKED = re.compile(_LITERAL, re.VERBOSE | re.DOTALL)
_BODY = re.compile(r"\s*+(?:noexcept\s*+)?\{")
_BRACKETS = re.compile(r"[(){}]")


@lru_cache(maxsize=32)
def code_only(source: str) -> str:
    """``source`` with comments and the insides of literals blanked out; every other character keeps its place."""
    parts: list[str] = []
    at = 0
    for match in _BLANKED.finditer(source):
        if match.lastgroup in ("number", "word"):
            continue
        text = match[0]
        parts.append(source[at : match.start()])
        at = match.end()
        if match["comment"] is not None:
            parts.append(_blank(text))
        else:
            closed = len(text) > 1 and text[-1] == text[0]
            parts.append(text[0] + _blank(text[1:-1] if closed else text[1:]) + (text[-1] if closed else ""))
    return "".join([*parts, source[at:]])


def program(source: str) -> str:
    """``source`` without comments and blanks, literals as they are: equal for texts that are the same program."""
    return "".join(
        _BLANKED.sub(lambda match: " " if match["comment"] is not None else match[0], source).split()
    )  # fmt: skip


def _blank(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


def token_form(candidate: Candidate) -> str:
    """The candidate without comments and layout: equal for two sources that compile to the same program.

    Directives (``// msbench: link cublas``) count, as they change the build.
    """
    tokens: list[str] = []
    directive = False
    for match in _LEXEME.finditer(candidate.source.replace("\\\n", " ")):
        if match["newline"]:
            if directive:
                tokens.append("\n")
            directive = False
        elif not match["comment"] and not match["blank"]:
            if match[0] == "#" and not directive:
                directive = True
                tokens.append("\n")
            tokens.append(match[0])
    notes = "".join(f"{name} {' '.join(values)}\n" for name, values in sorted(candidate.directives.items()))
    return notes + " ".join(tokens)


def _closings(code: str) -> dict[int, int]:
    """The index just after its counterpart, for every bracket that is closed. Parentheses and braces count apart."""
    found: dict[int, int] = {}
    opened: dict[str, list[int]] = {")": [], "}": []}
    for match in _BRACKETS.finditer(code):
        c, i = match[0], match.start()
        if c in "({":
            opened[")" if c == "(" else "}"].append(i)
        elif opened[c]:
            found[opened[c].pop()] = i + 1
    return found


def balanced(code: str) -> bool:
    """Whether every brace of ``code`` (from :func:`code_only`) is closed."""
    depth = 0
    for c in re.findall(r"[{}]", code):
        depth += 1 if c == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def launcher_end(code: str, operator: str) -> int | None:
    """Where the definition of ``operator``'s launcher ends in ``code`` (from :func:`code_only`).

    None without a definition: a prototype or a call is none. The length of ``code`` where its body stays open.
    """
    if operator not in code:
        return None
    closings = _closings(code)
    for match in re.finditer(rf"\b{re.escape(operator)}\s*+\(", code):
        end = closings.get(match.end() - 1)
        body = _BODY.match(code, end) if end is not None else None
        if body:
            return closings.get(body.end() - 1, len(code))
    return None
