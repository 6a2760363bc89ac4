"""What a reader is shown on a built site: numbers as they are printed, and each task's table of versions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.sitegen.dom import Node, parse, table

NUMBER = r"\d[\d\u202f]*(?:\.\d+)?(?:e[-+]\d+)?"
RATIO = re.compile(rf"({NUMBER})×")
ENDS = re.compile(rf"({NUMBER}) to ({NUMBER})")
DAY = re.compile(
    r"\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|December) \d{4}"
)
RIVALS = ("the fastest library call", "the reference implementation")


@dataclass(frozen=True)
class Shown:
    """A number as it is printed, and so by how much it may be off."""

    value: float
    unsure: float

    def agrees(self, other: Shown, slack: float = 0.0) -> bool:
        """Whether both may be the same number, rounded, to a further relative ``slack``."""
        return abs(self.value - other.value) <= self.unsure + other.unsure + slack * abs(self.value)


def number(text: str) -> Shown:
    """``1 230`` or ``1.94``, as printed."""
    plain = text.replace("\u202f", "")
    value, places = float(plain), len(plain.partition(".")[2])
    digits = 10.0 ** (math.floor(math.log10(abs(value))) - 2) if not places and abs(value) >= 1000 else 10.0**-places
    return Shown(value, 0.5 * digits * (1 + 1e-9))


def ratio(text: str) -> Shown | None:
    """The first ratio in a text."""
    found = RATIO.search(text)
    return number(found[1]) if found else None


def interval(text: str) -> tuple[float, float] | None:
    """The first interval in a text."""
    found = ENDS.search(text)
    return (number(found[1]).value, number(found[2]).value) if found else None


def days(text: str) -> list[datetime]:
    """The days that a text names."""
    return [datetime.strptime(one, "%d %B %Y") for one in DAY.findall(text)]


def said_of(sentence: str, whom: str) -> Shown | None:
    """How many times as fast as ``whom`` something is, by a sentence."""
    name = re.escape(whom)
    before = re.search(rf"({NUMBER})×(?: \([^)]*\))? as fast as {name}", sentence)
    after = re.search(rf"(?:as fast as|slower than) {name}[^;×]*?({NUMBER})×", sentence)
    found = before or after
    return number(found[1]) if found else None


@dataclass(frozen=True)
class Row:
    """A version in its task's table."""

    page: str
    name: str
    cells: dict[str, str]
    session: str
    apart: bool
    disagrees: bool


class Pages:
    """A site's pages, by their paths."""

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.rglob("*.html"))
        self.pages = {path.relative_to(folder).as_posix(): parse(path) for path in paths}
        self.rows: dict[str, Row] = {}
        self.tasks: dict[str, list[Row]] = {}
        self.verdicts: dict[str, str] = {}
        for page, node in self.of("op/"):
            for section in [one for one in node.all("section") if one.first(kind="verdict")]:
                self._read_task(page, section)

    def of(self, folder: str) -> list[tuple[str, Node]]:
        return [(page, node) for page, node in self.pages.items() if page.startswith(folder)]

    def _read_task(self, page: str, section: Node) -> None:
        verdict = section.first(kind="verdict")
        task = f"{page.removeprefix('op/').removesuffix('.html')}/{section.attributes.get('id', '')}"
        self.verdicts[task] = verdict.text if verdict else ""
        self.tasks[task] = []
        versions = [one for one in map(table, section.all("table")) if one.heads[:2] == ("version", "origin")]
        for row, cells in versions[0].rows if versions else ():
            link = cells[0].first("a")
            state = cells[versions[0].heads.index("state")].text
            texts = dict(zip(versions[0].heads, (cell.text for cell in cells), strict=False))
            session = row.attributes.get("data-session", texts.get("measured", ""))
            one = Row(page, cells[0].text, texts, session, "another session" in state, "sessions disagree" in state)
            self.tasks[task].append(one)
            if link is not None:
                self.rows[link.attributes["href"].removeprefix("../")] = one
