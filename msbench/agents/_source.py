"""Reads C++ source as tokens: enough to tell code from comments, and one program from another."""

from __future__ import annotations

import re

from msbench.model import Candidate

_LEXEME = re.compile(
    r"""
      (?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string> (?:u8|[uUL])?R"(?P<d>[^()\\\s"]{0,16})\(.*?\)(?P=d)" | "(?:\\.|[^"\\\n])*" )
    | (?P<number> \.?\d(?:'?[\w.]|(?<=[eEpP])[+-])* )
    | (?P<char> '(?:\\.|[^'\\\n])*' )
    | (?P<word> [^\W\d]\w* )
    | (?P<newline> \n )
    | (?P<blank> [^\S\n]+ )
    | (?P<mark> <<<|>>>|\.\.\.|<<=|>>=|->\*|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\#\#|. )
    """,
    re.VERBOSE | re.DOTALL,
)

_BODY = re.compile(r"\s*(?:noexcept\s*)?\{")


def code_only(source: str) -> str:
    """``source`` with comments and the insides of literals blanked out; every other character keeps its place."""

    def blank(match: re.Match[str]) -> str:
        text = match[0]
        if match["comment"]:
            return re.sub(r"[^\n]", " ", text)
        if match["string"] or match["char"]:
            return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
        return text

    return _LEXEME.sub(blank, source)


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
    for i, c in enumerate(code):
        if c in "({":
            opened[")" if c == "(" else "}"].append(i)
        elif c in ")}" and opened[c]:
            found[opened[c].pop()] = i + 1
    return found


def balanced(code: str) -> bool:
    """Whether every brace of ``code`` (from :func:`code_only`) is closed."""
    depth = 0
    for c in code:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            return False
    return depth == 0


def launcher_end(code: str, operator: str) -> int | None:
    """Where the definition of ``operator``'s launcher ends in ``code`` (from :func:`code_only`).

    None without a definition: a prototype or a call is none. The length of ``code`` where its body stays open.
    """
    closings = _closings(code)
    for match in re.finditer(rf"\b{re.escape(operator)}\s*\(", code):
        end = closings.get(match.end() - 1)
        body = _BODY.match(code, end) if end is not None else None
        if body:
            return closings.get(body.end() - 1, len(code))
    return None
