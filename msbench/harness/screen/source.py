"""Screens a file's text for includes before anything is compiled."""

from __future__ import annotations

import re

from msbench.lexemes import LEXEME

_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_BLANK = r"[ \t\f\v\0]"  # what a directive's words may have between them
_INCLUDE = re.compile(rf"^{_BLANK}*#{_BLANK}*(?P<name>include|include_next|import|embed)\b(?P<rest>.*)$", re.MULTILINE)
_INCLUDED = re.compile(rf'{_BLANK}*(?:"([^"\n]+)"|<([^>\n]+)>)')
_TAKES_IN = re.compile(r"\.(?:incbin|include)\b")


def tricks(source: str) -> str | None:
    """What the file's text shows that it may not do, as the rest of a sentence that begins with "the file"."""
    spliced = _SPLICE.sub("", source)
    code = LEXEME.sub(lambda m: m[0] if m["comment"] is None else " " + "\n" * m[0].count("\n"), spliced)
    for directive in _INCLUDE.finditer(code):
        if trick := _included(directive["name"], directive["rest"]):
            return trick
    if found := _TAKES_IN.search(_strings(code)):
        return f"takes in another file ({found[0]} in an asm statement)"
    return None


def _included(name: str, rest: str) -> str | None:
    if name != "include":
        return f"takes in another file (#{name})"
    found = _INCLUDED.match(rest)
    if found is None:
        return "includes a file whose name a macro makes"
    path = found[1] or found[2]
    if path.startswith(("/", "~")) or ".." in path.split("/"):
        return f"includes a file from outside: {path}"
    return None


def _strings(text: str) -> str:
    """The strings' contents, adjacent ones joined as the compiler joins them."""
    joined, end = [], -1
    for found in LEXEME.finditer(text):
        held = found["string"] if found["string"] is not None else found["raw"]
        if held is None:
            continue
        if end < 0 or text[end : found.start()].strip():
            joined.append("\n")
        joined.append(held.replace(r"\n", "\n").replace(r"\t", "\t"))
        end = found.end()
    return "".join(joined)
