"""HTML without the bytes that a browser does without: blanks between elements, and ends of tags that HTML lets out."""

from __future__ import annotations

import re

_AS_WRITTEN = re.compile(r"(<pre\b.*?</pre>|<script\b.*?</script>|<svg\b.*?</svg>)", re.DOTALL)
_BLANKS = re.compile(r">\s*\n\s*<")
_BETWEEN_CELLS = re.compile(r"\s*\n\s*(?=</?(?:t[dhr]|thead|tbody|table|caption)\b)")
_ENDS = re.compile(r"</(?:t[dhr]|thead|tbody|d[dt])>")
"""Optional where another cell, row, term or part of the table follows, or the table or list ends: so always."""
_TAGS = re.compile(r"(<[a-z][^>]*>)")
_QUOTES = re.compile(r' ([a-z-]+)="([^\s"\'=<>`&]*[^\s"\'=<>`&/])"(?!/)')
"""Needless where a value has no blanks and none of a few signs; a slash at its end, or after it, may be what ends its tag."""


def lean(html: str) -> str:
    """The same document in fewer bytes. What ``pre``, ``script`` and ``svg`` say stays as it is."""
    parts = _AS_WRITTEN.split(html)
    parts[::2] = map(_squeezed, parts[::2])
    parts[1::2] = [_unquoted(part) if part.startswith("<pre") else part for part in parts[1::2]]
    return "".join(parts)


def _squeezed(html: str) -> str:
    for pattern, by in ((_BLANKS, ">\n<"), (_BETWEEN_CELLS, ""), (_ENDS, "")):
        html = pattern.sub(by, html)
    return _unquoted(html)


def _unquoted(html: str) -> str:
    """Without quotes in tags, as far as they are needless, and with quotes as they are in texts, where they need no escape."""
    parts = _TAGS.split(html)
    parts[::2] = [text.replace("&#34;", '"').replace("&#39;", "'") for text in parts[::2]]
    parts[1::2] = [_QUOTES.sub(r" \1=\2", tag) for tag in parts[1::2]]
    return "".join(parts)
