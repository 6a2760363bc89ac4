"""What axe-core finds on the page that is open."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from tests.browser.reader import Reader

_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ["violations"]}).then(
  (found) => done(found.violations.flatMap((v) => v.nodes.map(
    (n) => `${v.id}: ${n.target.join(" ")}: ${n.any.concat(n.all, n.none).map((c) => c.message).join(", ") || v.help}`))),
  (error) => done([String(error)]));
"""


@cache
def _axe() -> str:
    return (files("selenium_axe_python") / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def findings(reader: Reader) -> list[str]:
    """Every rule of axe-core that the page breaks, as ``rule: element: why``; all that unfolds, and every tab, is open."""
    reader.js("for (const e of document.querySelectorAll('details')) e.open = true")
    reader.js("for (const e of document.querySelectorAll('[role=tabpanel]')) e.hidden = false")
    reader.js(_axe())
    return list(reader.window.execute_async_script(_RUN))
