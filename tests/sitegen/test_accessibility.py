"""axe-core finds nothing on a page of any type, in either theme, at either width, with everything unfolded."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests import turns
from tests.browser.accessibility import findings
from tests.browser.look import LOOKS, page_types
from tests.browser.reader import Reader

pytestmark = pytest.mark.browser


@pytest.fixture
def reader(chromium: Any, built: Path) -> Reader:
    return Reader(chromium, built)


@pytest.mark.parametrize("look", turns.share([*LOOKS]))
def test_axe_core_finds_nothing(reader: Reader, built: Path, look: str) -> None:
    width, dark = LOOKS[look]
    reader.screen(width, dark=dark)
    types = page_types(built)
    assert set(types) == {"index", "how", "method", "op", "run", "conversation", "version"}
    for page in chain.from_iterable(types.values()):
        reader.open(page)
        reader.draw_all()
        assert (page, findings(reader)) == (page, [])


def test_axe_core_finds_what_is_wrong(reader: Reader) -> None:
    """So that an empty report means something."""
    reader.screen(1280)
    reader.open("index.html")
    reader.js("document.querySelector('h1').outerHTML = '<h4 style=\"color: #999\">Pale</h4><img src=\"x\">'")
    rules = {one.partition(":")[0] for one in findings(reader)}
    assert {"color-contrast", "image-alt", "page-has-heading-one"} <= rules
