"""What the project says of itself is one thing everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import msbench

ROOT = Path(__file__).parent.parent


def test_the_citation_names_the_version() -> None:
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited is not None
    assert cited[1] == msbench.__version__


def test_every_page_of_the_docs_that_is_linked_exists() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
