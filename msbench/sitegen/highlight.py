"""CUDA sources as lines of elements: the colours are the style sheet's, so light and dark share one HTML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from markupsafe import Markup, escape

Token = tuple[str, str]
"""The element that it becomes (empty for plain text) and its text, which never holds a line end."""
Line = tuple[Token, ...]
Span = tuple[int, int]
"""A half-open range of columns."""

_ELEMENTS = {
    **dict.fromkeys(("c", "c1", "cm", "ch", "cs"), "i"),
    **dict.fromkeys(("k", "kd", "kn", "kr", "kc", "kt", "ow", "nb"), "b"),
    **dict.fromkeys(("s", "s1", "s2", "sc", "se", "cpf"), "u"),
    **dict.fromkeys(("cp",), "em"),
}
"""The element that each of pygments' classes becomes: the style sheet colours comments, keywords, strings and directives. Elements
of one letter, because code is a fifth of the site."""
_FENCE = re.compile(r"^(```+|~~~+)[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_KERNEL_LANGUAGES = {"", "cuda", "cu", "c", "cpp", "c++", "h", "hpp", "cc"}


@lru_cache(maxsize=512)
def lines(source: str) -> tuple[Line, ...]:
    """The tokens of a CUDA source, line by line."""
    from pygments.lexers import CudaLexer
    from pygments.token import STANDARD_TYPES

    def css(kind: object) -> str:
        while kind is not None and kind not in STANDARD_TYPES:
            kind = getattr(kind, "parent", None)
        return str(STANDARD_TYPES.get(kind, "")) if kind is not None else ""

    found: list[Line] = []
    current: list[Token] = []
    for kind, text in CudaLexer(stripnl=False, ensurenl=False).get_tokens(source):
        name = _ELEMENTS.get(css(kind), "")
        for i, part in enumerate(text.split("\n")):
            if i:
                found.append(tuple(current))
                current = []
            if part:
                _add(current, (name, part))
    if current:
        found.append(tuple(current))
    return tuple(found)


def _add(line: list[Token], token: Token) -> None:
    """Append a token; one that becomes the same element as the one before it, blanks aside, is joined to that."""
    name, part = token
    blanks = line.pop()[1] if len(line) > 1 and line[-1][0] == "" and line[-1][1].isspace() else ""
    if line and line[-1][0] == name:
        line[-1] = (name, line[-1][1] + blanks + part)
    else:
        line += [("", blanks), token] if blanks else [token]


def text(line: Line) -> str:
    """The characters of a line."""
    return "".join(part for _, part in line)


def html(line: Line, marks: Sequence[Span] = ()) -> Markup:
    """One line as elements; the columns in ``marks`` (sorted, disjoint) stand in ``<mark>``."""
    if not marks:
        return Markup("".join(map(_element, line)))
    out: list[str] = []
    column = 0
    cuts = sorted({c for span in marks for c in span})
    for name, part in line:
        end = column + len(part)
        start = column
        for cut in [*(c for c in cuts if column < c < end), end]:
            piece = _element((name, part[start - column : cut - column]))
            if any(low <= start < high for low, high in marks):
                piece = f"<mark>{piece}</mark>"
            out.append(piece)
            start = cut
        column = end
    return Markup("".join(out).replace("</mark><mark>", ""))


@lru_cache(maxsize=1 << 14)
def _element(token: Token) -> str:
    name, plain = token
    piece = str(escape(plain))
    return f"<{name}>{piece}</{name}>" if name else piece


def code(source: str) -> Markup:
    """A whole source, numbered lines, for inside ``<pre>``; copying it leaves the numbers out."""
    return Markup("\n").join(Markup("<span>{}</span>").format(html(line)) for line in lines(source.rstrip("\n")))


def blocks(message: str) -> list[str]:
    """The code of a chat message's fenced blocks, without blanks around it, as ``prose`` looks it up elsewhere."""
    return [fence[3].strip() for fence in _FENCE.finditer(message)]


def prose(message: str, elsewhere: Mapping[str, Markup] | None = None) -> Markup:
    """A chat message: fenced blocks become highlighted code, the rest stays as written.

    ``elsewhere``: by source without blanks around it, a link in place of a block whose code has a page of its own.
    """
    out: list[Markup] = []
    at = 0
    for fence in _FENCE.finditer(message):
        out.append(_paragraphs(message[at : fence.start()]))
        body = fence[3].rstrip("\n")
        at = fence.end()
        if link := (elsewhere or {}).get(body.strip()):
            count = body.strip().count("\n") + 1
            out.append(Markup('<p class="elsewhere">{}, {} lines.</p>').format(link, count))
            continue
        kernel = fence[2].lower() in _KERNEL_LANGUAGES
        inner = Markup("\n").join(html(line) for line in lines(body)) if kernel else escape(body)
        out.append(Markup('<pre class="code" tabindex="0">{}</pre>').format(inner))
    out.append(_paragraphs(message[at:]))
    return Markup("").join(out)


def _paragraphs(plain: str) -> Markup:
    stripped = plain.strip("\n")
    return Markup('<div class="said">{}</div>').format(stripped) if stripped.strip() else Markup("")
