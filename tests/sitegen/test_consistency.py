"""The published site contradicts itself nowhere; and what used to be there is found by the same check."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import turns
from tests.sitegen.truth import complaints

CHECKOUT = Path(__file__).parents[2]
RUN, SOFTMAX, STEP = "run/28955143a6e84cf5ae6f940610a357d7.html", "op/softmax.html", "version/810e6ef00b3c.html"


@pytest.fixture
def published() -> Path:
    """The site as it is published."""
    return CHECKOUT / "site"


@turns.costly
def test_no_page_of_the_published_site_contradicts_another(published: Path) -> None:
    assert complaints(published) == []


def test_no_page_of_the_showcase_contradicts_another(built: Path) -> None:
    assert complaints(built) == []


def _first(pattern: str, instead: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, instead, text, count=1, flags=re.DOTALL)
        assert count, pattern
        return changed

    return change


@pytest.mark.parametrize(
    ("page", "change", "said"),
    [
        (SOFTMAX, _first(r"is \d+\.\d× \(", "is 99.9× ("), "the sentence has 99.9× the naive kernel"),
        (SOFTMAX, _first(r" \(\d[^)]*\) as fast", " as fast"), "a ratio has no interval"),
        ("op/fft.html", _first(r'\s<span class="tag warn"[^>]*>another session</span>', ""), "sessions are ranked in one column"),
        (SOFTMAX, _first(r"shipped as best", "best (123456)"), "a version is called best (123456), which is not the best"),
        (SOFTMAX, _first(r"(%\{text\}[^<]*)<br>\d+ \w+ 2026", r"\1"), "have no day of their own"),
        (SOFTMAX, _first(r"(<figcaption>.*?) on \d+ (\w+)", r"\1 on 1 \2"), "its caption names other days"),
        ("op/rope.html", _first(r"<td>reference implementation", "<td>library"), "straightforward is called a library"),
        (RUN, _first(r"(to hold; measured [^:]*: <b[^>]*>)\w[\w ]*", r"\1did not hold"), "its prediction did not hold, but"),
        (RUN, _first(r"(verdict>[^<]*The best is )[\d.]+×", r"\g<1>91.2×"), "91.2× where it started"),
        (RUN, _first(r"(<th scope=row>4<.*?<td>[^<]*<td>)[\d.]+×", r"\g<1>96.3×"), "the best so far rises at step 4"),
        (RUN, _first(r"model not recorded", "whose model is not recorded"), "is by a language model, through prompt files; model"),
        (STEP, _first(r"(verdict>[^<]*)on \S+ its bottleneck", r"\1its bottleneck"), "its bottleneck names no case"),
        (STEP, _first(r"<span class=\"tag warn\">sessions disagree</span>", "agree"), "disagree, and nothing says so"),
        ("index.html", _first(r"(geometric mean of \d+ tasks<dd>)[\d.]+×", r"\g<1>7.77×"), "by the table"),
        ("how.html", _first(r"(\d+ of \d+) <small.*?</small>", r"\1</dd>"), "has no interval"),
    ],
)  # fmt: skip
def test_a_contradiction_is_found(
    page: str, change: Callable[[str], str], said: str, published: Path, tmp_path: Path
) -> None:
    """Of a part of the site, so that it is quick; only the change is what it complains of."""
    part = (page, RUN, "index.html", "how.html", STEP, SOFTMAX, "op/rms_norm.html")
    for name in dict.fromkeys(part):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(published / name, tmp_path / name)
    before = set(complaints(tmp_path))
    (tmp_path / page).write_text(change((tmp_path / page).read_text(encoding="utf-8")), encoding="utf-8")
    new = set(complaints(tmp_path)) - before
    assert any(said in one for one in new), new
