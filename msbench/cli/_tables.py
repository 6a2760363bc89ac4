"""Tables that are printed and written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table


@dataclass(frozen=True)
class Part:
    """One table, as it is printed and written."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def table(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        for number, name in enumerate(self.head):
            table.add_column(name, justify="left" if number < 2 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        return "\n".join([f"## {self.title}\n", *(f"| {' | '.join(line)} |" for line in lines)]) + "\n"
