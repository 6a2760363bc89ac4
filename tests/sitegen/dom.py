"""HTML as a tree, for tests that read what a reader sees: the standard library has a parser, but no tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_UNSEEN = {"script", "style", "template", "head"}
_BLOCKS = {"p", "div", "li", "tr", "td", "th", "dt", "dd", "h1", "h2", "h3", "small", "summary", "caption", "br"}


_CELLS = frozenset({"td", "th"})
_TERMS = frozenset({"dt", "dd"})
_PARTS = frozenset({"tbody", "thead"})
ENDED_BY = {
    **dict.fromkeys(_CELLS, _CELLS),
    **dict.fromkeys(_TERMS, _TERMS),
    "tr": _CELLS | {"tr"},
    **dict.fromkeys(_PARTS, _CELLS | {"tr"} | _PARTS),
}
"""By an element's tag, those that HTML lets end where it begins; all of them may also end with what they are in."""
OPTIONAL_ENDS = _CELLS | _TERMS | _PARTS | {"tr"}


@dataclass
class Node:
    """One element; ``children`` are elements and texts."""

    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    children: list[Node | str] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Itself and every element in it, in the document's order."""
        following = [self]
        while following:
            node = following.pop()
            yield node
            following += [child for child in reversed(node.children) if isinstance(child, Node)]

    def all(self, tag: str = "", kind: str = "", **attributes: str) -> list[Node]:
        """The elements of a tag, a class and attributes (``data_run`` for ``data-run``); "" stands for any."""
        return list(self._found(tag, kind, attributes))

    def _found(self, tag: str, kind: str, attributes: dict[str, str]) -> Iterator[Node]:
        wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
        for node in self.walk():
            if (
                (not tag or tag == node.tag)
                and (not kind or kind in node.attributes.get("class", "").split())
                and all(
                    name in node.attributes and value in ("", node.attributes[name]) for name, value in wanted.items()
                )
            ):
                yield node

    def first(self, tag: str = "", kind: str = "", **attributes: str) -> Node | None:
        """The first of ``all``."""
        return next(self._found(tag, kind, attributes), None)

    @property
    def raw(self) -> str:
        """All text in it, scripts included."""
        return "".join(child if isinstance(child, str) else child.raw for child in self.children)

    @property
    def text(self) -> str:
        """What a reader sees of it, with single blanks."""
        return re.sub(r"[ \n\t]+", " ", self._seen()).strip()

    def _seen(self) -> str:
        if self.tag in _UNSEEN:
            return " "
        inner = "".join(child if isinstance(child, str) else child._seen() for child in self.children)
        return f" {inner} " if self.tag in _BLOCKS else inner


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Node("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        while self.at.tag in ENDED_BY.get(tag, ()) and self.at.parent is not None:
            self.at = self.at.parent
        node = Node(tag, {name: value or "" for name, value in attrs}, self.at)
        self.at.children.append(node)
        if tag not in _VOID:
            self.at = node

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self.at
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self.at = node.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def parse(page: Path | str) -> Node:
    """A page: its file, or its text."""
    builder = _Builder()
    builder.feed(page if isinstance(page, str) else page.read_text(encoding="utf-8"))
    return builder.root


@dataclass(frozen=True)
class Table:
    """A table's heads, and its rows as elements and as their cells."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Node, tuple[Node, ...]], ...]

    def cell(self, row: tuple[Node, ...], *heads: str) -> Node | None:
        """The cell below the first of some heads that the table has."""
        place = next((self.heads.index(head) for head in heads if head in self.heads), None)
        return row[place] if place is not None and place < len(row) else None


def table(node: Node) -> Table:
    """A ``table`` element, without rows that head a group."""
    heads = tuple(cell.text for cell in (node.first("thead") or node).all("th"))
    rows = [
        row for body in node.all("tbody") for row in body.all("tr") if "group" not in row.attributes.get("class", "")
    ]
    return Table(heads, tuple((row, tuple(c for c in row.children if isinstance(c, Node))) for row in rows))
