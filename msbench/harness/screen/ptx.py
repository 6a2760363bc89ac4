"""Reads PTX as ptxas does: what is comment and text, and what declares a variable. What may be read in more than one way is not
read at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PIECE = re.compile(r'(?P<comment>//[^\n]*|/\*.*?\*/)|"(?P<text>[^"]*)"|(?P<odd>/\*|["\\#\']|@@)', re.DOTALL)
_BACKSLASH = "\\"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
_WORD = re.compile(r"[\w.:$%]+", re.ASCII)
_SPACE = re.compile(r"\.(?P<space>global|const)(?!\w)", re.ASCII)
_OPCODE = re.compile(
    r"(?:applypriority|atom|cp|createpolicy|cvta|discard|fence|isspacep|ldu?|multimem|prefetchu?|red|st|tensormap|wmma)"
    r"(?:(?:\.|::)\w+)*",
    re.ASCII,
)
"""What may stand before ``.global`` in one word with it, which is then no declaration. ptxas needs no blank before a directive:
``.align 0x4.global .u32 x;`` declares."""

_VARIABLE = re.compile(
    r"\s*(?:\.align\s+\d+\s*)?\.[bsuf](?P<bits>\d+)\s+(?P<name>[$\w]+)\s*(?:\[(?P<size>\d*)\]\s*)?(?:=[^;]*)?;",
    re.ASCII,
)
_LAST_NAME = re.compile(r"[^;{=]*?(?P<name>[$%\w]+)\s*(?:\[\d*\]\s*)*[;{=]", re.ASCII)
_BODY = re.compile(r"[^=\s]\s*\{")  # of the first function: until there a brace opens what a variable begins with


class UnreadableError(ValueError):
    """It is not certain what ptxas makes of it."""


@dataclass(frozen=True)
class Variable:
    """One declaration in ``space`` "global" or "const".

    ``size`` is in bytes, and None where it is not written as nvcc writes it. ``by_hand``: it stands where nvcc puts none.
    """

    space: str
    name: str
    size: int | None
    by_hand: bool


def without_comments(ptx: str) -> str:
    """The code alone: a blank for each comment, and for each text one that is empty.

    Raises:
        UnreadableError: where comments and texts end, or lines, depends on who reads it.
    """
    if found := _CONTROL.search(ptx):
        raise UnreadableError(f"the control character {ord(found[0]):#04x}")
    return _PIECE.sub(_plain, ptx)


def _plain(found: re.Match[str]) -> str:
    if found["odd"] in ("/*", '"'):
        raise UnreadableError(f"a {found['odd']} that nothing ends")
    if found["odd"] or _BACKSLASH in (found["text"] or ""):
        raise UnreadableError(f"a {found['odd'] or _BACKSLASH} outside comments")
    return " " if found["comment"] else '""'


def variables(code: str) -> Iterator[Variable]:
    """Each variable of a text ``without_comments``, wherever it is declared."""
    body = _BODY.search(code)
    before = ""
    for word in _WORD.finditer(code):
        for found in _SPACE.finditer(word[0]):
            suffix = _OPCODE.fullmatch(word[0], 0, found.start()) is not None
            if not suffix and (before != ".ptr" or found.start()):
                at = word.start() + found.end()
                yield _declared(code, at, found["space"], by_hand=body is not None and at > body.end())
        before = word[0]


def _declared(code: str, at: int, space: str, by_hand: bool) -> Variable:
    if found := _VARIABLE.match(code, at):
        return Variable(space, found["name"], int(found["bits"]) // 8 * int(found["size"] or 1), by_hand)
    loose = _LAST_NAME.match(code, at)
    return Variable(space, loose["name"] if loose else "of an asm statement", None, by_hand)
